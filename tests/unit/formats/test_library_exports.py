"""Memories as memory libraries and note-taking tools leave them in files.

What engines and memory libraries return, as people paste or save it: read as an answer to compare with, and as memories or not.

Chroma 1.5.9, langgraph-checkpoint 4, llama-index-core 0.14.25, haystack-ai 3.4.1, langchain-core and qdrant-client were run, and their
JSON is kept below. The JSON of Elasticsearch, Weaviate, Milvus, Letta, mem0, Graphiti, Zep and A-MEM is written after reports of their
users (tests/recordings/reports/34-engine-answers), not recorded.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import detect, read
from cems_workbench.formats.base.choosing import read_path
from cems_workbench.formats.recorded_answers import parse_recording
from cems_workbench.formats.responses import parse_response
from cems_workbench.records import Memory, Relation

TEXT = "Releases reach the cluster through the deploy bot."
MEM0 = {"id": "e5", "memory": TEXT, "hash": "0f", "metadata": {"category": "infra"}, "user_id": "kim"}


def test_the_memory_of_the_mcp_server_is_a_memory_an_entity(write):
    """Lines as @modelcontextprotocol/server-memory 2026.8.31 wrote them; it keeps a relation to a name that is no entity."""
    rows = [
        {"type": "entity", "name": "Mira", "entityType": "person", "observations": ["Likes tea.", "Owns billing."]},
        {"type": "entity", "name": "harbor/api", "entityType": "service", "observations": []},
        {"type": "relation", "from": "Mira", "to": "harbor/api", "relationType": "works on"},
        {"type": "relation", "from": "Mira", "to": "nobody", "relationType": "knows"},
    ]
    graph = {
        "entities": [{k: v for k, v in row.items() if k != "type"} for row in rows[:2]],
        "relations": [{k: v for k, v in row.items() if k != "type"} for row in rows[2:]],
    }
    for path in (write("memory.jsonl", *rows), write("memory.json", *rows), write("graph.json", graph)):
        parsed = read(path)
        assert parsed.memories == (
            Memory("Mira", "Likes tea.\nOwns billing.", title="Mira", category="person"),
            Memory("harbor/api", "harbor/api", title="harbor/api", category="service"),
        )
        assert parsed.relations == (Relation("Mira", "harbor/api", "works on"),)
        assert [(error.field, error.reason) for error in parsed.errors] == [
            ("to", "no entity of the file is called 'nobody'")
        ]


@pytest.mark.parametrize(
    ("answer", "memory"),
    [
        ({"results": [MEM0], "relations": []}, Memory("e5", TEXT, category="infra", author="kim")),
        ([MEM0], Memory("e5", TEXT, category="infra", author="kim")),
        (
            [{"namespace": ["kim", "memories"], "key": "07", "value": {"text": TEXT}, "created_at": "2026-06-11"}],
            Memory("kim.memories/07", TEXT, project="kim.memories", created_at=datetime(2026, 6, 11, tzinfo=UTC)),
        ),
        (
            {"edges": [{"uuid": "e1", "fact": TEXT, "valid_at": "2025-01-01", "invalid_at": "2025-06-01"}]},
            Memory(
                "e1",
                TEXT,
                valid_from=datetime(2025, 1, 1, tzinfo=UTC),
                valid_until=datetime(2025, 6, 1, tzinfo=UTC),
            ),
        ),
        ({"passages": [{"id": "p", "text": TEXT, "tags": ["a"]}]}, Memory("p", TEXT, tags=("a",))),
        (
            [{"lc": 1, "kwargs": {"id": "d", "page_content": TEXT, "metadata": {"source": "s"}}}],
            Memory("d", TEXT, source_ref="s"),
        ),
        (
            {"result": {"points": [{"id": 7, "payload": {"data": TEXT, "user_id": "kim"}, "vector": [0.1]}]}},
            Memory("7", TEXT, author="kim"),
        ),
        (
            {"ids": ["c"], "documents": [TEXT], "metadatas": [{"title": "T"}], "embeddings": None},
            Memory("c", TEXT, title="T"),
        ),
    ],
)
def test_what_a_library_returns_is_imported_with_its_ids(write, answer, memory):
    parsed = read(write("all.json", answer))
    assert (parsed.format, parsed.memories, parsed.errors) == ("memory-records", (memory,), ())
    if isinstance(answer, list):
        assert read(write("all.jsonl", *answer)).memories == (memory,)


def test_an_answer_with_scores_is_no_memory(write):
    for answer in ({"results": [{**MEM0, "score": 0.9}]}, {"ids": [["a"]], "documents": [[TEXT]]}):
        with pytest.raises(InputError, match=r"what a query of (mem0|Chroma) found: fidelity FILE"):
            detect(write("found.json", answer))


def note(folder, name, *lines):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), encoding="utf-8")


def test_a_folder_of_notes_has_front_matter_paths_and_links(tmp_path):
    front = [
        "---",
        "title: Deploys",
        "type: note",
        "tags: [infra]",
        "permalink: main/deploys",
        "created: 2026-01-03",
        "updated: 2026-13-45",
    ]
    links = [
        "By the [[Bot|deploy bot]].",
        "",
        "- replaces [[by hand]] (in May)",
        "```",
        "[[Code]]",
        "```",
        "[[Nobody]]",
    ]
    note(tmp_path, "deploys.md", *front, "mood: calm", "---", *links)
    note(tmp_path, "old/By hand.md", "# Deploying by hand", "Mira does it.")
    note(tmp_path, "Bot.md", "It answers on chat.")
    note(
        tmp_path,
        "claude.md",
        "---",
        "name: style",
        "description: short",
        "metadata:",
        "  type: feedback",
        "---",
        "Be brief.",
    )
    note(tmp_path, "broken.md", "---", "a: [b", "---", "Kept.")
    note(tmp_path, "empty.md")
    note(tmp_path, ".trash/gone.md", "Gone.")
    [parsed] = read_path(tmp_path)
    assert {memory.id: (memory.title, memory.category) for memory in parsed.memories} == {
        "Bot": ("Bot", None),
        "broken": ("broken", None),
        "claude": ("style", "feedback"),
        "main/deploys": ("Deploys", "note"),
        "old/By hand": ("Deploying by hand", None),
    }
    deploys = next(memory for memory in parsed.memories if memory.id == "main/deploys")
    assert (deploys.content, deploys.tags) == ("\n".join(links), ("infra",))
    assert deploys.created_at == datetime(2026, 1, 3, tzinfo=UTC)
    assert parsed.relations == (
        Relation("main/deploys", "Bot", "links_to"),
        Relation("main/deploys", "old/By hand", "replaces"),
    )
    failed = [str(error).removeprefix(f"{tmp_path}/").split(":")[0] for error in parsed.errors]
    assert sorted(failed) == ["broken.md", "deploys.md", "empty.md"]
    assert [line.split(" is ")[0] for line in parsed.notes[:2]] == ["field 'description'", "field 'mood'"]
    assert parsed.notes[2] == "links that lead to no note: 1"


def test_a_note_beside_data_is_its_description(tmp_path):
    note(tmp_path, "README.md", "# About")
    note(tmp_path, "more/about.md", "Words.")
    (tmp_path / "memories.jsonl").write_text(json.dumps({"id": "a", "content": "x"}))
    [parsed] = read_path(tmp_path)
    assert parsed.format == "memories-jsonl" and len(parsed.skipped) == 2
    (tmp_path / ".obsidian").mkdir()
    assert [memory.id for memory in read_path(tmp_path)[0].memories] == ["README", "more/about"]


ONE, TWO = "Releases reach the cluster", "The rollback command"
CHROMA_QUERY = {
    "ids": [["m01", "m07"]],
    "embeddings": None,
    "documents": [[ONE, TWO]],
    "uris": None,
    "included": ["metadatas", "documents", "distances"],
    "metadatas": [[{"title": "T"}, None]],
    "distances": [[0.25, 0.5]],
}
NODE = {
    "id_": "m01",
    "embedding": None,
    "metadata": {"k": 1},
    "text": ONE,
    "mimetype": "text/plain",
    "class_name": "TextNode",
}
LANGGRAPH = {
    "namespace": ["kim", "mem"],
    "key": "m01",
    "value": {"text": ONE},
    "created_at": "2026-11-28T18:52:44.092757+00:00",
}
LANGCHAIN = {
    "lc": 1,
    "type": "constructor",
    "id": ["langchain", "schema"],
    "kwargs": {"id": "m01", "page_content": ONE, "metadata": {}},
}
OF_QUERY = {
    "chroma query": (CHROMA_QUERY, [("m01", -0.25, ONE), ("m07", -0.5, TWO)]),
    "elasticsearch": (
        {
            "took": 3,
            "hits": {"hits": [{"_index": "m", "_id": "m01", "_score": 2.5, "_source": {"content": ONE, "id": "x"}}]},
        },
        [("m01", 2.5, ONE)],
    ),
    "elasticsearch fields": (
        {"hits": {"hits": [{"_id": "m01", "_score": 2.5, "fields": {"text": [ONE]}}]}},
        [("m01", 2.5, ONE)],
    ),
    "qdrant search": ({"result": [{"id": 1, "version": 0, "score": 1.0, "payload": {"data": ONE}}]}, [("1", 1.0, ONE)]),
    "qdrant query": (
        {"result": {"points": [{"id": 1, "score": 0.5, "payload": {"data": ONE}}]}, "status": "ok"},
        [("1", 0.5, ONE)],
    ),
    "qdrant groups": (
        {"result": {"groups": [{"id": "a", "hits": [{"id": 1, "score": 0.5, "payload": {"data": ONE}}]}]}},
        [("1", 0.5, ONE)],
    ),
    "weaviate graphql": (
        {
            "data": {
                "Get": {"Memory": [{"_additional": {"id": "m01", "distance": 0.25, "certainty": None}, "text": ONE}]}
            }
        },
        [("m01", -0.25, ONE)],
    ),
    "weaviate hybrid": (
        {"data": {"Get": {"M": [{"_additional": {"id": "m01", "score": "0.5"}, "text": ONE}]}}},
        [("m01", 0.5, ONE)],
    ),
    "weaviate client": (
        {"objects": [{"uuid": "m01", "properties": {"text": ONE}, "metadata": {"distance": 0.25, "score": None}}]},
        [("m01", -0.25, ONE)],
    ),
    "milvus": ({"data": [{"id": 1, "distance": 0.25, "entity": {"text": ONE}}]}, [("1", -0.25, ONE)]),
    "langgraph": ([{**LANGGRAPH, "score": 0.5}], [("kim.mem/m01", 0.5, ONE)]),
    "llamaindex": ({"response": "By the bot.", "source_nodes": [{"node": NODE, "score": 0.5}]}, [("m01", 0.5, ONE)]),
    "llamaindex text_resource": (
        [{"node": {"id_": "m01", "text_resource": {"text": ONE}}, "score": 0.5}],
        [("m01", 0.5, ONE)],
    ),
    "langchain pairs": ([[LANGCHAIN, 0.5]], [("m01", 0.5, ONE)]),
    "haystack": ({"documents": [{"id": "m01", "content": ONE, "meta": {"k": 1}, "score": 0.5}]}, [("m01", 0.5, ONE)]),
    "mem0": (
        {"results": [{"id": "m01", "memory": ONE, "score": 0.5, "metadata": {}}], "relations": []},
        [("m01", 0.5, ONE)],
    ),
    "graphiti": ({"edges": [{"uuid": "e1", "fact": ONE, "score": 0.5}], "nodes": []}, [("e1", 0.5, ONE)]),
}
MEMORIES = {
    "chroma get": (
        {"ids": ["m01"], "documents": [ONE], "metadatas": [{"title": "T"}], "embeddings": None},
        [("m01", None, ONE)],
    ),
    "qdrant scroll": (
        {"result": {"points": [{"id": 1, "payload": {"data": ONE}, "vector": None}]}},
        [("1", None, ONE)],
    ),
    "elasticsearch match_all": (
        {"hits": {"hits": [{"_id": "m01", "_score": 1.0, "_source": {"text": ONE}}]}},
        [("m01", 1.0, ONE)],
    ),
    "weaviate objects": ({"objects": [{"class": "M", "id": "m01", "properties": {"text": ONE}}]}, [("m01", None, ONE)]),
    "langgraph": ([{**LANGGRAPH, "score": None}], [("kim.mem/m01", None, ONE)]),
    "letta": ({"passages": [{"id": "m01", "text": ONE, "timestamp": "2026-01-01"}]}, [("m01", None, ONE)]),
    "zep": ({"facts": [{"uuid": "e1", "fact": ONE}]}, [("e1", None, ONE)]),
}


def answered(document: object) -> list[tuple[str | None, float | None, str | None]]:
    recording = parse_recording(json.dumps(document))
    assert recording.errors == ()
    (answer,) = recording.answers
    return [(row.memory_id, row.score, row.content) for row in answer.returned]


@pytest.mark.parametrize("name", OF_QUERY)
def test_answer_of_a_query_is_compared_and_no_memory_unless_it_is_said(write, name: str) -> None:
    document, rows = OF_QUERY[name]
    assert answered(document) == rows
    path = write("saved.json", json.dumps(document))
    if name in ("haystack", "langchain pairs"):  # {id, content} is a memory with a field more; a pair is no object
        return
    with pytest.raises(InputError, match=r"may be memories, or what a query.* found: fidelity FILE"):
        detect(path)
    parsed = read(path, "memory-records")
    assert parsed.errors == ()
    assert [(memory.id, memory.content) for memory in parsed.memories] == [(key, text) for key, _, text in rows]


@pytest.mark.parametrize("name", MEMORIES)
def test_what_was_listed_is_read_as_memories_and_as_an_answer(write, name: str) -> None:
    document, rows = MEMORIES[name]
    assert answered(document) == rows
    parsed = read(write("saved.json", json.dumps(document)))
    assert (parsed.format, parsed.errors) == ("memory-records", ())
    assert [(memory.id, memory.content) for memory in parsed.memories] == [(key, text) for key, _, text in rows]


def rows_with(name: str, *values: float) -> str:
    return json.dumps([{"id": f"m{n}", "content": str(n), name: value} for n, value in enumerate(values)])


@pytest.mark.parametrize(
    ("name", "values", "scores", "note"),
    [
        ("distance", [0.1, 0.4], [-0.1, -0.4], "is smaller for what is nearer"),  # pgvector, LanceDB
        ("?column?", [0.1, 0.4], [-0.1, -0.4], "is smaller for what is nearer"),  # psql of a distance without a name
        ("distance", [0.9, 0.4], [0.9, 0.4], "falls from the first to the last result"),  # Milvus with COSINE
        ("score", [0.1, 0.4], [-0.1, -0.4], "rises from the first to the last result"),  # A-MEM, LangChain with Chroma
        ("score", [0.9, 0.4], [0.9, 0.4], ""),
        ("score", [0.4, 0.4], [0.4, 0.4], ""),
        ("score", [0.4, 0.9, 0.1], [0.4, 0.9, 0.1], ""),
        ("distance", [0.0], [0.0], "is smaller for what is nearer"),
    ],
)
def test_distance_is_told_from_a_score_by_its_course(name, values, scores, note):
    response = parse_response(rows_with(name, *values))
    assert [row.score for row in response.returned] == scores
    assert [row.memory_id for row in response.returned] == [f"m{n}" for n in range(len(values))]
    assert len(response.notes) == bool(note) and note in "".join(response.notes)


def test_answer_to_several_queries_is_several_answers() -> None:
    several = {
        **CHROMA_QUERY,
        "ids": [["a"], ["b", "c"]],
        "distances": [[0.5], [0.25, 0.5]],
        "documents": None,
        "metadatas": None,
    }
    batch = {"result": [[{"id": 1, "score": 0.5}], [{"id": 2, "score": 0.25}, {"id": 3, "score": 0.0}]]}
    searches = {"responses": [{"hits": {"hits": [{"_id": "a", "_score": 2, "_source": {}}]}}, {"hits": {"hits": []}}]}
    for document, expected in (
        (several, {"1": ["a"], "2": ["b", "c"]}),
        (batch, {"1": ["1"], "2": ["2", "3"]}),
        (searches, {"1": ["a"], "2": []}),
    ):
        found = parse_recording(json.dumps(document)).answers
        assert {answer.qid: [row.memory_id for row in answer.returned] for answer in found} == expected


def hits(name: str, *values: float) -> list[dict[str, object]]:
    return [{"id": f"m{n}", "content": str(n), name: value} for n, value in enumerate(values)]


def in_every_shape(answers: list[list[dict[str, object]]]) -> dict[str, str]:
    """The same answers as JSON lines, a list of responses, a list of answers, and a recording."""
    responses = [{"query": f"q{n}", "results": rows} for n, rows in enumerate(answers)]
    recorded = {"answers": [{"qid": str(n), **each} for n, each in enumerate(responses)]}
    return {
        "lines": "\n".join(map(json.dumps, responses)),
        "responses": json.dumps(responses),
        "answers": json.dumps(answers),
        "recording": json.dumps(recorded),
    }


@pytest.mark.parametrize(
    ("name", "answers", "sign", "note"),
    [
        # pymilvus 3.0.2, COSINE: the cosine is in `distance`; one answer of a single hit has no course of its own.
        (
            "distance",
            [[0.8, 0.1], [0.5], [0.9, 0.9]],
            1,
            "distance falls from the first to the last result in 1 of 3 answers",
        ),
        ("distance", [[0.8, 0.1], [0.5, 0.2], [0.3, 0.4]], 1, "in 2 of 3 answers"),
        ("_distance", [[0.1, 0.8], [0.5]], -1, "_distance is smaller for what is nearer"),
        ("score", [[0.1, 0.8], [0.2, 0.3]], -1, "score rises from the first to the last result in 2 of 2 answers"),
        ("score", [[0.1, 0.8], [0.9, 0.3]], 1, ""),
        ("score", [[0.1, 0.8, 0.3], [0.1, 0.3]], 1, ""),
    ],
)
def test_sign_of_scores_is_that_of_all_answers_of_a_file(name, answers, sign, note):
    """pymilvus 3.0.2 and FalkorDB 4.16.3, run on 2026-11-29: the shape of a file says nothing of its numbers."""
    for shape, text in in_every_shape([hits(name, *values) for values in answers]).items():
        recording = parse_recording(text)
        read = [[row.score for row in answer.returned] for answer in recording.answers]
        assert read == [[sign * value for value in values] for values in answers], shape
        assert len(recording.doubts) == bool(note) and note in "".join(recording.doubts)


def test_sign_of_a_query_log_is_that_of_its_answers_too(write) -> None:
    lines = [{"query": f"q{n}", "time": "2026-11-29", "results": hits("distance", 0.8, 0.1)} for n in range(2)]
    parsed = read(write("log.jsonl", "\n".join(map(json.dumps, lines))), "query-log")
    assert [[row.score for row in answer.returned] for answer in parsed.answers] == [[0.8, 0.1]] * 2
    assert "distance falls from the first to the last result in 2 of 2 answers" in parsed.notes[0]


def test_one_score_is_read_of_all_rows_of_an_answer() -> None:
    """lancedb 0.40.0, run on 2026-11-29: with return_score="all" a hybrid search has `_score` where a word is found."""
    rows = [
        {"id": "a", "text": "a", "_relevance_score": 0.032, "_score": 1.05, "_distance": 0.4},
        {"id": "b", "text": "b", "_relevance_score": 0.016, "_score": None, "_distance": 0.2},
    ]
    assert [row.score for row in parse_response(json.dumps(rows)).returned] == [0.032, 0.016]
    # A score that one row lacks is no score of the answer.
    rows = [{"id": "a", "score": 7.0, "_distance": 0.1}, {"id": "b", "score": None, "_distance": 0.3}]
    assert [row.score for row in parse_response(json.dumps(rows)).returned] == [-0.1, -0.3]


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (["m1", "1", "m2", "0.9312", "m3", "0.25"], [("m1", 1.0), ("m2", 0.9312), ("m3", 0.25)]),
        (["m1", 0.99, "m2", 0.5], [("m1", 0.99), ("m2", 0.5)]),
        (["7", "0.99", "8", "0.5"], [("7", 0.99), ("8", 0.5)]),
        ({"m1": 0.99, "m2": 0.5}, [("m1", 0.99), ("m2", 0.5)]),
        (["m1", "m2", "m3", "m4"], [("m1", None), ("m2", None), ("m3", None), ("m4", None)]),
        (["4", "3", "2", "1"], [("4", None), ("3", None), ("2", None), ("1", None)]),
        (["a", "0.5", "b", "0.9"], [("a", None), ("0.5", None), ("b", None), ("0.9", None)]),
    ],
)
def test_ids_and_scores_of_redis_are_pairs(document: object, found: list[tuple[str, float | None]]) -> None:
    """Redis 8.2.3 and redis-py 8.1.0, run on 2026-11-29: VSIM … WITHSCORES."""
    assert [(key, score) for key, score, _ in answered(document)] == found
