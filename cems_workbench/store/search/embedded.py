"""The `embedded` table: which texts and labels the vectors of a collection were made of, and so what it lacks.

A collection is named by its Chroma id, so that one which was lost and made anew is not taken for the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cems_workbench.records import Memory, indexed_text
from cems_workbench.store.filter import Filter
from cems_workbench.store.rows import staged, text_sha

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class Pending:
    """Ids whose text must be embedded (longest first), whose project or scope changed, and which must leave."""

    embed: list[str]
    relabel: list[str]
    remove: list[str]


def pending(cursor: duckdb.DuckDBPyConnection, collection: str) -> Pending:
    """Compare the live memories with what `collection` (its Chroma id) holds.

    The longest texts come first: a step then has texts of like length, which pads least in the encoder.
    """
    held = "SELECT * FROM embedded WHERE collection = ?"
    live = "SELECT * FROM memories WHERE deleted_at IS NULL"
    embed = cursor.execute(
        f"SELECT m.id FROM ({live}) AS m LEFT JOIN ({held}) AS e ON e.memory_id = m.id "
        "WHERE e.text_sha IS DISTINCT FROM m.text_sha "
        "ORDER BY length(m.content) + coalesce(length(m.title), 0) DESC, m.id",
        [collection],
    ).fetchall()
    relabel = cursor.execute(
        f"SELECT m.id FROM ({live}) AS m JOIN ({held}) AS e ON e.memory_id = m.id AND e.text_sha = m.text_sha "
        "WHERE e.project IS DISTINCT FROM m.project OR e.scope <> m.scope ORDER BY m.id",
        [collection],
    ).fetchall()
    remove = cursor.execute(
        f"SELECT e.memory_id FROM ({held}) AS e LEFT JOIN ({live}) AS m ON e.memory_id = m.id "
        "WHERE m.id IS NULL ORDER BY e.memory_id",
        [collection],
    ).fetchall()
    return Pending([row[0] for row in embed], [row[0] for row in relabel], [row[0] for row in remove])


def held_ids(cursor: duckdb.DuckDBPyConnection, collection: str) -> set[str]:
    """The ids `collection` is said to hold."""
    rows = cursor.execute("SELECT memory_id FROM embedded WHERE collection = ?", [collection]).fetchall()
    return {row[0] for row in rows}


def passing(cursor: duckdb.DuckDBPyConnection, collection: str, where: Filter) -> frozenset[str]:
    """The ids in `collection` that pass a filter, by the labels they were embedded with."""
    condition, parameters = where.sql()
    rows = cursor.execute(
        f"SELECT memory_id FROM embedded WHERE collection = ? AND {condition}", [collection, *parameters]
    ).fetchall()
    return frozenset(row[0] for row in rows)


def count(cursor: duckdb.DuckDBPyConnection, collection: str) -> int:
    """How many vectors `collection` is said to hold."""
    return int(cursor.execute("SELECT count(*) FROM embedded WHERE collection = ?", [collection]).fetchall()[0][0])


def record(cursor: duckdb.DuckDBPyConnection, collection: str, memories: Sequence[Memory]) -> None:
    """Note that the vectors and labels of these memories are in Chroma."""
    import pyarrow as pa

    table = pa.table(
        {
            "memory_id": [memory.id for memory in memories],
            "text_sha": [text_sha(indexed_text(memory)) for memory in memories],
            "project": pa.array([memory.project for memory in memories], pa.string()),
            "scope": [memory.scope for memory in memories],
        }
    )
    with staged(cursor, "staged_embedded", table):
        cursor.execute(
            "INSERT OR REPLACE INTO embedded SELECT ?, memory_id, text_sha, project, scope FROM staged_embedded",
            [collection],
        )


def forget(cursor: duckdb.DuckDBPyConnection, collection: str, ids: Sequence[str]) -> None:
    """Note that these vectors are gone from Chroma."""
    cursor.execute(
        "DELETE FROM embedded WHERE collection = ? AND memory_id IN (SELECT unnest(?))", [collection, list(ids)]
    )


def forget_all(cursor: duckdb.DuckDBPyConnection, collection: str) -> None:
    """Note that a collection is gone as a whole."""
    cursor.execute("DELETE FROM embedded WHERE collection = ?", [collection])
