"""SQLite stores of tools: their layouts, recorded searches, and a file that another program writes meanwhile."""

from __future__ import annotations

import base64
import io
import json
import lzma
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from collection_rows import files_of, memories, taken

from cems_workbench.errors import InputError
from cems_workbench.models.chunking import qmd_pieces
from cems_workbench.records import DELETED_MARK
from cems_workbench.sources.address import SOURCE_KINDS, parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.source import EngineQuery, Source, SourceError
from tests import recorded_stores
from tests.sqlite_writer import Journal, hammering, make_notes
from tests.thoroughly import first_of
from workbench_stores.sqlite import libraries, tools
from workbench_stores.sqlite.connect import LAYOUTS
from workbench_stores.sqlite.file import DatabaseFile

ROOT = Path(__file__).parents[2]
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

    def open_(name: str, options: str = "", mapping: Mapping[str, str] | None = None) -> Source:
        folder = tmp_path / name
        if not folder.exists():
            content = lzma.decompress((RECORDINGS / name / "store.tar.xz").read_bytes())
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                archive.extractall(folder, filter="data")
        address = answers(name)["address"].format(path=folder) + options
        sources.append(open_source(parse(address, {}), mapping))
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
        "source_ref": lambda row: f"qmd://{row['displayPath']}",
        "updated_at": lambda row: moment(row["modifiedAt"]),
    },
    "basic_memory": {
        "content": lambda row: row["content"].strip(),
        "title": lambda row: row["title"],
        "category": lambda row: row["frontmatter"]["type"],
        "tags": lambda row: tuple(row["frontmatter"].get("tags", ())),
        "source_ref": lambda row: row["file_path"],
    },
    "claude_mem": {
        "content": lambda row: "\n".join(
            {
                "obs": lambda: [row["narrative"], *(f"- {fact}" for fact in json.loads(row["facts"]))],
                "summary": lambda: [row[part] for part in tools.PARTS[:-1]],
                "prompt": lambda: [row["prompt_text"]],
            }[row["kind"]]()
        ),
        "title": lambda row: row["title"] if row["kind"] == "obs" else row.get("request"),
        "category": lambda row: {"summary": "session_summary", "prompt": "user_prompt"}.get(row["kind"]) or row["type"],
        "project": lambda row: row["project"],
        "tags": lambda row: tuple(json.loads(row.get("concepts", "[]"))),
        "created_at": lambda row: moment(row["created_at_epoch"]),
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
    assert kept == set(listed) - set(answer["deleted"]) and len(kept) >= 17
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


def _by_score(hits: Iterable[tuple[Any, float]]) -> list[tuple[Any, float]]:
    """Hits by distance, ties by id, without those of the last distance."""
    ordered = sorted((round(score, 5), id, score) for id, score in hits)
    return [(id, score) for rounded, id, score in ordered if rounded != ordered[-1][0]]


@pytest.mark.parametrize("name", NAMES)
def test_live_lists_are_the_tools_own_searches(name: str, opened: Opened) -> None:
    answer = answers(name)
    least = {"vector": 5, "fts5": {"letta_sqlite": 0, "claude_mem": 4}.get(name, 5)}
    counts = dict.fromkeys(least, 0)
    sources: dict[str, Source] = {}
    for search in answer["searches"]:
        called, collection = search["list"], search.get("collection")
        options = f"?collection={collection}" if collection else ""
        source = sources.setdefault(options, sources.get(options) or opened(name, options))
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
        if name == "claude_mem" and called == "vector":
            # Chroma's hits are texts, of which some are equal; those of the last score may be others.
            ours = _by_score(((hit.memory_id, hit.seq), hit.score**2) for hit in found.hits[: search["k"]])
            theirs = _by_score((tools.place(id), score) for id, score in theirs)
        assert [id for id, _ in ours] == [id for id, _ in theirs], search["query"]
        if all(score is not None for _, score in theirs):
            assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], abs=TOLERANCE)
        counts[called] += bool(theirs)
    assert all(counts[called] >= least[called] for called in least), counts


@pytest.mark.parametrize(("name", "match"), [("engram", libraries.engram_match), ("qmd", tools.qmd_match)])
def test_words_become_the_tools_fts5_query(name: str, match: Callable[[str], str | None]) -> None:
    searches = [each for each in answers(name)["searches"] if each["list"] == "fts5"]
    assert [match(each["query"]) for each in searches] == [each["match"] for each in searches]


def test_basic_memory_asks_for_all_words_and_then_for_any() -> None:
    searches = [each for each in answers("basic_memory")["searches"] if each["match"] and each["query"].isprintable()]
    # Of a script without spaces it asks pairs of signs.
    asked = {each["query"]: each["match"] for each in searches if "script_ngrams" not in each["match"]}
    assert len(asked) >= 14
    for words, recorded in asked.items():
        forms = (tools.basic_memory_match(words), tools.any_word(words))
        assert any(repr(form) in recorded for form in forms if form), words
    assert tools.basic_memory_match("?!") is None


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
    (embedded,) = chunks[0].embedded.values()
    assert embedded.of("one") == "title: A year in short | text: one"
    assert [(chunk.start, chunk.text) for chunk in chunks] == [(each.start, each.text) for each in qmd_pieces(content)]


def long_chunks(source: Source) -> Any:
    return memories(taken(source))["notes/long.md"].chunks


def test_markers_are_the_same_in_another_process(opened: Opened) -> None:
    """An unchanged file of QMD was read again by each `connect`, because its layout has functions (2026-11-29)."""
    found = memories(taken(opened("qmd")))
    path = opened("qmd").address
    code = (
        "from cems_workbench.sources.address import parse; from cems_workbench.sources.connect import open_source\n"
        f"with open_source(parse({path!r})).snapshot() as snapshot:\n"
        "    print(*[m for batch in snapshot.batches(lambda ids, _: ids) for m in [each.marker for each in batch.taken]])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [each.marker for each in found.values()]


def test_qmd_starts_count_utf16_units() -> None:
    assert tools.cut("🧪🧪 one two", [0, 5]) == [(0, "🧪🧪 one two"), (3, "one two")]


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


def test_claude_mem_has_its_vectors_from_the_chroma_folder_beside_it(opened: Opened, tmp_path: Path) -> None:
    answer, source = answers("claude_mem"), opened("claude_mem")
    info = source.probe()
    assert (info.vectors, info.dimension, info.distance) == (len(answer["texts"]), 384, "l2")
    chunks = {(id, chunk.seq): chunk for id, each in memories(taken(source)).items() for chunk in each.chunks}
    assert {place: chunk.text for place, chunk in chunks.items()} == {
        tools.place(id): text for id, text in answer["texts"].items()
    }
    assert all(chunk.vector is not None and chunk.vector.shape == (384,) for chunk in chunks.values())

    folder = tmp_path / "claude_mem"
    (folder / "chroma").rename(folder / "elsewhere")
    alone = opened("claude_mem")
    assert alone.probe().lists == ("fts5",)
    assert any(line.startswith("its vectors are not read") for line in alone.probe().missing)
    assert opened("claude_mem", f"?chroma={folder / 'elsewhere'}").probe().vectors == len(answer["texts"])
    with pytest.raises(InputError, match="no such database is there"):
        opened("claude_mem", f"?chroma={folder / 'nowhere'}")


def test_claude_mem_memory_counts_as_changed_when_a_text_is_added_in_chroma(opened: Opened, tmp_path: Path) -> None:
    import chromadb

    seen: dict[str, str] = {}

    def changed(ids: Any, markers: Any) -> list[str]:
        new = [id for id, marker in zip(ids, markers, strict=True) if seen.get(id) != marker]
        seen.update(zip(ids, markers, strict=True))
        return new

    assert len(memories(taken(opened("claude_mem"), changed))) == answers("claude_mem")["count"]
    assert memories(taken(opened("claude_mem"), changed)) == {}
    client = chromadb.PersistentClient(str(tmp_path / "claude_mem" / "chroma"))
    collection = client.get_collection("cm__claude-mem", embedding_function=None)
    collection.add(
        ids=["obs_11_fact_0"], documents=["A fact."], embeddings=[[0.1] * 384], metadatas=[{"sqlite_id": 11}]
    )
    found = memories(taken(opened("claude_mem"), changed))
    assert [(id, [chunk.text for chunk in each.chunks][-1]) for id, each in found.items()] == [("obs_11", "A fact.")]


def test_mapping_corrects_fields_of_a_known_layout(opened: Opened) -> None:
    given = {"title": "subtitle", "author": "session"}
    found = memories(taken(opened("claude_mem", mapping=given)))["obs_1"].memory
    row = next(row for row in answers("claude_mem")["memories"] if row["id"] == "obs_1")
    assert (found.title, found.author, found.category) == (row["subtitle"], row["memory_session_id"], row["type"])
    # A column that the layout does not read by itself.
    source = opened("engram", mapping={"source_ref": "project_path"})
    assert "project_path" not in " ".join(source.probe().notes).partition("not read")[2]
    assert {
        each.memory.source_ref for each in memories(taken(source)).values() if each.memory.project == "harbor/api"
    } == {"/src/harbor/api"}
    with pytest.raises(InputError, match="engram has no column 'sumary'; it may be one of session_id, project"):
        opened("engram", mapping={"title": "sumary"})
    with pytest.raises(InputError, match="titel is no field of a memory of engram; did you mean title"):
        opened("engram", mapping={"titel": "summary"})


def test_every_layout_has_its_product_name() -> None:
    assert SOURCE_KINDS["sqlite"].products == {"sqlite": "SQLite"} | {each.name: each.title for each in LAYOUTS}


def test_basic_memory_reads_texts_of_older_files_from_the_search_index(opened: Opened, tmp_path: Path) -> None:
    opened("basic_memory")
    with closing(sqlite3.connect(tmp_path / "basic_memory" / "memory.db")) as owner:
        owner.execute("DROP TABLE note_content")
    found = memories(taken(opened("basic_memory")))
    rows = {row["permalink"]: row["content"].strip() for row in answers("basic_memory")["memories"]}
    assert {id: each.memory.content.strip() for id, each in found.items()} == rows


def test_claude_mem_items_are_taken_unless_they_are_of_an_observation(opened: Opened, tmp_path: Path) -> None:
    opened("claude_mem")
    columns = "id, project_id, server_session_id, legacy_observation_id, kind, type, title, subtitle, text, narrative, facts, concepts"
    with closing(sqlite3.connect(tmp_path / "claude_mem" / "claude-mem.db")) as owner:
        owner.execute(
            f"CREATE TABLE memory_items ({columns}, files_read, files_modified, created_at_epoch, updated_at_epoch)"
        )
        values = [("one", None, "A text"), ("two", 1, "Of an observation")]
        owner.executemany(
            "INSERT INTO memory_items (id, legacy_observation_id, text, facts, concepts, kind, type, created_at_epoch) "
            "VALUES (?, ?, ?, '[\"a fact\"]', '[\"x\"]', 'manual', 'note', 1700000000000)",
            values,
        )
        owner.commit()
    found = memories(taken(opened("claude_mem")))
    assert set(found) == {*answers("claude_mem")["ids"], "item_one"}
    item = found["item_one"].memory
    assert (item.content, item.category, item.tags) == ("A text\n- a fact", "note", ("x",))


@contextmanager
def opened_beside(path: Path, options: str = "") -> Iterator[Source]:
    with closing(open_source(parse(f"sqlite:{quote(str(path))}{options}"))) as source:
        yield source


def ids(source: Source) -> list[str]:
    with source.snapshot() as snapshot:
        return [each.memory.id for batch in snapshot.batches(lambda ids, _: ids) for each in batch.taken]


@pytest.mark.parametrize("journal", first_of(("wal", "delete")))
def test_a_writer_that_hammers_loses_nothing(tmp_path: Path, journal: Journal) -> None:
    path = tmp_path / "notes.db"
    make_notes(path, 1_000, 16, journal)
    with hammering(path) as written, opened_beside(path) as source:
        found = ids(source)
        assert len(found) == len(set(found)) >= 1_000
        (nearest,) = source.search(EngineQuery("", np.ones(16, np.float32), {"vector": 5}))
        assert len(nearest.hits) == 5
    assert [each.name for each in tmp_path.iterdir()] == ["notes.db"]
    with closing(sqlite3.connect(path)) as owner:
        assert owner.execute("SELECT count(*) FROM notes").fetchone() == (1_000 + written.rows,)
        assert owner.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_short_steps_read_all_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notes.db"
    make_notes(path, 5_000, 16, "delete")
    monkeypatch.setattr(DatabaseFile, "_asked", busy(DatabaseFile._asked))
    with hammering(path) as written, opened_beside(path) as source:
        info, found = source.probe(), ids(source)
        # Rows above the last were added meanwhile.
        assert {str(i) for i in range(1, 5_001)} <= set(found) and len(found) == len(set(found))
        assert info.vectors >= 5_000 and any("short steps" in note for note in info.notes)
    assert written.rows and [each.name for each in tmp_path.iterdir()] == ["notes.db"]


def busy(asked):  # type: ignore[no-untyped-def]
    """The answers of the copying process, except that no copy succeeds."""
    return lambda self, command, *rest: {"problem": "busy"} if command == "copy" else asked(self, command, *rest)


def test_an_owner_that_is_open_keeps_its_files(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    make_notes(path, 10, 4)
    with closing(sqlite3.connect(path)) as owner:
        owner.execute(
            "INSERT INTO notes (uid, body, embedding) VALUES ('late', 'only in the WAL', x'0000803f0000803f0000803f0000803f')"
        )
        owner.commit()
        before = (path.read_bytes(), sorted(each.name for each in tmp_path.iterdir()))
        with opened_beside(path) as source:
            assert len(ids(source)) == 11
        assert (path.read_bytes(), sorted(each.name for each in tmp_path.iterdir())) == before
        owner.execute("UPDATE notes SET body = 'x'")
        owner.commit()
    assert [each.name for each in tmp_path.iterdir()] == ["notes.db"]


def test_a_transaction_that_is_not_committed_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    make_notes(path, 10, 4, "delete")
    with closing(sqlite3.connect(path, isolation_level=None)) as owner:
        owner.execute("PRAGMA cache_size=1")
        owner.execute("BEGIN EXCLUSIVE")
        owner.executemany("INSERT INTO notes (uid, body) VALUES (?, ?)", [(f"u{i}", "x" * 3_000) for i in range(500)])
        with opened_beside(path) as source:
            assert len(ids(source)) == 10
        owner.execute("ROLLBACK")


def test_what_a_crash_left_is_recovered_in_the_copy_alone(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    (tmp_path / "crashed").mkdir()
    path = tmp_path / "live" / "notes.db"
    make_notes(path, 10, 4, "delete")
    with closing(sqlite3.connect(path, isolation_level=None)) as owner:
        owner.execute("PRAGMA cache_size=1")
        owner.execute("BEGIN EXCLUSIVE")
        owner.execute("UPDATE notes SET body = 'half'")
        owner.executemany("INSERT INTO notes (uid, body) VALUES (?, ?)", [(f"u{i}", "x" * 3_000) for i in range(500)])
        for each in path.parent.iterdir():
            shutil.copy(each, tmp_path / "crashed")
        owner.execute("ROLLBACK")
    crashed = tmp_path / "crashed" / "notes.db"
    before = {each.name: each.read_bytes() for each in crashed.parent.iterdir()}
    assert "notes.db-journal" in before
    with opened_beside(crashed) as source, source.snapshot() as snapshot:
        (batch,) = snapshot.batches(lambda ids, _: ids)
    assert len(batch.taken) == 10 and all(each.memory.content != "half" for each in batch.taken)
    assert {each.name: each.read_bytes() for each in crashed.parent.iterdir()} == before


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_folder_that_cannot_be_written_to(tmp_path: Path, journal: Journal) -> None:
    folder = tmp_path / "read only"
    folder.mkdir()
    make_notes(folder / "notes.db", 10, 4, journal)
    folder.chmod(0o500)
    try:
        with opened_beside(folder / "notes.db") as source:
            assert len(ids(source)) == 10
    finally:
        folder.chmod(0o700)


def test_paths_are_taken_as_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["my notes.db", "50%25.db", "ü.db"]
    for name in names:
        make_notes(tmp_path / name, 1, 4)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for address in (
        "sqlite:my notes.db",
        "sqlite:~/my%20notes.db",
        f"sqlite://{tmp_path}/my notes.db",
        "sqlite:50%25.db",
        "sqlite:ü.db",
    ):
        with closing(open_source(parse(address))) as source:
            assert source.probe().memories == 1, address


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty: it has no table yet"),
        (b"just a text, and not a short one", "is not a SQLite file"),
        (np.random.default_rng(0).bytes(4_096), "an encrypted one looks like that"),
        (b"SQLite format 3\0" + bytes([16, 0, 1, 1, 0, 64, 32, 32]) + bytes(4_072), "is damaged or encrypted"),
    ],
)
def test_what_is_no_database_is_said(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "notes.db").write_bytes(content)
    with pytest.raises((InputError, SourceError), match=message), opened_beside(tmp_path / "notes.db"):
        pass


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("sqlite:/no/such/file.db", "there is no file /no/such/file.db"),
        ("sqlite:/tmp", "is a folder"),
        ("sqlite://host/file.db", "a SQLite file has no host"),
        ("sqlite:", "names no file"),
    ],
)
def test_an_address_of_no_file_is_said(address: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_source(parse(address))
