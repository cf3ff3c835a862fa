"""The `embedded` table: which texts and labels the vectors of a collection were made of, and so what it lacks.

A collection is named by its Chroma id, so that one which was lost and made anew is not taken for the old one.
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
    """Entries whose text must be embedded (longest first), whose project or scope changed, and which must leave."""

    embed: list[EntryId]
    relabel: list[EntryId]
    remove: list[EntryId]


def pending(cursor: duckdb.DuckDBPyConnection, collection: str, among: Sequence[str] | None = None) -> Pending:
    """Compare the entries there should be with what `collection` (its Chroma id) holds; all of them, or those of the memories `among`.

    The longest texts come first: a step then has texts of like length, which pads least in the encoder.
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
    """As `held_hashes`, of `most` entries from all over the collection, always the same ones."""
    rows = cursor.execute(
        "SELECT memory_id, seq, vector_hash FROM embedded WHERE collection = ? ORDER BY hash(memory_id, seq), memory_id LIMIT ?",
        [collection, limit],
    ).fetchall()
    return {entry_id(memory_id, seq): known for memory_id, seq, known in rows}


def recorded_hashes(cursor: duckdb.DuckDBPyConnection, collection: str) -> dict[EntryId, int | None]:
    """The entries `collection` is said to hold with what `vector_hash` gave of their vectors; None where an earlier version wrote them."""
    rows = cursor.execute(
        "SELECT memory_id, seq, vector_hash FROM embedded WHERE collection = ? ORDER BY memory_id, seq", [collection]
    ).fetchall()
    return {entry_id(memory_id, seq): known for memory_id, seq, known in rows}


def record_hashes(cursor: duckdb.DuckDBPyConnection, collection: str, hashes: Mapping[EntryId, int]) -> None:
    """Write down the hashes of vectors that an earlier version wrote."""
    import pyarrow as pa

    table = pa.table({**_columns(list(hashes)), "vector_hash": pa.array(list(hashes.values()), pa.int64())})
    with staged(cursor, "staged_hashes", table):
        cursor.execute(
            "UPDATE embedded SET vector_hash = s.vector_hash FROM staged_hashes AS s "
            "WHERE embedded.collection = ? AND embedded.memory_id = s.memory_id AND embedded.seq = s.seq",
            [collection],
        )


def vector_hash(vector: Float32) -> int:
    """64 bits of a vector as Chroma gives it back, which is to the bit what it gave when it was written."""
    return int.from_bytes(hashlib.blake2b(vector.tobytes(), digest_size=8).digest(), "little", signed=True)


def recorded_entries(cursor: duckdb.DuckDBPyConnection, collection: str) -> set[EntryId]:
    """The entries `collection` is said to hold."""
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
    """memory_id, seq, project and scope of the entries in `collection`, of all or of these memories, by id and number."""
    among = "" if ids is None else "AND memory_id IN (SELECT unnest(?))"
    return cursor.sql(
        f"SELECT memory_id, seq, project, scope FROM embedded WHERE collection = ? {among} ORDER BY memory_id, seq",
        params=[collection, *([] if ids is None else [list(ids)])],
    ).to_arrow_table()


def chunks_of(cursor: duckdb.DuckDBPyConnection, collection: str) -> dict[str, list[int]]:
    """By memory id the numbers of the chunks that `collection` holds of it; memories that were embedded whole are absent."""
    rows = cursor.execute(
        "SELECT memory_id, list(seq ORDER BY seq) FROM embedded WHERE collection = ? AND seq <> ? GROUP BY memory_id",
        [collection, WHOLE_MEMORY],
    ).fetchall()
    return dict(rows)


def count(cursor: duckdb.DuckDBPyConnection, collection: str) -> int:
    """How many vectors `collection` is said to hold."""
    return int(cursor.execute("SELECT count(*) FROM embedded WHERE collection = ?", [collection]).fetchall()[0][0])


def record(
    cursor: duckdb.DuckDBPyConnection, collection: str, entries: Sequence[Entry], hashes: Mapping[EntryId, int]
) -> None:
    """Note that the vectors, of which these are the hashes, and labels of these entries are in Chroma."""
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
        # The table has no key; only where some are known is there anything to replace.
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
    """Note that these vectors are gone from Chroma."""
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
    """Note that a collection is gone as a whole."""
    cursor.execute("DELETE FROM embedded WHERE collection = ?", [collection])
