"""SQLite files as sources, beside a program that has them open, and tables of sqlite-vec read without it."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cems_workbench.errors import InputError
from cems_workbench.sources.address import parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.source import EngineQuery, Source, TakenMemory
from workbench_stores.sqlite import vec0
from workbench_stores.sqlite.file import DatabaseFile, Reader
from workbench_stores.sqlite.schema import Schema, read_schema
from workbench_stores.sqlite.vec0 import distances

VECTORS = np.random.default_rng(0).standard_normal((20, 8)).astype(np.float32)


@contextmanager
def opened(path: Path, options: str = "", mapping: Mapping[str, Any] | None = None) -> Iterator[Source]:
    with closing(open_source(parse(f"sqlite:{path}{options}"), mapping)) as source:
        yield source


def taken(source: Source) -> dict[str, TakenMemory]:
    with source.snapshot() as snapshot:
        return {each.memory.id: each for batch in snapshot.batches(lambda ids, _: ids) for each in batch.taken}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "my notes.db"
    with closing(sqlite3.connect(path)) as owner:
        owner.execute("PRAGMA journal_mode=WAL")
        owner.execute(
            "CREATE TABLE notes (uid TEXT PRIMARY KEY, body TEXT, meta BLOB, user_id TEXT, created_at TEXT, color TEXT, emb BLOB)"
        )
        owner.execute("CREATE VIRTUAL TABLE notes_fts USING fts5(body, content='notes', content_rowid='rowid')")
        for i, vector in enumerate(VECTORS):
            meta = json.dumps({"title": f"Title {i}", "tags": ["a", f"t{i}"], "own": i}).encode()
            row = (
                f"n{i}",
                f"note {i} about deploy",
                meta,
                "ann" if i % 2 else "bob",
                "2026-01-02T03:04:05Z",
                "red",
                vector.tobytes(),
            )
            owner.execute("INSERT INTO notes VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        owner.execute("INSERT INTO notes_fts(notes_fts) VALUES ('rebuild')")
        owner.commit()
    return path


def test_a_table_is_guessed_with_its_fields(notes: Path) -> None:
    with opened(notes) as source:
        info, found = source.probe(), taken(source)
    assert (info.memories, info.vectors, info.dimension, info.lists) == (20, 20, 8, ("vector", "fts5"))
    memory = found["n3"].memory
    assert (memory.title, memory.tags, memory.author, memory.content) == (
        "Title 3",
        ("a", "t3"),
        "ann",
        "note 3 about deploy",
    )
    assert memory.created_at is not None and memory.created_at.year == 2026
    assert np.array_equal(found["n3"].vector, VECTORS[3])
    assert "not read: meta.own, color; a mapping can take them" in info.notes


def test_live_lists_are_those_of_the_file(notes: Path) -> None:
    with opened(notes, "?user=ann") as source:
        vector, words = source.search(EngineQuery("deploy 5", VECTORS[4], {"vector": 5, "fts5": 3}))
    cosines = VECTORS @ VECTORS[4] / np.linalg.norm(VECTORS, axis=1) / np.linalg.norm(VECTORS[4])
    best = [f"n{i}" for i in np.argsort(-cosines) if i % 2][:5]
    assert [hit.memory_id for hit in vector.hits] == best
    assert words.hits[0].memory_id == "n5"


def test_ids_of_bytes_and_texts_that_are_no_utf8_are_read(tmp_path: Path) -> None:
    path = tmp_path / "bytes.db"
    with closing(sqlite3.connect(path)) as owner:
        owner.execute("CREATE TABLE notes (id BLOB PRIMARY KEY, content TEXT, embedding BLOB) WITHOUT ROWID")
        for i, vector in enumerate(VECTORS):
            row = (bytes([250, i]), b"key \xff" if i == 3 else b"note", vector.tobytes())
            owner.execute("INSERT INTO notes VALUES (?, CAST(? AS TEXT), ?)", row)
        owner.commit()
    with opened(path) as source:
        found = taken(source)
        (vector_list,) = source.search(EngineQuery("", VECTORS[4], {"vector": 1}))
    assert (len(found), found["fa03"].memory.content) == (20, "key \ufffd")
    assert [hit.memory_id for hit in vector_list.hits] == ["fa04"]


def test_an_fts5_table_that_has_the_texts_itself_is_read(tmp_path: Path) -> None:
    path = tmp_path / "fts.db"
    with closing(sqlite3.connect(path)) as owner:
        owner.execute('CREATE VIRTUAL TABLE "my notes" USING fts5(key UNINDEXED, body)')
        owner.executemany('INSERT INTO "my notes" VALUES (?, ?)', [(f"n{i}", f"note {i}") for i in range(20)])
        owner.commit()
    with opened(path) as source:
        assert taken(source)["n3"].memory.content == "note 3"
        (words,) = source.search(EngineQuery("3", VECTORS[0], {"fts5": 3}))
    assert [hit.memory_id for hit in words.hits] == ["n3"]


def test_an_fts5_table_is_joined_by_the_column_that_it_names(tmp_path: Path) -> None:
    path = tmp_path / "numbered.db"
    with closing(sqlite3.connect(path)) as owner:
        owner.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT, number INTEGER UNIQUE)")
        owner.execute("CREATE VIRTUAL TABLE notes_fts USING fts5(body, content='notes', content_rowid='number')")
        owner.executemany("INSERT INTO notes VALUES (?, ?, ?)", [(i, f"note {i}", 20 - i) for i in range(20)])
        owner.execute("INSERT INTO notes_fts(notes_fts) VALUES ('rebuild')")
        owner.commit()
    with opened(path) as source:
        (words,) = source.search(EngineQuery("3", VECTORS[0], {"fts5": 3}))
    assert [hit.memory_id for hit in words.hits] == ["3"]


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "storage.sqlite"
    with closing(sqlite3.connect(path)) as owner:
        owner.execute("CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
    with pytest.raises(InputError, match=r"part of a folder of qdrant; connect to that folder"), opened(path):
        pass


def test_a_second_snapshot_gives_only_what_changed(notes: Path) -> None:
    with opened(notes) as source:
        before = {name: each.marker for name, each in taken(source).items()}
        with closing(sqlite3.connect(notes)) as owner:
            owner.execute("UPDATE notes SET body = 'new' WHERE uid = 'n1'")
            owner.execute("DELETE FROM notes WHERE uid = 'n2'")
            owner.commit()
        after = {name: each.marker for name, each in taken(source).items()}
    assert before.keys() - after.keys() == {"n2"}
    assert {name for name in after if after[name] != before[name]} == {"n1"}


def test_nothing_is_left_beside_the_file(notes: Path) -> None:
    with opened(notes) as source:
        source.probe()
        taken(source)
    assert [each.name for each in notes.parent.iterdir()] == [notes.name]


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"table": "notes", "id": "uid"}, "text missing: table, id and text are required"),
        ({"table": "note", "id": "uid", "text": "body"}, "has no 'note'; it has notes"),
        ({"table": "notes", "id": "uid", "text": "boddy"}, "notes has no column 'boddy' (did you mean body?)"),
        ({"table": "notes", "id": "uid", "text": "body", "distance": "L3"}, "must be one of cosine, l2, ip"),
        ({"table": "notes", "id": "uid", "text": "body", "vector": "color"}, "has no vectors that are read"),
        ({"table": "notes", "id": "uid", "text": "body", "titel": "uid"}, "did you mean title?"),
    ],
)
def test_a_mapping_that_does_not_fit_is_named(notes: Path, mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match="mapping") as raised, opened(notes, mapping=mapping):
        pass
    assert message in str(raised.value)


def test_a_mapping_of_fields_corrects_what_is_guessed(notes: Path) -> None:
    with opened(notes, mapping={"category": "color", "session": "meta.own"}) as source:
        found = taken(source)["n3"].memory
    assert (found.category, found.session, found.title, found.author) == ("red", "3", "Title 3", "ann")


def test_several_tables_are_named(notes: Path) -> None:
    with closing(sqlite3.connect(notes)) as owner:
        owner.execute("CREATE TABLE facts (id TEXT PRIMARY KEY, content TEXT, emb BLOB) WITHOUT ROWID")
        owner.execute("INSERT INTO facts VALUES ('f', 'a fact', ?)", (VECTORS[0].tobytes(),))
        owner.commit()
    with (
        pytest.raises(InputError, match=r"several tables that could be memories \(facts, notes\); \?table=NAME"),
        opened(notes),
    ):
        pass
    with opened(notes, "?table=facts") as source:
        assert taken(source)["f"].memory.content == "a fact"


@pytest.mark.parametrize(("encoding", "dimension"), [("<f8", None), ("<f2", None), ("i1", 8), ("json", None)])
def test_other_encodings_are_recognised(tmp_path: Path, encoding: str, dimension: int | None) -> None:
    path = tmp_path / "v.db"
    rows = np.round(VECTORS * 20) if encoding == "i1" else VECTORS
    with closing(sqlite3.connect(path)) as owner:
        owner.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, content TEXT, embedding)")
        for i, row in enumerate(rows):
            value = json.dumps(row.tolist()) if encoding == "json" else row.astype(encoding).tobytes()
            owner.execute("INSERT INTO notes VALUES (?, 'text', ?)", (i, value))
        owner.commit()
    mapping = {"table": "notes", "id": "id", "text": "content", "vector": "embedding", "dimension": dimension}
    with opened(path, mapping={name: value for name, value in mapping.items() if value is not None}) as source:
        assert source.probe().dimension == 8
        assert taken(source)["3"].vector == pytest.approx(rows[3], abs=2e-3)


def test_a_text_that_is_no_utf_8_deep_in_a_stream_loses_no_row() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (a TEXT)")
        connection.executemany("INSERT INTO t VALUES (?)", [(str(place),) for place in range(9_000)])
        connection.execute("UPDATE t SET a = CAST(x'61ff62' AS TEXT) WHERE rowid = 7777")
        reader = Reader(connection, "t", 60.0, stepped=False)
        found = [row[0] for page in reader.pages("SELECT a FROM t WHERE 1", None) for row in page]
    expected = [str(place) for place in range(9_000)]
    assert found == [*expected[:7776], "a\ufffdb", *expected[7777:]]


RECORDED = Path(__file__).parents[2] / "recordings" / "sqlite_vec"
ANSWERS: dict[str, Any] = json.loads((RECORDED / "answers.json").read_text("utf-8"))
MAPPING = {"table": "notes", "id": "id", "text": "body", "author": "user_id"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vec0") / "vec0.db"
    path.write_bytes(gzip.decompress((RECORDED / "vec0.db.gz").read_bytes()))
    return path


@pytest.fixture
def reader(path: Path) -> Iterator[Reader]:
    with closing(DatabaseFile(parse(f"sqlite:{path}"), 10)) as file, file.reading() as reader:
        yield reader


def table(reader: Reader, name: str) -> vec0.Vec0Table:
    found = read_schema(reader).table(name)
    assert found is not None
    return vec0.parsed(found)


def test_the_module_is_not_there(path: Path) -> None:
    with closing(sqlite3.connect(path)) as plain, pytest.raises(sqlite3.OperationalError, match="no such module"):
        plain.execute("SELECT * FROM vec_l2")


@pytest.mark.parametrize("name", ["vec_l2", "vec_cosine"])
def test_the_live_list_is_sqlite_vecs(path: Path, name: str) -> None:
    with closing(open_source(parse(f"sqlite:{path}"), {**MAPPING, "vector": name})) as source:
        assert source.probe().distance == name.removeprefix("vec_")
        for query, recorded in zip(ANSWERS["queries"], ANSWERS["hits"][name], strict=True):
            (found,) = source.search(EngineQuery("", np.array(query, np.float32), {"vector": 10}))
            far = [(1 - hit.score) if name == "vec_cosine" else -hit.score for hit in found.hits]
            assert far == pytest.approx([distance for _, distance in recorded], abs=1e-6)
            assert in_order(found.hits, far) == in_order(recorded, [distance for _, distance in recorded])


def in_order(hits: Any, far: list[float]) -> list[set[str]]:
    """Ids in order, those of the same distance together; without the last ones, which may be a part of those."""
    groups: list[tuple[float, set[str]]] = []
    for hit, distance in zip(hits, far, strict=True):
        name = str(hit[0] if isinstance(hit, list) else hit.memory_id)
        if not groups or distance - groups[-1][0] > 1e-6:
            groups.append((distance, set()))
        groups[-1][1].add(name)
    return [names for _, names in groups[:-1]]


@pytest.mark.parametrize(("name", "user"), [("vec_keyed", None), ("vec_keyed bob", "bob"), ("vec_int8", None)])
def test_chunks_give_the_distances_of_keys_partitions_and_int8(reader: Reader, name: str, user: str | None) -> None:
    own = table(reader, name.partition(" ")[0])
    column = own.vector()
    assert column.form is not None and column.form.distance == "cosine"
    parts = list(vec0.chunks(reader, own, column, {"user_id": user} if user else None))
    rowids = np.concatenate([rowids for rowids, _ in parts])
    names = vec0.ids_of(reader, own, [int(each) for each in rowids])
    for query, recorded in zip(ANSWERS["queries"], ANSWERS["hits"][name], strict=True):
        asked = np.array(query, np.float32)
        if name == "vec_int8":
            asked = (asked * 40).clip(-127, 127).astype("i1").astype(np.float32)
        far = np.concatenate([distances(vectors, asked, "cosine") for _, vectors in parts])
        best = [i for i in np.argsort(far, kind="stable") if not np.isnan(far[i])][:10]
        assert [far[i] for i in best] == pytest.approx([distance for _, distance in recorded], abs=1e-6)
        assert {names[int(rowids[i])] for i in best[:9]} <= {str(each) for each, _ in recorded}


def test_vectors_are_found_by_rowid_and_by_key(reader: Reader) -> None:
    for name, recorded in ANSWERS["vectors"].items():
        own = table(reader, name)
        rowids = vec0.rowids_of(reader, own, list(recorded)) if own.text_key else {each: int(each) for each in recorded}
        found = vec0.Vec0Vectors(reader, own, own.vector()).take(list(rowids.values()))
        assert len(found) == len(recorded)
        for key, vector in recorded.items():
            assert found[rowids[key]].tolist() == vector


def test_a_metric_that_is_not_read_is_said(path: Path) -> None:
    with closing(open_source(parse(f"sqlite:{path}"), {**MAPPING, "vector": "vec_l1"})) as source:
        info = source.probe()
        with source.snapshot() as snapshot:
            (batch,) = snapshot.batches(lambda ids, _: ids)
    assert info.lists == () and any("(l1)" in each for each in info.missing)
    assert sum(each.vector is not None for each in batch.taken) == info.vectors == 37


def test_bits_are_numbers(reader: Reader) -> None:
    own = table(reader, "vec_bit")
    ((_, first), *_) = vec0.chunks(reader, own, own.vector())
    assert first.shape[1] == 16 and set(np.unique(first)) == {0.0, 1.0}


def test_a_schema_without_vec0_has_no_such_table() -> None:
    assert vec0.tables(Schema({})) == []
