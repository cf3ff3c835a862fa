"""A snapshot in pages: ids with markers and sizes first, then of the memories that are new or changed the rows, in bounded batches.

A table is gone through by blocks of its file, in the order in which its rows lie, so that no page costs more than another and nothing is
kept but the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cems_workbench.sources.postgres.connection import Reader
from cems_workbench.sources.source import Batch, Changed, RowProblem, TakenMemory, Vector, bounded

if TYPE_CHECKING:
    from psycopg import sql

PAGE_BLOCKS = 1_024
"""Blocks of 8 KiB that are asked for at once: some thousands of rows with vectors in them."""


@dataclass(frozen=True, slots=True)
class Page:
    """Memories that are there, row by row: id, marker, and about how many bytes they are."""

    ids: Sequence[str]
    markers: Sequence[str]
    sizes: Sequence[int]
    problems: Sequence[RowProblem] = ()


Rows = Callable[[Sequence[str], Sequence[str]], tuple[list[TakenMemory], list[RowProblem]]]
"""Given ids and their markers, the memories that are there under these ids."""


def batches(pages: Iterator[Page], changed: Changed, read: Rows) -> Iterator[Batch]:
    """Every id of the pages as seen, and those that `changed` asks for, read within the bounds of a batch."""
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
            yield Batch(page.ids[seen:])


def block_ranges(reader: Reader, table: int) -> Iterator[dict[str, str]]:
    """The file of a table in stretches, as parameters `from` and `to` (exclusive) that its rows' ctid lies between."""
    (blocks,) = reader.row(
        "SELECT pg_relation_size(%(table)s::oid::regclass) / current_setting('block_size')::bigint", {"table": table}
    )
    for start in range(0, blocks, PAGE_BLOCKS):
        yield {"from": f"({start},0)", "to": f"({start + PAGE_BLOCKS},0)"}


def vectors(sent: Sequence[bytes | None], kind: str) -> list[Vector | None]:
    """Vectors out of pgvector's binary form: int16 dimension, int16 0, then big-endian float4 (`vector`) or float2 (`halfvec`).

    Each is a row of one matrix where all are equally long, which is far quicker than one by one.
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
    """A vector as pgvector reads it, to the last bit."""
    return "[" + ",".join(f"{value:.9g}" for value in vector.tolist()) + "]"


def python_time(column: sql.Composable) -> sql.Composed:
    """A time as an expression that is absent where Python has none for it, as for infinity."""
    from psycopg import sql

    return sql.SQL("CASE WHEN {0} BETWEEN '0001-01-02' AND '9999-12-30' THEN {0} END").format(column)


def to_utc(value: datetime | None) -> datetime | None:
    """In UTC; one of a column without a time zone has it."""
    return None if value is None else value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def non_blank(value: str | None) -> str | None:
    """Text, unless it is blank."""
    return None if not value or value.isspace() else value


def wrong_dimension(vector: Vector, dimension: int | None) -> str:
    """Why a vector is left out."""
    return f"its vector has {len(vector)} numbers, most there have {dimension}; it was left out"
