"""The `queries` table: the queries of all query sets in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cems_workbench.records import Query
from cems_workbench.store.memory_rows import to_aware, to_naive
from cems_workbench.store.reports import RowCounts

if TYPE_CHECKING:
    import duckdb


def upsert(cursor: duckdb.DuckDBPyConnection, queries: Sequence[Query]) -> RowCounts:
    """Insert queries and update those that differ; qids must be distinct in `queries`."""
    import pyarrow as pa

    table = pa.table(
        {
            "qid": [query.qid for query in queries],
            "query": [query.query for query in queries],
            "project": pa.array([query.project for query in queries], pa.string()),
            "as_of": pa.array([to_naive(query.as_of) for query in queries], pa.timestamp("us")),
            "type": pa.array([query.type for query in queries], pa.string()),
        }
    )
    fields = ("query", "project", "as_of", "type")
    cursor.register("staged_queries", table)
    try:
        updated = cursor.execute(
            f"UPDATE queries AS q SET {', '.join(f'{name} = s.{name}' for name in fields)} FROM staged_queries AS s "
            f"WHERE q.qid = s.qid AND ({' OR '.join(f'q.{name} IS DISTINCT FROM s.{name}' for name in fields)})"
        ).fetchall()[0][0]
        added = cursor.execute(
            "INSERT INTO queries SELECT qid, query, project, as_of, type FROM staged_queries "
            "WHERE qid NOT IN (SELECT qid FROM queries)"
        ).fetchall()[0][0]
    finally:
        cursor.unregister("staged_queries")
    return RowCounts(added, updated, len(queries) - added - updated)


def known_qids(cursor: duckdb.DuckDBPyConnection, qids: Sequence[str]) -> set[str]:
    """Those of `qids` that are in the store."""
    rows = cursor.execute("SELECT qid FROM queries WHERE qid IN (SELECT unnest(?))", [list(qids)]).fetchall()
    return {row[0] for row in rows}


def read(cursor: duckdb.DuckDBPyConnection) -> list[Query]:
    """All queries, by qid."""
    rows = cursor.execute("SELECT qid, query, project, as_of, type FROM queries ORDER BY qid").fetchall()
    return [Query(qid, query, project, to_aware(as_of), kind) for qid, query, project, as_of, kind in rows]
