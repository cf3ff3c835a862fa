"""Memories as memory libraries and note-taking tools leave them in files."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import detect, read
from cems_workbench.formats.base.choosing import read_path
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
