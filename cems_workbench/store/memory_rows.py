"""The `memories` table: upsert, bulk reads, soft delete.

A deleted memory keeps its row (`deleted_at` is set) and is absent from every read here. Importing it again updates the
row and leaves it deleted, so that a periodic import does not bring back what a user removed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cems_workbench.records import Memory, indexed_text
from cems_workbench.store.filter import Filter
from cems_workbench.store.reports import RowCounts

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

FIELDS = (
    "id", "content", "title", "category", "project", "session", "author", "tags", "priority", "pinned", "importance",
    "created_at", "last_accessed", "access_count", "relevant_count", "noise_count", "scope", "source_ref",
)  # fmt: skip
COLUMNS = (*FIELDS, "text_sha")
PORTION = 2_000
_TIMES = ("created_at", "last_accessed")
_DIFFERS = " OR ".join(f"m.{name} IS DISTINCT FROM s.{name}" for name in COLUMNS if name != "id")


def text_sha(text: str) -> str:
    """SHA-256 of the exact text, by which embeddings and scores know whether it changed."""
    return hashlib.sha256(text.encode()).hexdigest()


def to_naive(moment: datetime | None) -> datetime | None:
    """An aware time as the store keeps it: UTC without a zone."""
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None)


def to_aware(moment: datetime | None) -> datetime | None:
    """A stored time as the records have it."""
    return None if moment is None else moment.replace(tzinfo=UTC)


def staging(memories: Sequence[Memory]) -> pa.Table:
    """The rows as an Arrow table with COLUMNS; the way into DuckDB that does not go row by row."""
    import pyarrow as pa

    text, number, moment = pa.large_string(), pa.int64(), pa.timestamp("us")
    kinds = {"priority": pa.float64(), "pinned": pa.bool_(), **dict.fromkeys(_TIMES, moment)}
    kinds |= dict.fromkeys(("access_count", "relevant_count", "noise_count"), number)
    values: dict[str, list[Any]] = {name: [getattr(memory, name) for memory in memories] for name in FIELDS}
    values["tags"] = [json.dumps(tags, ensure_ascii=False) for tags in values["tags"]]
    for name in _TIMES:
        values[name] = [to_naive(value) for value in values[name]]
    values["text_sha"] = [text_sha(indexed_text(memory)) for memory in memories]
    return pa.table({name: pa.array(values[name], kinds.get(name, text)) for name in COLUMNS})


def upsert(cursor: duckdb.DuckDBPyConnection, memories: Sequence[Memory]) -> RowCounts:
    """Insert new rows and update those that differ; ids must be distinct within `memories`."""
    cursor.register("staged_memories", staging(memories))
    try:
        updated = cursor.execute(
            f"UPDATE memories AS m SET {', '.join(f'{name} = s.{name}' for name in COLUMNS if name != 'id')} "
            f"FROM staged_memories AS s WHERE m.id = s.id AND ({_DIFFERS})"
        ).fetchall()[0][0]
        added = cursor.execute(
            f"INSERT INTO memories ({', '.join(COLUMNS)}) SELECT {', '.join(COLUMNS)} FROM staged_memories "
            "WHERE id NOT IN (SELECT id FROM memories)"
        ).fetchall()[0][0]
    finally:
        cursor.unregister("staged_memories")
    return RowCounts(added, updated, len(memories) - added - updated)


def known_ids(cursor: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> set[str]:
    """Those of `ids` that have a row, deleted ones included."""
    rows = cursor.execute("SELECT id FROM memories WHERE id IN (SELECT unnest(?))", [list(ids)]).fetchall()
    return {row[0] for row in rows}


def deleted_ids(cursor: duckdb.DuckDBPyConnection) -> set[str]:
    """The ids of all soft-deleted memories."""
    return {row[0] for row in cursor.execute("SELECT id FROM memories WHERE deleted_at IS NOT NULL").fetchall()}


def read(cursor: duckdb.DuckDBPyConnection, ids: Sequence[str] | None = None) -> dict[str, Memory]:
    """The live memories with these ids (all when None), by id; in the order of `ids`, by id when None.

    Two steps for ids: finding row numbers reads the id column alone, and fetching by row number skips the blocks of
    text in between, which a single query would decompress (24 ms against 8 for 300 of 100,000).
    """
    columns = ", ".join(FIELDS)
    if ids is None:
        rows = cursor.execute(f"SELECT {columns} FROM memories WHERE deleted_at IS NULL ORDER BY id").fetchall()
        return {row[0]: record(row) for row in rows}
    wanted = list(dict.fromkeys(ids))
    found = cursor.execute("SELECT rowid FROM memories WHERE id IN (SELECT unnest(?))", [wanted]).fetchall()
    rows = cursor.execute(
        f"SELECT {columns} FROM memories WHERE rowid IN (SELECT unnest(?)) AND deleted_at IS NULL",
        [[row[0] for row in found]],
    ).fetchall()
    by_id = {row[0]: record(row) for row in rows}
    return {name: by_id[name] for name in wanted if name in by_id}


def each(cursor: duckdb.DuckDBPyConnection, project: str | None = None) -> Iterator[Memory]:
    """The live memories by id, of one project or all, read in portions so that a store of any size passes through.

    The order is found on the ids alone: one query for whole rows in order would have all their texts in memory first.
    """
    cursor.execute(
        "SELECT rowid FROM memories WHERE deleted_at IS NULL AND coalesce(project = ?, ? IS NULL) ORDER BY id",
        [project, project],
    )
    places = cursor.fetchnumpy()["rowid"]
    for start in range(0, len(places), PORTION):
        rows = cursor.execute(
            f"SELECT {', '.join(FIELDS)} FROM memories WHERE rowid IN (SELECT unnest(?)) ORDER BY id",
            [places[start : start + PORTION].tolist()],
        ).fetchall()
        yield from map(record, rows)


def record(row: tuple[Any, ...]) -> Memory:
    """A row of FIELDS as a record."""
    (id_, content, title, category, project, session, author, tags, priority, pinned, importance,
     created_at, last_accessed, access_count, relevant_count, noise_count, scope, source_ref) = row  # fmt: skip
    return Memory(
        id_, content, title, category, project, session, author,
        () if tags == "[]" else tuple(json.loads(tags)), priority, pinned, importance,
        to_aware(created_at), to_aware(last_accessed), access_count, relevant_count, noise_count, scope, source_ref,
    )  # fmt: skip


def count(cursor: duckdb.DuckDBPyConnection) -> int:
    """Number of live memories."""
    return int(cursor.execute("SELECT count(*) FROM memories WHERE deleted_at IS NULL").fetchall()[0][0])


def projects(cursor: duckdb.DuckDBPyConnection) -> list[tuple[str | None, int]]:
    """Projects (None: untagged) with their number of live memories, most first, ties by name."""
    return cursor.execute(
        "SELECT project, count(*) AS n FROM memories WHERE deleted_at IS NULL "
        "GROUP BY project ORDER BY n DESC, project NULLS LAST"
    ).fetchall()


def newest_by_access(cursor: duckdb.DuckDBPyConnection, size: int, where: Filter) -> list[str]:
    """Ids by last access (creation when never accessed) newest first, undated last, ties by id; at most `size`."""
    condition, parameters = where.sql()
    rows = cursor.execute(
        f"SELECT id FROM memories WHERE deleted_at IS NULL AND {condition} "
        "ORDER BY coalesce(last_accessed, created_at) DESC NULLS LAST, id LIMIT ?",
        [*parameters, size],
    ).fetchall()
    return [row[0] for row in rows]


def set_deleted(cursor: duckdb.DuckDBPyConnection, memory_id: str, when: datetime | None) -> bool:
    """Mark a memory deleted at `when`, or live again with None; False when that changes nothing."""
    state = "IS NULL" if when is not None else "IS NOT NULL"
    changed = cursor.execute(
        f"UPDATE memories SET deleted_at = ? WHERE id = ? AND deleted_at {state}", [to_naive(when), memory_id]
    ).fetchall()[0][0]
    return bool(changed)


def documents(cursor: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, str, str | None, str]]:
    """(id, indexed text, project, scope) of the live memories by id, read in portions."""
    cursor.execute("SELECT id, content, title, project, scope FROM memories WHERE deleted_at IS NULL ORDER BY id")
    while rows := cursor.fetchmany(2_000):
        for id_, content, title, project, scope in rows:
            yield id_, indexed_text(Memory(id_, content, title)), project, scope
