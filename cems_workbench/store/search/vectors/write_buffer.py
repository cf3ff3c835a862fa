"""Write buffer of a large collection: recent changes stay in DuckDB until they are flushed into Chroma's HNSW graph.

An insertion into a graph of a million takes 3 to 8 ms, and every thousandth change Chroma persists the graph, which takes a second.
So up to MAX_BUFFERED changes stay in the table `waiting_vectors`, and every search compares all of them, in a millisecond at most.
A `BufferedCollection` has the interface of a Chroma collection; a buffered row overrides Chroma's row with the same key.

`flush` deletes a row in the transaction that records Chroma's vector. A crash before that leaves both, which changes no search, and
the row is flushed again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from cems_workbench.models.protocol import Float32
from cems_workbench.store.database import Database
from cems_workbench.store.rows import staged
from cems_workbench.store.search.entries import parse_key
from cems_workbench.store.search.vectors import chroma, embedded

if TYPE_CHECKING:
    import duckdb
    from chromadb.api.models.Collection import Collection

MIN_ROWS = 2_000
"""A smaller collection is not buffered."""
FLUSH_THRESHOLD, MAX_BUFFERED = 512, 4_096
"""Changes at which a flush starts (after it other processes must reload the graph), and the most that are buffered."""
FLUSH_BATCH_SIZE, UPSERT_BATCH_SIZE = 512, 16
"""Changes per transaction, and per upsert, which blocks every other thread for 0.1 s."""
Labels = dict[str, str | None]
Rows = dict[str, tuple[Float32 | None, Labels]]
"""Vector and labels by key; the vector is None for a deletion."""


class BufferedCollection:
    """A collection with its buffer applied: the rows buffered when it was opened, and those written through it."""

    def __init__(self, database: Database, collection: Collection) -> None:
        self.id, self.name = collection.id, collection.name
        self.buffering = False
        """Whether writes are buffered; otherwise they go to Chroma directly."""
        self._database = database
        self._collection = collection
        self._rows: Rows = {}
        self._overridden_keys: Set[str] | None = None
        self._unit_rows: tuple[list[str], Float32] | None = None
        with database.reading() as cursor:
            self.reload(cursor)

    def reload(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Reload the buffer in the transaction of `cursor`."""
        self._rows = _read(cursor, str(self.id))
        self._overridden_keys = self._unit_rows = None

    def prepare(self, changes: int, rows: int) -> None:
        """Buffer the next `changes` if the collection has many `rows` and the buffer has room; otherwise flush it and write directly."""
        self.buffering = rows > MIN_ROWS and len(self._rows) + changes <= MAX_BUFFERED
        if not self.buffering:
            self._flush_all()

    def count(self) -> int:
        """As Chroma's."""
        present = sum(vector is not None for vector, _ in self._rows.values())
        return self._collection.count() - len(self._overridden) + present

    def get(self, **arguments: Any) -> Any:
        """As Chroma's, of ids and embeddings."""
        ids, include = arguments.get("ids"), arguments.get("include", [])
        # With a limit any vector will do, such as for the dimension.
        if not self._rows or "limit" in arguments:
            return self._collection.get(**arguments)
        if ids is None:
            response: Any = self._collection.get(**arguments)
            buffered = list(self._rows)
        else:
            buffered = [name for name in ids if name in self._rows]
            others = [name for name in ids if name not in self._rows]
            response = self._collection.get(ids=others, include=include) if others else {"ids": [], "embeddings": []}
        names = response["ids"]
        remaining = [i for i, name in enumerate(names) if name not in self._rows]
        buffered = [name for name in buffered if self._rows[name][0] is not None]
        result: dict[str, Any] = {"ids": [*(names[i] for i in remaining), *buffered], "embeddings": None}
        if "embeddings" in include:
            parts = [np.asarray(response["embeddings"], np.float32)[remaining]] if remaining else []
            buffered_vectors = (
                [np.stack([vector for name in buffered if (vector := self._rows[name][0]) is not None])]
                if buffered
                else []
            )
            result["embeddings"] = np.concatenate([*parts, *buffered_vectors]) if parts or buffered_vectors else []
        return result

    def query(self, **arguments: Any) -> Any:
        """As Chroma's, of one vector: ids and cosine distances. Every buffered vector is compared."""
        if not self._rows:
            return self._collection.query(**arguments)
        limit, where = arguments["n_results"], arguments.get("where")
        # At worst all overridden rows rank first, and are dropped below.
        response: Any = self._collection.query(**{**arguments, "n_results": limit + len(self._overridden)})
        hits = [
            (distance, name)
            for name, distance in zip(response["ids"][0], response["distances"][0], strict=True)
            if name not in self._rows
        ]
        names, units = self._unit_vectors
        if names:
            query = np.asarray(arguments["query_embeddings"], np.float32)[0]
            distances = 1 - units @ (query / max(float(np.linalg.norm(query)), 1e-12))
            nearest = np.argsort(distances, kind="stable").tolist()  # ties by key: rows are sorted by it
            passing = (i for i in nearest if _passes(self._rows[names[i]][1], where))
            hits += [(float(distances[i]), names[i]) for i in islice(passing, limit)]
        # By distance, then by key, so that ties are stable.
        hits = sorted(hits)[:limit]
        return {"ids": [[name for _, name in hits]], "distances": [[distance for distance, _ in hits]]}

    def upsert(self, **arguments: Any) -> None:
        """As Chroma's."""
        if self.buffering:
            vectors = np.asarray(arguments["embeddings"], np.float32)
            self._buffer(dict(zip(arguments["ids"], zip(vectors, arguments["metadatas"], strict=True), strict=True)))
        else:
            self._flush_all()
            self._collection.upsert(**arguments)

    def update(self, **arguments: Any) -> None:
        """As Chroma's, of labels."""
        if self.buffering:
            vectors = dict(chroma.read_vectors(self._as_collection, arguments["ids"]))
            labels = dict(zip(arguments["ids"], arguments["metadatas"], strict=True))
            self._buffer({name: (vector, labels[name]) for name, vector in vectors.items()})
        else:
            self._flush_all()
            self._collection.update(**arguments)

    def delete(self, **arguments: Any) -> None:
        """As Chroma's, by ids."""
        if self.buffering:
            self._buffer({name: (None, {}) for name in arguments["ids"]})
        else:
            self._flush_all()
            self._collection.delete(**arguments)

    @property
    def _as_collection(self) -> Collection:
        this: Any = self
        collection: Collection = this
        return collection

    @property
    def _overridden(self) -> Set[str]:
        """Buffered keys that exist in Chroma, to be replaced or deleted there."""
        if self._overridden_keys is None:
            self._overridden_keys = _present_in_chroma(self._collection, list(self._rows))
        return self._overridden_keys

    @property
    def _unit_vectors(self) -> tuple[list[str], Float32]:
        """The keys of the buffered vectors, and the vectors normalised."""
        if self._unit_rows is None:
            present = {name: vector for name, (vector, _) in self._rows.items() if vector is not None}
            matrix = np.stack(list(present.values())) if present else np.empty((0, 0), np.float32)
            lengths = np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
            self._unit_rows = list(present), np.asarray(matrix / lengths, np.float32)
        return self._unit_rows

    def _buffer(self, rows: Rows) -> None:
        """Buffer these rows durably, except deletions of keys that Chroma does not have."""
        gone = [name for name, (vector, _) in rows.items() if vector is None]
        # A deletion of such a key would be flushed for nothing.
        unknown = set(gone) - _present_in_chroma(self._collection, gone)
        buffered = {name: row for name, row in rows.items() if name not in unknown}
        with self._database.transaction() as cursor:
            _delete(cursor, str(self.id), list(rows))
            _write(cursor, str(self.id), buffered)
        others = {name: row for name, row in self._rows.items() if name not in rows}
        self._rows, self._overridden_keys, self._unit_rows = others | buffered, None, None

    def _flush_all(self) -> None:
        while self._rows:
            flush(self._database, self._collection)
            with self._database.reading() as cursor:
                self.reload(cursor)


def flush(
    database: Database,
    collection: Collection,
    seconds: float = math.inf,
    chroma_lock: AbstractContextManager[object] | None = None,
) -> int:
    """Flush up to FLUSH_BATCH_SIZE changes into Chroma's own `collection`, for about `seconds`; returns how many. Raises StoreError.

    All writes happen inside `chroma_lock`, so that other processes reload the graph only once; the database is not used inside it.
    """
    name, until = str(collection.id), time.monotonic() + seconds
    with database.reading() as cursor:
        rows = _read(cursor, name, FLUSH_BATCH_SIZE)
    if not rows:
        return 0
    gone = [key for key, (vector, _) in rows.items() if vector is None]
    present = {key: vector for key, (vector, _) in rows.items() if vector is not None}
    written: list[str] = []
    with chroma_lock or nullcontext(), chroma.store_errors(chroma.WRITE_FAILED):
        if gone:
            collection.delete(ids=gone)
        for start in range(0, len(present), UPSERT_BATCH_SIZE):
            batch = list(present)[start : start + UPSERT_BATCH_SIZE]
            labels: list[Any] = [rows[key][1] for key in batch]
            collection.upsert(ids=batch, embeddings=np.stack([present[key] for key in batch]), metadatas=labels)
            written += batch
            # The rest stays buffered, which changes no search.
            if time.monotonic() > until:
                break
        # Chroma may round vectors, so the recorded hash is that of the vector it returns.
        hashes = {
            parse_key(key): embedded.vector_hash(vector) for key, vector in chroma.read_vectors(collection, written)
        }
    with database.transaction() as cursor:
        # One transaction: a crash before it leaves the rows buffered, and they are flushed again.
        embedded.record_hashes(cursor, name, hashes)
        _delete(cursor, name, [*gone, *written])
    return len(gone) + len(written)


def count(cursor: duckdb.DuckDBPyConnection, collection: str) -> int:
    """Number of buffered changes of a collection (its Chroma id)."""
    found = cursor.execute("SELECT count(*) FROM waiting_vectors WHERE collection = ?", [collection]).fetchall()
    return int(found[0][0])


def clear(cursor: duckdb.DuckDBPyConnection, collection: str) -> None:
    """Delete the buffer of a removed collection."""
    cursor.execute("DELETE FROM waiting_vectors WHERE collection = ?", [collection])


def _read(cursor: duckdb.DuckDBPyConnection, collection: str, limit: int | None = None) -> Rows:
    limited = "" if limit is None else f"LIMIT {limit}"
    rows = cursor.execute(
        f"SELECT key, vector, project, scope FROM waiting_vectors WHERE collection = ? ORDER BY key {limited}",
        [collection],
    ).fetchall()
    return {
        key: (None if vector is None else np.frombuffer(vector, np.float32), {"project": project, "scope": scope})
        for key, vector, project, scope in rows
    }


def _write(cursor: duckdb.DuckDBPyConnection, collection: str, rows: Rows) -> None:
    import pyarrow as pa

    if not rows:
        return
    table = pa.table(
        {
            "key": pa.array(list(rows), pa.string()),
            "vector": pa.array([None if each is None else each.tobytes() for each, _ in rows.values()], pa.binary()),
            "project": pa.array([labels.get("project") for _, labels in rows.values()], pa.string()),
            "scope": pa.array([labels.get("scope") for _, labels in rows.values()], pa.string()),
        }
    )
    with staged(cursor, "staged_waiting", table):
        cursor.execute(
            "INSERT INTO waiting_vectors (collection, key, vector, project, scope) "
            "SELECT ?, key, vector, project, scope FROM staged_waiting",
            [collection],
        )


def _delete(cursor: duckdb.DuckDBPyConnection, collection: str, keys: Sequence[str]) -> None:
    cursor.execute(
        "DELETE FROM waiting_vectors WHERE collection = ? AND key IN (SELECT unnest(?))", [collection, list(keys)]
    )


def _present_in_chroma(collection: Collection, keys: Sequence[str]) -> set[str]:
    """Those of `keys` that exist in Chroma."""
    found: set[str] = set()
    for start in range(0, len(keys), chroma.BATCH_SIZE):
        found.update(collection.get(ids=list(keys[start : start + chroma.BATCH_SIZE]), include=[])["ids"])
    return found


def _passes(labels: Labels, where: Any) -> bool:
    """Whether these labels pass a Chroma filter (`Filter.chroma`)."""
    if not where:
        return True
    return all(labels.get(name) == value for term in where.get("$and", [where]) for name, value in term.items())
