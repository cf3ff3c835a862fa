"""Rows of a SQLite table give the same memories, problems and markers column by column and row by row, and the same rows of a store."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import fields
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cems_workbench.records import TakenColumns, TakenMemory, TextRule
from cems_workbench.sources.address import parse
from cems_workbench.sources.source import Batch
from cems_workbench.store.sources import ImportRows
from workbench_stores.sqlite.file import Reader
from workbench_stores.sqlite.schema import read_schema
from workbench_stores.sqlite.source import SqliteSnapshot, SqliteSource
from workbench_stores.sqlite.table import mapped

DIMENSION = 3
COLUMNS = (
    "uid", "body", "title", "heading", "user_id", "created_at", "valid_from", "valid_until", "tags", "priority", "pinned", "is_active",
    "source", "access_count", "is_deleted", "embedding",
)  # fmt: skip
VECTOR = st.lists(st.floats(-2, 2, width=32), min_size=DIMENSION, max_size=DIMENSION).map(
    lambda values: np.array(values, "<f4").tobytes()
)
TEXT = st.sampled_from(
    ["", " ", "a", "Straße", "a, b", "\tx\n", "x" * 50, "project:p", '["a", "b"]', "[", "1", "2026-01-02"]
)
ODD = st.one_of(
    st.none(), TEXT, st.integers(-5, 2**40), st.floats(allow_nan=False, allow_infinity=False), st.binary(max_size=4),
    st.sampled_from([0.0, -0.0, 1, 1.0, "true", "false", "9999-12-31", "2026-01-02T03:04:05Z", "high"]),
)  # fmt: skip
USUAL: dict[str, st.SearchStrategy[Any]] = {
    "title": st.one_of(st.none(), TEXT),
    "heading": st.one_of(st.none(), TEXT),
    "user_id": st.one_of(st.sampled_from(["ann", "bob", " "]), st.none()),
    "created_at": st.sampled_from([None, "2026-01-02T03:04:05Z", "2025-12-31 23:59:59+02:00"]),
    "source": st.sampled_from([None, "project:p", "https://x"]),
}
ODD_BY_NAME = {
    "uid": st.one_of(st.none(), st.sampled_from(["", " ", "a\x01b", "é", 7, "m0"])),
    "body": ODD,
    "embedding": st.one_of(
        st.none(), st.binary(max_size=16), st.just(np.array([1, np.nan, np.inf], "<f4").tobytes()),
        st.just(np.full(3, 3e38, "<f4").tobytes()),
    ),
}  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Rows that are plain, perhaps with odd values in a few columns."""
    odd = draw(st.sets(st.sampled_from(COLUMNS), max_size=3))
    rows = []
    for place in range(draw(st.integers(1, 6))):
        usual = USUAL | {"uid": st.just(f"m{place}"), "body": st.just(f"text {place}"), "embedding": VECTOR}
        values = []
        for name in COLUMNS:
            use_odd = name in odd and draw(st.booleans())
            values.append(draw(ODD_BY_NAME.get(name, ODD) if use_odd else usual.get(name, st.none())))
        rows.append(tuple(values))
    return rows


def read(rows: list[tuple[Any, ...]], plain: bool) -> Batch:
    """The only batch, with or without the way by column."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(f"CREATE TABLE notes ({', '.join(COLUMNS)})")
        insert = f"INSERT INTO notes VALUES ({', '.join('?' * len(COLUMNS))})"
        connection.execute(insert, ("m", "text", *[None] * (len(COLUMNS) - 3), np.ones(DIMENSION, "<f4").tobytes()))
        reader = Reader(connection, "notes", 60.0, stepped=False)
        mapping = {"table": "notes", "id": "uid", "text": "body", "vector": "embedding", "dimension": DIMENSION}
        source = SqliteSource(_File(), lambda each: mapped(each, read_schema(each), mapping))  # type: ignore[arg-type]
        snapshot = SqliteSnapshot(reader, source._read(reader))
        connection.execute("DELETE FROM notes")
        connection.executemany(insert, rows)
        if not plain:
            snapshot.__dict__["_plain"] = None
        (batch,) = snapshot.batches(lambda ids, _: ids)
        return batch


class _File:
    address = parse("sqlite:/notes.db")
    plain = "sqlite:/notes.db"


def plainly(taken: TakenMemory) -> Any:
    vector = None if taken.vector is None else taken.vector.tobytes()
    return (repr(taken.memory), taken.marker, vector, taken.chunks, dict(taken.embedded))


COLUMNWISE: Counter[bool] = Counter()


@settings(max_examples=150, deadline=None)
@given(tables())
def _same(rows: list[tuple[Any, ...]]) -> None:
    fast, slow = read(rows, plain=True), read(rows, plain=False)
    COLUMNWISE[isinstance(fast.taken, TakenColumns)] += 1
    assert list(fast.seen) == list(slow.seen)
    assert list(fast.problems) == list(slow.problems)
    assert [plainly(each) for each in fast.taken] == [plainly(each) for each in slow.taken]
    for rule in (TextRule(), TextRule(title=False), TextRule(fields=("author",)), TextRule(first_tokens=2)):
        made, expected = ImportRows.of(fast.taken, rule), ImportRows.of(slow.taken, rule)
        for each in fields(ImportRows):
            found, wanted = getattr(made, each.name), getattr(expected, each.name)
            same = (found == wanted).all() if isinstance(found, np.ndarray) else found == wanted
            assert same, each.name


def test_rows_by_column_are_the_same_as_row_by_row() -> None:
    COLUMNWISE.clear()
    _same()
    assert COLUMNWISE[True] > 10 and COLUMNWISE[False] > 10
