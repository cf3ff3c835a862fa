"""Tables of sqlite-vec, as sqlite-vec 0.1.9 wrote and answered them (tests/recordings/sqlite_vec/make.py), read without it."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cems_workbench.sources.address import parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.source import EngineQuery
from workbench_stores.sqlite import vec0
from workbench_stores.sqlite.file import DatabaseFile, Reader
from workbench_stores.sqlite.schema import Schema, read_schema
from workbench_stores.sqlite.vec0 import distances

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
    rowids = np.concatenate([part.rowids for part in parts])
    names = vec0.ids_of(reader, own, [int(each) for each in rowids])
    for query, recorded in zip(ANSWERS["queries"], ANSWERS["hits"][name], strict=True):
        asked = np.array(query, np.float32)
        if name == "vec_int8":
            asked = (asked * 40).clip(-127, 127).astype("i1").astype(np.float32)
        far = np.concatenate([distances(part.vectors, asked, "cosine") for part in parts])
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
    (first, *_) = vec0.chunks(reader, own, own.vector())
    assert first.vectors.shape[1] == 16 and set(np.unique(first.vectors)) == {0.0, 1.0}


def test_a_schema_without_vec0_has_no_such_table() -> None:
    assert vec0.tables(Schema({})) == []
