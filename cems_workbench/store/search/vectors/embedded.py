"""The `embedded` table: the text hash, labels and vector hash of every vector in a collection.

Collections are identified by their Chroma id, so that a recreated collection is not mistaken for the lost one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cems_workbench.models.protocol import Float32
from cems_workbench.store.filter import Filter
from cems_workbench.store.rows import staged
from cems_workbench.store.search.entries import (
    AMONG,
    LIVE_ENTRIES,
    LIVE_ENTRIES_AMONG,
    WHOLE_MEMORY,
    Entry,
    EntryId,
    entry_id,
)

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Pending:
    """Entries to embed (longest text first), to relabel (project or scope changed), and to remove."""

    embed: list[EntryId]
    relabel: list[EntryId]
    remove: list[EntryId]


def pending(cursor: duckdb.DuckDBPyConnection, collection: str, among: Sequence[str] | None = None) -> Pending:
    """Compare the live entries with those of `collection` (its Chroma id); all, or those of the memories `among`.

    Longest texts first: batches of similar length need the least padding in the encoder.
    """
    parameters: dict[str, object] = {"collection": collection} | ({} if among is None else {"among": list(among)})
    live, of = (LIVE_ENTRIES, "") if among is None else (LIVE_ENTRIES_AMONG, f"AND memory_id {AMONG}")
    recorded = f"SELECT * FROM embedded WHERE collection = $collection {of}"
    rows = cursor.execute(
        "SELECT CASE WHEN m.memory_id IS NULL THEN 'remove' WHEN e.text_sha IS DISTINCT FROM m.text_sha THEN 'embed' ELSE 'relabel' END, "
        "coalesce(m.memory_id, e.memory_id) AS memory_id, coalesce(m.seq, e.seq) AS seq "
        f"FROM ({live}) AS m FULL JOIN ({recorded}) AS e ON e.memory_id = m.memory_id AND e.seq = m.seq "
        "WHERE m.memory_id IS NULL OR e.text_sha IS DISTINCT FROM m.text_sha OR e.project IS DISTINCT FROM m.project OR e.scope <> m.scope "
        "ORDER BY m.size DESC, memory_id, seq",
        parameters,
    ).fetchall()
    result = Pending([], [], [])
    for action, memory_id, seq in rows:
        getattr(result, action).append(entry_id(memory_id, seq))
    return result


def sample_hashes(cursor: duckdb.DuckDBPyConnection, collection: str, limit: int) -> dict[EntryId, int | None]:
    """As `recorded_hashes`, of `limit` entries spread over the collection, always the same ones."""
    rows = cursor.execute(
        "SELECT memory_id, seq, vector_hash FROM embedded WHERE collection = ? ORDER BY hash(memory_id, seq), memory_id LIMIT ?",
        [collection, limit],
    ).fetchall()
    return {entry_id(memory_id, seq): known for memory_id, seq, known in rows}


def recorded_hashes(cursor: duckdb.DuckDBPyConnection, collection: str) -> dict[EntryId, int | None]:
    """The recorded entries of `collection` with their vector hashes; None for a hash that an earlier version did not record."""
    rows = cursor.execute(
        "SELECT memory_id, seq, vector_hash FROM embedded WHERE collection = ? ORDER BY memory_id, seq", [collection]
    ).fetchall()
    return {entry_id(memory_id, seq): known for memory_id, seq, known in rows}


def record_hashes(cursor: duckdb.DuckDBPyConnection, collection: str, hashes: Mapping[EntryId, int]) -> None:
    """Update the recorded hashes of existing vectors."""
    import pyarrow as pa

    table = pa.table({**_columns(list(hashes)), "vector_hash": pa.array(list(hashes.values()), pa.int64())})
    with staged(cursor, "staged_hashes", table):
        cursor.execute(
            "UPDATE embedded SET vector_hash = s.vector_hash FROM staged_hashes AS s "
            "WHERE embedded.collection = ? AND embedded.memory_id = s.memory_id AND embedded.seq = s.seq",
            [collection],
        )


def vector_hash(vector: Float32) -> int:
    """A 64-bit hash of a vector as Chroma returns it, which is bit-identical on every read."""
    # Signed, as DuckDB's BIGINT.
    return int.from_bytes(hashlib.blake2b(vector.tobytes(), digest_size=8).digest(), "little", signed=True)


def recorded_entries(cursor: duckdb.DuckDBPyConnection, collection: str) -> set[EntryId]:
    """The recorded entries of `collection`."""
    rows = cursor.execute("SELECT memory_id, seq FROM embedded WHERE collection = ?", [collection]).fetchall()
    return {entry_id(*row) for row in rows}


def passing(cursor: duckdb.DuckDBPyConnection, collection: str, where: Filter) -> frozenset[EntryId]:
    """The entries in `collection` that pass a filter, by the labels they were embedded with."""
    condition, parameters = where.sql()
    rows = cursor.execute(
        f"SELECT memory_id, seq FROM embedded WHERE collection = ? AND {condition}", [collection, *parameters]
    ).fetchall()
    return frozenset(entry_id(*row) for row in rows)


def labels(cursor: duckdb.DuckDBPyConnection, collection: str, ids: Sequence[str] | None = None) -> pa.Table:
    """memory_id, seq, project and scope of the entries in `collection`, of all or of these memories, sorted by id and seq."""
    among = "" if ids is None else "AND memory_id IN (SELECT unnest(?))"
    return cursor.sql(
        f"SELECT memory_id, seq, project, scope FROM embedded WHERE collection = ? {among} ORDER BY memory_id, seq",
        params=[collection, *([] if ids is None else [list(ids)])],
    ).to_arrow_table()


def chunks_of(cursor: duckdb.DuckDBPyConnection, collection: str) -> dict[str, list[int]]:
    """The chunk numbers in `collection` by memory id; memories embedded whole are absent."""
    rows = cursor.execute(
        "SELECT memory_id, list(seq ORDER BY seq) FROM embedded WHERE collection = ? AND seq <> ? GROUP BY memory_id",
        [collection, WHOLE_MEMORY],
    ).fetchall()
    return dict(rows)


def count(cursor: duckdb.DuckDBPyConnection, collection: str) -> int:
    """The recorded number of vectors in `collection`."""
    return int(cursor.execute("SELECT count(*) FROM embedded WHERE collection = ?", [collection]).fetchall()[0][0])


def record(
    cursor: duckdb.DuckDBPyConnection, collection: str, entries: Sequence[Entry], hashes: Mapping[EntryId, int]
) -> None:
    """Record that these entries' vectors, with these hashes, and labels are in Chroma."""
    import pyarrow as pa

    table = pa.table(
        {
            **_columns([entry.id for entry in entries]),
            "text_sha": [entry.text_sha for entry in entries],
            "project": pa.array([entry.project for entry in entries], pa.string()),
            "scope": [entry.scope for entry in entries],
            "vector_hash": pa.array([hashes.get(entry.id) for entry in entries], pa.int64()),
        }
    )
    with staged(cursor, "staged_embedded", table):
        # The table has no primary key, so existing rows are updated first.
        match, missing = "e.collection = $collection AND e.memory_id = s.memory_id AND e.seq = s.seq", ""
        existing = f"SELECT 1 FROM embedded AS e SEMI JOIN staged_embedded AS s ON {match} LIMIT 1"
        parameters = {"collection": collection}
        if cursor.execute(existing, parameters).fetchall():
            replaced = cursor.execute(
                "UPDATE embedded AS e SET text_sha = s.text_sha, project = s.project, scope = s.scope, vector_hash = s.vector_hash "
                f"FROM staged_embedded AS s WHERE {match}",
                parameters,
            ).fetchall()[0][0]
            if replaced == len(entries):
                return
            missing = f"ANTI JOIN embedded AS e ON {match}"
        cursor.execute(
            "INSERT INTO embedded (collection, memory_id, seq, text_sha, project, scope, vector_hash) "
            f"SELECT $collection, memory_id, seq, text_sha, project, scope, vector_hash FROM staged_embedded AS s {missing}",
            parameters,
        )


def remove(cursor: duckdb.DuckDBPyConnection, collection: str, entry_ids: Sequence[EntryId]) -> None:
    """Record that these vectors were removed from Chroma."""
    import pyarrow as pa

    with staged(cursor, "staged_places", pa.table(_columns(entry_ids))):
        cursor.execute(
            "DELETE FROM embedded WHERE collection = ? AND (memory_id, seq) IN (SELECT memory_id, seq FROM staged_places)",
            [collection],
        )


def _columns(entry_ids: Sequence[EntryId]) -> dict[str, pa.Array]:
    import pyarrow as pa

    return {
        "memory_id": pa.array([memory_id for memory_id, _ in entry_ids], pa.string()),
        "seq": pa.array([WHOLE_MEMORY if seq is None else seq for _, seq in entry_ids], pa.int64()),
    }


def remove_collection(cursor: duckdb.DuckDBPyConnection, collection: str) -> None:
    """Record that a whole collection was removed."""
    cursor.execute("DELETE FROM embedded WHERE collection = ?", [collection])
