"""The `embedded` table: the text hash, labels and vector hash of every vector in a collection.

A collection is the store's own vectors of an embedder, by their record's id, or a copy of them in Chroma, by Chroma's id, so that a
recreated one is not mistaken for the lost one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cems_workbench.models.protocol import Float32
from cems_workbench.store.rows import column, scalar, staged, table_of
from cems_workbench.store.search import chroma_records
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


@dataclass(frozen=True, slots=True)
class Pending:
    """Entries to embed (longest text first), to relabel (project or scope changed), and to remove."""

    embed: list[EntryId]
    relabel: list[EntryId]
    remove: list[EntryId]


def pending(cursor: duckdb.DuckDBPyConnection, collection: str, among: Sequence[str] | None = None) -> Pending:
    """Compare the live entries with those of `collection`; all, or those of the memories `among`. Longest texts first,
    since batches of similar length need the least padding in the encoder; a memory's chunks together, since its vectors
    are written together."""
    live, of = (LIVE_ENTRIES, "") if among is None else (LIVE_ENTRIES_AMONG, f"AND memory_id {AMONG}")
    return _compare(cursor, live, f"SELECT * FROM embedded WHERE collection = $there {of}", among, there=collection)


_OTHERS = ", ".join(f"coalesce(CAST(m.{name} AS VARCHAR), chr(30))" for name in ("text_sha", *chroma_records.FIELDS))
_AS_WRITTEN = f"""
    SELECT e.memory_id, e.seq, md5(concat_ws(chr(31), e.vector_hash, e.text_sha, {_OTHERS})) AS text_sha, e.project, e.scope, 0 AS size
    FROM embedded AS e JOIN memories AS m ON m.id = e.memory_id WHERE e.collection = $own
"""
"""The entries of a collection as a copy in Chroma has them: `text_sha` is of text, vector and metadata."""
_LIVE = f"AND (e.memory_id, e.seq) IN (SELECT memory_id, seq FROM ({LIVE_ENTRIES}))"


def difference(cursor: duckdb.DuckDBPyConnection, collection: str, copy_name: str) -> Pending:
    """What a copy of `collection` lacks, by memory."""
    there = "SELECT * FROM embedded WHERE collection = $there"
    return _compare(cursor, f"{_AS_WRITTEN} {_LIVE}", there, None, own=collection, there=copy_name)


def live_entries(cursor: duckdb.DuckDBPyConnection, collection: str) -> set[EntryId]:
    """The entries of a collection that are still in the store."""
    rows = cursor.execute(f"SELECT memory_id, seq FROM ({_AS_WRITTEN} {_LIVE})", {"own": collection}).fetchall()
    return {entry_id(*row) for row in rows}


@dataclass(frozen=True, slots=True)
class Record:
    """An entry as a copy has it: its text, the hash of all of it, and its metadata without absent values."""

    id: EntryId
    text: str
    text_sha: str
    project: str | None
    scope: str
    metadata: dict[str, Any]


def as_written(
    cursor: duckdb.DuckDBPyConnection, collection: str, entry_ids: Sequence[EntryId]
) -> dict[EntryId, Record]:
    """The records of these entries of a collection; those that are not live are absent."""
    with staged(cursor, "staged_places", table_of(_PLACE, [(key, _seq(seq)) for key, seq in entry_ids])):
        rows = cursor.execute(
            f"{_AS_WRITTEN} AND (memory_id, seq) IN (SELECT memory_id, seq FROM staged_places)", {"own": collection}
        ).fetchall()
    labels = {entry_id(memory_id, seq): (sha, project, scope) for memory_id, seq, sha, project, scope, _ in rows}
    read = chroma_records.read(cursor, list(labels), chroma_records.FIELDS)
    return {own: Record(own, text, *labels[own], metadata) for own, text, metadata in read}


def void(cursor: duckdb.DuckDBPyConnection, collection: str, entry_ids: Sequence[EntryId]) -> None:
    """Record that these are about to be written or removed, so that nobody knows what is there."""
    with staged(cursor, "staged_places", table_of(_PLACE, [(key, _seq(seq)) for key, seq in entry_ids])):
        cursor.execute(
            "UPDATE embedded SET text_sha = '' WHERE collection = ? AND (memory_id, seq) IN (SELECT memory_id, seq FROM staged_places)",
            [collection],
        )
        cursor.execute(
            "INSERT INTO embedded (collection, memory_id, seq, text_sha, scope, vector_hash) SELECT $name, memory_id, seq, '', '', 0 "
            "FROM staged_places ANTI JOIN (SELECT memory_id, seq FROM embedded WHERE collection = $name) USING (memory_id, seq)",
            {"name": collection},
        )


def voided(cursor: duckdb.DuckDBPyConnection, collection: str) -> list[EntryId]:
    """What was about to be written or removed."""
    rows = cursor.execute("SELECT memory_id, seq FROM embedded WHERE collection = ? AND text_sha = ''", [collection])
    return [entry_id(*row) for row in rows.fetchall()]


def _compare(
    cursor: duckdb.DuckDBPyConnection, wanted: str, recorded: str, among: Sequence[str] | None, **names: str
) -> Pending:
    rows = cursor.execute(
        "SELECT CASE WHEN m.memory_id IS NULL THEN 'remove' WHEN e.text_sha IS DISTINCT FROM m.text_sha THEN 'embed' ELSE 'relabel' END, "
        "coalesce(m.memory_id, e.memory_id) AS memory_id, coalesce(m.seq, e.seq) AS seq "
        f"FROM ({wanted}) AS m FULL JOIN ({recorded}) AS e ON e.memory_id = m.memory_id AND e.seq = m.seq "
        "WHERE m.memory_id IS NULL OR e.text_sha IS DISTINCT FROM m.text_sha OR e.project IS DISTINCT FROM m.project OR e.scope <> m.scope "
        "ORDER BY max(m.size) OVER (PARTITION BY coalesce(m.memory_id, e.memory_id)) DESC, memory_id, seq",
        {**names, **({} if among is None else {"among": list(among)})},
    ).fetchall()
    result = Pending([], [], [])
    for action, memory_id, seq in rows:
        getattr(result, action).append(entry_id(memory_id, seq))
    return result


@dataclass(frozen=True, slots=True)
class Recorded:
    text_sha: str
    vector_hash: int
    project: str | None
    scope: str


def recorded(cursor: duckdb.DuckDBPyConnection, collection: str, ids: Sequence[str]) -> dict[EntryId, Recorded]:
    """The records of these memories' vectors in `collection`."""
    rows = cursor.execute(
        "SELECT memory_id, seq, text_sha, vector_hash, project, scope FROM embedded "
        "WHERE collection = ? AND memory_id IN (SELECT unnest(?))",
        [collection, list(ids)],
    ).fetchall()
    return {entry_id(memory_id, seq): Recorded(*values) for memory_id, seq, *values in rows}


def memories_among(cursor: duckdb.DuckDBPyConnection, collection: str, ids: Sequence[str]) -> list[str]:
    """Those of these memories that have a vector in `collection`."""
    among = "SELECT DISTINCT memory_id FROM embedded WHERE collection = ? AND memory_id IN (SELECT unnest(?))"
    return column(cursor, among, [collection, list(ids)])


def set_hashes(cursor: duckdb.DuckDBPyConnection, collection: str, hashes: Mapping[EntryId, int]) -> None:
    """Replace the recorded hashes of existing vectors."""
    rows = [(key, _seq(seq), each) for (key, seq), each in hashes.items()]
    with staged(cursor, "staged_hashes", table_of(f"{_PLACE}, vector_hash int64", rows)):
        cursor.execute(
            "UPDATE embedded SET vector_hash = s.vector_hash FROM staged_hashes AS s "
            "WHERE embedded.collection = ? AND embedded.memory_id = s.memory_id AND embedded.seq = s.seq",
            [collection],
        )


def hashes_of(entry_ids: Sequence[EntryId], vectors: Float32) -> dict[EntryId, int]:
    return {each: vector_hash(vector) for each, vector in zip(entry_ids, vectors, strict=True)}


def vector_hash(vector: Float32) -> int:
    """A 64-bit hash of a vector's bytes."""
    # Signed, as DuckDB's BIGINT.
    return int.from_bytes(hashlib.blake2b(vector.tobytes(), digest_size=8).digest(), "little", signed=True)


def sketches(vectors: Float32) -> NDArray[np.int64]:
    """Two projections of each vector as one number: Chroma rounds vectors, so that no hash of bytes proves what it returns."""
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    # Of no random generator, whose stream another numpy may change: these numbers are stored.
    fixed = np.sin(np.outer(np.arange(1.0, vectors.shape[1] + 1), (12.9898, 78.233)))
    pairs = np.ascontiguousarray(vectors.astype(np.float64) / lengths @ fixed, np.float32)
    return pairs.view(np.int64)[:, 0]


def alike(sketch: int, other: int) -> bool:
    """Whether two sketches may be of the same vector, rounded."""
    both = np.array([sketch, other], np.int64).view(np.float32)
    return bool(np.abs(both[:2] - both[2:]).max() <= SKETCH_TOLERANCE)


SKETCH_TOLERANCE = 1e-5


def recorded_entries(cursor: duckdb.DuckDBPyConnection, collection: str) -> set[EntryId]:
    rows = cursor.execute("SELECT memory_id, seq FROM embedded WHERE collection = ?", [collection]).fetchall()
    return {entry_id(*row) for row in rows}


def count(cursor: duckdb.DuckDBPyConnection, collection: str) -> int:
    return int(cursor.execute("SELECT count(*) FROM embedded WHERE collection = ?", [collection]).fetchall()[0][0])


def record(
    cursor: duckdb.DuckDBPyConnection, collection: str, entries: Sequence[Entry | Record], hashes: Mapping[EntryId, int]
) -> None:
    """Record that these entries' vectors, with these hashes, and labels are in `collection`."""
    columns = f"{_PLACE}, text_sha string, project string, scope string, vector_hash int64"
    rows = [(one.id[0], _seq(one.id[1]), one.text_sha, one.project, one.scope, hashes[one.id]) for one in entries]
    with staged(cursor, "staged_embedded", table_of(columns, rows)):
        # The table has no primary key, so existing rows are updated first.
        match, missing = "e.collection = $collection AND e.memory_id = s.memory_id AND e.seq = s.seq", ""
        existing = f"SELECT 1 FROM embedded AS e SEMI JOIN staged_embedded AS s ON {match} LIMIT 1"
        parameters = {"collection": collection}
        if cursor.execute(existing, parameters).fetchall():
            replaced = scalar(
                cursor,
                "UPDATE embedded AS e SET text_sha = s.text_sha, project = s.project, scope = s.scope, vector_hash = s.vector_hash "
                f"FROM staged_embedded AS s WHERE {match}",
                parameters,
            )
            if replaced == len(entries):
                return
            missing = f"ANTI JOIN embedded AS e ON {match}"
        cursor.execute(
            "INSERT INTO embedded (collection, memory_id, seq, text_sha, project, scope, vector_hash) "
            f"SELECT $collection, memory_id, seq, text_sha, project, scope, vector_hash FROM staged_embedded AS s {missing}",
            parameters,
        )


def remove(cursor: duckdb.DuckDBPyConnection, collection: str, entry_ids: Sequence[EntryId]) -> None:
    with staged(cursor, "staged_places", table_of(_PLACE, [(key, _seq(seq)) for key, seq in entry_ids])):
        cursor.execute(
            "DELETE FROM embedded WHERE collection = ? AND (memory_id, seq) IN (SELECT memory_id, seq FROM staged_places)",
            [collection],
        )


_PLACE = "memory_id string, seq int64"


def _seq(seq: int | None) -> int:
    return WHOLE_MEMORY if seq is None else seq


def remove_collection(cursor: duckdb.DuckDBPyConnection, collection: str) -> None:
    cursor.execute("DELETE FROM embedded WHERE collection = ?", [collection])
