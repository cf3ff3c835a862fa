"""Stores that agents' tools wrote in SQLite, compared with the tools' own answers (tests/recordings/tools).

NAME/store.tar.xz is the store as the tool left it, NAME/answers.json what its own list and searches returned, and the vectors of the
queries as it embedded them. Expectations come from there, never from here.
"""

from __future__ import annotations

import base64
import io
import json
import lzma
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collection_rows import files_of, memories, taken

from cems_workbench.errors import InputError
from cems_workbench.models.chunking import qmd_pieces
from cems_workbench.records import DELETED_MARK
from cems_workbench.sources.address import parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.source import EngineQuery, Source
from cems_workbench.sources.sqlite.layouts import basic_memory, engram, qmd
from tests import recorded_stores

RECORDINGS = Path(__file__).parents[1] / "recordings" / "tools"
NAMES = sorted(path.parent.name for path in RECORDINGS.glob("*/answers.json"))
TOLERANCE = 1e-6
ROWS = 200
"""Rows asked of a vector list over chunks, of which a tool shows each memory once."""


@cache
def answers(name: str) -> dict[str, Any]:
    """What the tool answered."""
    answer: dict[str, Any] = json.loads((RECORDINGS / name / "answers.json").read_text("utf-8"))
    return answer


Opened = Callable[..., Source]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """Opens a tool's store, with options of its address."""
    sources = []

    def open_(name: str, options: str = "") -> Source:
        folder = tmp_path / name
        if not folder.exists():
            content = lzma.decompress((RECORDINGS / name / "store.tar.xz").read_bytes())
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                archive.extractall(folder, filter="data")
        address = answers(name)["address"].format(path=folder) + options
        sources.append(open_source(parse(address, {})))
        return sources[-1]

    yield open_
    for source in sources:
        with closing(source):
            pass


def moment(value: Any) -> datetime:
    """A time of an answer: milliseconds, or ISO 8601 in UTC."""
    if isinstance(value, int):
        return datetime.fromtimestamp(value / 1000, UTC)
    found = datetime.fromisoformat(value)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


Row = Mapping[str, Any]
FIELDS: Mapping[str, Mapping[str, Callable[[Row], Any]]] = {
    "engram": {
        "content": lambda row: row["summary"],
        "project": lambda row: row["project"],
        "session": lambda row: row["session_id"],
        "tags": lambda row: tuple(json.loads(row["entities"])),
        "importance": lambda row: row["importance"],
        "created_at": lambda row: moment(row["created_at"]),
        "last_accessed": lambda row: moment(row["accessed_at"]),
        "access_count": lambda row: row["access_count"],
    },
    "qmd": {
        "content": lambda row: row["body"],
        "title": lambda row: row["title"],
        "project": lambda row: row["collectionName"],
        "source_ref": lambda row: row["filepath"],
        "updated_at": lambda row: moment(row["modifiedAt"]),
    },
    "basic_memory": {
        "content": lambda row: row["content"].strip(),
        "title": lambda row: row["title"],
        "category": lambda row: row["frontmatter"]["type"],
        "tags": lambda row: tuple(row["frontmatter"].get("tags", ())),
        "source_ref": lambda row: row["file_path"],
    },
    "letta_sqlite": {
        "content": lambda row: row["text"],
        "title": lambda row: row["metadata"]["title"],
        "tags": lambda row: tuple(row["tags"]),
        "author": lambda row: row["organization_id"],
        "project": lambda row: answers("letta_sqlite")["archives"][row["archive_id"]],
        "created_at": lambda row: moment(row["created_at"]),
    },
}
"""Fields of a memory, by what the tool's own answer says."""
IDS: Mapping[str, str] = {"qmd": "displayPath", "basic_memory": "permalink"}
"""The key of an answer's id, if it is not `id`."""
SCORES: Mapping[tuple[str, str], Callable[[float], float]] = {
    ("engram", "fts5"): lambda score: -score,
    ("basic_memory", "fts5"): lambda score: -score,
    ("basic_memory", "vector"): lambda score: 1 - score * score / 2,
    ("qmd", "fts5"): lambda score: score / (1 + score),
}
"""Our score as the tool shows it, by store and list."""


@pytest.mark.parametrize("name", NAMES)
def test_memories_are_what_the_tool_lists(name: str, opened: Opened, tmp_path: Path) -> None:
    answer, source = answers(name), opened(name)
    before = files_of(tmp_path / name)
    batches = taken(source)
    found = memories(batches)
    kept = {id for id, each in found.items() if not each.marker.startswith(DELETED_MARK)}
    listed = {row[IDS.get(name, "id")]: row for row in answer["memories"]}
    assert kept == set(listed) - set(answer["deleted"]) and len(kept) >= 20
    assert set(found) - kept <= set(answer["deleted"])
    differ = {
        (id, field): (getattr(found[id].memory, field), expected(listed[id]))
        for id in kept
        for field, expected in FIELDS[name].items()
        if getattr(found[id].memory, field) != expected(listed[id])
    }
    assert differ == {}
    problems = {problem.memory_id for batch in batches for problem in batch.problems}
    assert problems == set(answer.get("without_vector", ()))
    assert files_of(tmp_path / name) == before


@pytest.mark.parametrize("name", NAMES)
def test_live_lists_are_the_tools_own_searches(name: str, opened: Opened) -> None:
    answer = answers(name)
    counts = {"vector": 0, "fts5": 0}
    for search in answer["searches"]:
        called, collection = search["list"], search.get("collection")
        source = opened(name, f"?collection={collection}" if collection else "")
        vector = np.zeros(1, np.float32)
        if called == "vector":
            vector = np.frombuffer(base64.b64decode(answer["query_vectors"][search["query"]]), "<f4")
        rows = ROWS if called == "vector" else search["k"]
        (found,) = source.search(EngineQuery(search["query"], vector, {called: rows}))
        best: dict[str, float] = {}
        for hit in found.hits:
            best.setdefault(hit.memory_id, SCORES.get((name, called), float)(hit.score))
        # Letta returns deleted passages too; basic-memory cuts at a similarity of 0.
        theirs = [(id, score) for id, score in search["hits"] if id not in answer["deleted"] and score != 0]
        ours = list(best.items())[: len(theirs) if called == "vector" else None]
        assert [id for id, _ in ours] == [id for id, _ in theirs], search["query"]
        assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], abs=TOLERANCE)
        counts[called] += bool(theirs)
    assert counts["vector"] >= 5 and counts["fts5"] >= (0 if name == "letta_sqlite" else 5)


@pytest.mark.parametrize(("name", "match"), [("engram", engram.match), ("qmd", qmd.match)])
def test_words_become_the_tools_fts5_query(name: str, match: Callable[[str], str | None]) -> None:
    searches = [each for each in answers(name)["searches"] if each["list"] == "fts5"]
    assert [match(each["query"]) for each in searches] == [each["match"] for each in searches]


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("don't use pip", ['"don\'t"* AND use* AND pip*']),
        ("C++ (Redux OR Poetry)", ['"C++"(Redux OR Poetry)']),
        ("?!", []),
    ],
)
def test_basic_memory_asks_for_all_words_as_beginnings(words: str, asked: list[str]) -> None:
    recorded = [
        each["match"] for each in answers("basic_memory")["searches"] if each["query"] == words and each["match"]
    ]
    assert [basic_memory.match(words)] == (asked or [None])
    assert all(repr(match) in each or match in each for match in asked for each in recorded)


def test_basic_memory_relations_lead_from_note_to_note(opened: Opened) -> None:
    answer = answers("basic_memory")
    with opened("basic_memory").snapshot() as snapshot:
        ours = {(each.source_id, each.target_id, each.kind) for part in snapshot.relations() for each in part}
    titles = {row["title"]: row["permalink"] for row in answer["memories"]}
    theirs = {
        (titles[each["from_entity"]], titles[each["to_entity"]], each["relation_type"])
        for context in answer["context"]
        for result in context["results"]
        for each in result["related_results"]
        if each["type"] == "relation" and each["to_entity"] in titles
    }
    assert theirs and theirs <= ours and len(ours) == 21
    assert "3 relations lead to notes that do not exist; they are left out" in opened("basic_memory").probe().notes


def test_qmd_chunks_begin_where_its_vectors_do(opened: Opened) -> None:
    source = opened("qmd")
    assert source.probe().vectors == answers("qmd")["count"] + 2 + len(long_chunks(source)) - 1
    chunks = long_chunks(source)
    content = memories(taken(source))["notes/long.md"].memory.content
    assert len(chunks) == 4 and [chunk.seq for chunk in chunks] == [0, 1, 2, 3]
    assert [(chunk.start, chunk.text) for chunk in chunks] == [(each.start, each.text) for each in qmd_pieces(content)]


def long_chunks(source: Source) -> Any:
    return memories(taken(source))["notes/long.md"].chunks


def test_qmd_starts_count_utf16_units() -> None:
    assert qmd.cut("🧪🧪 one two", [0, 5]) == [(0, "🧪🧪 one two"), (3, "one two")]


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("qmd", "?collection=nots", "there is no collection 'nots'; there are notes, work"),
        ("basic_memory", "?project=other", "there is no project 'other'; there are main"),
        ("engram", "?collection=a", "collection"),
    ],
)
def test_option_that_does_not_fit_is_named(name: str, options: str, said: str, opened: Opened) -> None:
    with pytest.raises(InputError, match=said):
        opened(name, options)


@pytest.mark.parametrize(("name", "options"), [("langgraph_sqlite", ""), ("langgraph_sqlite_l2", "?distance=l2")])
def test_langgraph_answers_as_its_store_and_keeps_expired_items_until_a_sweep(
    name: str, options: str, tmp_path: Path
) -> None:
    answer = recorded_stores.answers(name)
    address = f"sqlite:{recorded_stores.restore(name, tmp_path)}/store.sqlite"
    with closing(open_source(parse(address + options, {}))) as source:
        assert [
            note for note in source.probe().notes if note.startswith("2 items are past expires_at and not yet swept")
        ]
        for search in answer["searches"][:5]:
            (found,) = source.search(
                EngineQuery(search["query"], recorded_stores.vector(search["query"]), {"vector": ROWS})
            )
            best: dict[str, float] = {}
            for hit in found.hits:
                best.setdefault(hit.memory_id, abs(hit.score) if options else hit.score)
            # By l2 the library has the farthest first.
            theirs = search["hits"][:: -1 if options else 1]
            assert search["prefix"] == "" and list(best) == [id for id, _ in theirs]
            assert list(best.values()) == pytest.approx([score for _, score in theirs], abs=TOLERANCE)
    parts = "&".join([*options.removeprefix("?").split(), "omit_expired=true", "namespace=memories"])
    with closing(open_source(parse(f"{address}?{parts}", {}))) as source:
        kept = [id for id in answer["ids"] if id.startswith("memories.") and id not in answer["expired"]]
        assert sorted(memories(taken(source))) == sorted(kept)
