"""Snapshots in pages: first ids with markers and sizes, then the rows of new and changed memories in bounded batches.

A table is read by blocks of its file, in physical order: every page costs the same, and only one page is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from cems_workbench.sources.source import Batch, Changed, RowProblem, TakenMemory, Vector, bounded
from workbench_stores.postgres.connection import Reader

PAGE_BLOCKS = 1_024
"""Blocks of 8 KiB per page: some thousands of rows with vectors."""


@dataclass(frozen=True, slots=True)
class Page:
    """Ids, markers and approximate sizes in bytes of existing memories, row by row."""

    ids: Sequence[str]
    markers: Sequence[str]
    sizes: Sequence[int]
    problems: Sequence[RowProblem] = ()


Rows = Callable[[Sequence[str], Sequence[str]], tuple[list[TakenMemory], list[RowProblem]]]
"""(ids, markers) -> the memories with these ids, and problems."""


def batches(pages: Iterator[Page], changed: Changed, read: Rows) -> Iterator[Batch]:
    """Every id of the pages as seen, and the memories that `changed` selects, in batches of bounded size."""
    for page in pages:
        if page.problems:
            yield Batch(problems=page.problems)
        wanted = set(changed(page.ids, page.markers))
        places = [place for place, id in enumerate(page.ids) if id in wanted]
        seen = 0
        for part in bounded([page.sizes[place] for place in places]):
            chosen = places[part]
            taken, problems = read([page.ids[i] for i in chosen], [page.markers[i] for i in chosen])
            yield Batch(page.ids[seen : chosen[-1] + 1], taken, problems)
            seen = chosen[-1] + 1
        if seen < len(page.ids):
            # Unchanged rows after the last changed one were seen too.
            yield Batch(page.ids[seen:])


def block_ranges(reader: Reader, table: int) -> Iterator[dict[str, str]]:
    """Ranges of ctid that cover the file of a table, as parameters `from` and `to` (exclusive)."""
    (blocks,) = reader.row(
        "SELECT pg_relation_size(%(table)s::oid::regclass) / current_setting('block_size')::bigint", {"table": table}
    )
    for start in range(0, blocks, PAGE_BLOCKS):
        yield {"from": f"({start},0)", "to": f"({start + PAGE_BLOCKS},0)"}


def vectors(sent: Sequence[bytes | None], kind: str) -> list[Vector | None]:
    """Vectors from pgvector's binary form: int16 dimension, int16 0, then big-endian float4 (`vector`) or float2 (`halfvec`).

    Vectors of equal length are rows of one matrix, which is much faster than one by one.
    """
    number = np.dtype(">f4" if kind == "vector" else ">f2")
    there = [value for value in sent if value is not None]
    if len({len(value) for value in there}) == 1 and (width := (len(there[0]) - 4) // number.itemsize):
        raw = np.frombuffer(b"".join(there), np.uint8).reshape(len(there), -1)[:, 4:]
        matrix: NDArray[np.float32] = np.ascontiguousarray(raw).view(number).reshape(-1, width).astype(np.float32)
        rows = iter(matrix)
    else:
        rows = iter([np.frombuffer(value, number, offset=4).astype(np.float32) for value in there])
    return [None if value is None else next(rows) for value in sent]


def vector_literal(vector: Vector) -> str:
    """The vector as a literal of pgvector, without loss."""
    # Nine digits identify every single-precision number.
    return "[" + ",".join(f"{value:.9g}" for value in vector.tolist()) + "]"


def python_time(column: sql.Composable) -> sql.Composed:
    """An expression for a time; NULL if Python has no such time, as for infinity."""
    return sql.SQL("CASE WHEN {0} BETWEEN '0001-01-02' AND '9999-12-30' THEN {0} END").format(column)


def to_utc(value: datetime | None) -> datetime | None:
    """The time in UTC, which is assumed for a column without a time zone."""
    return None if value is None else value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def non_blank(value: str | None) -> str | None:
    """The text, None if it is blank."""
    return None if not value or value.isspace() else value


def wrong_dimension(vector: Vector, dimension: int | None) -> str:
    """The reason for leaving out a vector of another dimension."""
    return f"its vector has {len(vector)} numbers, most there have {dimension}; it was left out"
