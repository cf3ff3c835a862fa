"""Schema migrations: the numbered .sql files, applied in order from the database's version on.

A new database starts at 0 and runs them all, so that old and new stores have the same tables. What SQL cannot do (an id, a digest) is a
Python step after the file with that number. A step knows the tables of its number, and must never change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np

from cems_workbench.errors import StoreError
from cems_workbench.records import DEFAULT_SCALE
from cems_workbench.store.meta import CONTENT_VERSION, SCHEMA, STORE_ID, read_meta, write_meta

if TYPE_CHECKING:
    from importlib.abc import Traversable

    import duckdb


def migrations() -> dict[int, Traversable]:
    """The SQL file of each schema version, by number, in order."""
    scripts = (file for file in files(__package__).iterdir() if file.name.endswith(".sql"))
    return {int(file.name[:4]): file for file in sorted(scripts, key=lambda file: file.name)}


def prepare(cursor: duckdb.DuckDBPyConnection, where: str) -> None:
    """Create the tables in a new database, migrate an older one, or check the schema of a current one.

    Runs inside the caller's transaction. Raises StoreError for a database of another program or a newer schema; `where` names it.
    """
    tables = {row[0] for row in cursor.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if tables and "workbench_meta" not in tables:
        raise StoreError(f"{where} is a DuckDB database, but not one of CEMS Workbench")
    scripts = migrations()
    latest = max(scripts)
    version = int(read_meta(cursor, SCHEMA) or 0) if tables else 0
    if version > latest or (tables and version < 1):
        raise StoreError(
            f"store {where} has schema {version}, this version reads {latest}: "
            + ("update cems-workbench" if version > latest else "import its inputs into a new store")
        )
    if version < latest:
        apply(cursor, scripts, version, latest)


def apply(cursor: duckdb.DuckDBPyConnection, scripts: Mapping[int, Traversable], version: int, until: int) -> None:
    """Migrate from schema `version` to schema `until`."""
    for number in range(version + 1, until + 1):
        cursor.execute(scripts[number].read_text("utf-8"))
        step = _STEPS.get(number)
        if step is not None:
            step(cursor)
    write_meta(cursor, SCHEMA, str(until))


def _identify(cursor: duckdb.DuckDBPyConnection) -> None:
    """Give a new store its id."""
    write_meta(cursor, STORE_ID, uuid4().hex[:12])
    write_meta(cursor, CONTENT_VERSION, "0")


def _adopt_queries(cursor: duckdb.DuckDBPyConnection) -> None:
    """Put the queries of a store without sets into the set "all", version 1, with the default scale."""
    rows = cursor.execute("SELECT qid, query, project, as_of, type FROM queries ORDER BY qid").fetchall()
    if not rows:
        return
    scale = DEFAULT_SCALE.to_dict()
    lines = [json.dumps(scale, sort_keys=True)]
    for qid, query, project, as_of, kind in rows:
        moment = None if as_of is None else as_of.replace(tzinfo=UTC).isoformat()
        lines.append(json.dumps([qid, query, project, moment, kind]))
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    cursor.execute(
        "INSERT INTO query_sets VALUES ('all', 1, ?, ?, ?)",
        [datetime.now(UTC).replace(tzinfo=None), digest, json.dumps(scale, ensure_ascii=False)],
    )
    cursor.execute("INSERT INTO query_set_members SELECT 'all', 1, qid, query, project, as_of, type, '' FROM queries")


def _fold_texts(cursor: duckdb.DuckDBPyConnection) -> None:
    """Fill in the lengths and the folded texts of memories."""
    import pyarrow as pa

    last, size = cursor.execute(
        "SELECT coalesce(max(rowid), -1), coalesce(max(strlen(content)), 0) FROM memories"
    ).fetchall()[0]
    portion = max(1, min(_MOST_ROWS, _MOST_BYTES // max(1, size)))
    for start in range(0, last + 1, portion):
        rows = cursor.execute(
            "SELECT rowid, id, coalesce(title, ''), content, tags FROM memories WHERE rowid >= ? AND rowid < ?",
            [start, start + portion],
        ).fetchall()
        texts = ["\x1f".join((*row[1:4], *json.loads(row[4]))).casefold() for row in rows]
        table = pa.table(
            {
                "place": pa.array([row[0] for row in rows], pa.int64()),
                "size": pa.array([len(row[3]) for row in rows], pa.int64()),
                "folded": pa.array(texts, pa.large_string()),
            }
        )
        cursor.register("staged_texts", table)
        cursor.execute(
            "UPDATE memories SET size = s.size, folded = s.folded FROM staged_texts AS s WHERE memories.rowid = s.place"
        )
        cursor.unregister("staged_texts")


def _measure_vectors(cursor: duckdb.DuckDBPyConnection) -> None:
    """Fill in the lengths of the vectors of sources."""
    import pyarrow as pa

    (last,) = cursor.execute("SELECT coalesce(max(rowid), -1) FROM source_vectors").fetchall()[0]
    for start in range(0, last + 1, _MOST_ROWS):
        rows = cursor.execute(
            "SELECT rowid, vector FROM source_vectors WHERE rowid >= ? AND rowid < ?", [start, start + _MOST_ROWS]
        ).fetchall()
        lengths = [float(np.linalg.norm(np.frombuffer(blob, "<f4").astype(np.float64))) for _, blob in rows]
        table = pa.table(
            {"place": pa.array([row[0] for row in rows], pa.int64()), "length": pa.array(lengths, pa.float32())}
        )
        cursor.register("staged_lengths", table)
        cursor.execute(
            "UPDATE source_vectors SET length = s.length FROM staged_lengths AS s WHERE source_vectors.rowid = s.place"
        )
        cursor.unregister("staged_lengths")


_MOST_ROWS, _MOST_BYTES = 20_000, 256_000_000
"""Memories whose texts are folded in one batch."""
_STEPS: dict[int, Callable[[duckdb.DuckDBPyConnection], None]] = {
    1: _identify,
    6: _adopt_queries,
    17: _fold_texts,
    22: _measure_vectors,
}
