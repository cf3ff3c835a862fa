"""The `query_sets` and `query_set_members` tables: named, versioned sets of queries, each with its grade scale.

A set is the union of the inputs it was imported from; importing an input again replaces that input's part. What changes a set, a
member's wording or its scale makes a new version; the earlier ones stay as they were. Changes of one moment, as the inputs of
one import have, are one version. The digest is the SHA-256 of the scale
and the members, so that equal sets are recognised across stores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cems_workbench.records import DEFAULT_SCALE, GradeScale, Query
from cems_workbench.store.memory_rows import to_aware, to_naive
from cems_workbench.store.reports import QuerySet

if TYPE_CHECKING:
    import duckdb

ALL = "all"
"""The set that the queries of a store without sets were put into."""
Member = tuple[Query, str]
"""A query and the input it came from."""


def digest(queries: Sequence[Query], scale: GradeScale) -> str:
    """SHA-256, in hex, of a scale and of queries in the order of their qids."""
    lines = [json.dumps(scale.to_dict(), sort_keys=True)]
    for query in sorted(queries, key=lambda one: one.qid):
        as_of = None if query.as_of is None else query.as_of.isoformat()
        lines.append(json.dumps([query.qid, query.query, query.project, as_of, query.type]))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def put(
    cursor: duckdb.DuckDBPyConnection,
    name: str,
    parts: Mapping[str, Sequence[Query]],
    when: datetime,
    scale: GradeScale | None = None,
) -> QuerySet:
    """Put the queries of each input (by its name) into a set, in place of what it held of that input before.

    Returns the set as it is now, whose version is a new one only if something differs. `scale` None keeps the set's.
    """
    known = read_one(cursor, name)
    kept = {query.qid: (query, source) for query, source in members(cursor, name) if source not in parts}
    kept.update({query.qid: (query, source) for source, queries in parts.items() for query in queries})
    return _write(cursor, name, list(kept.values()), scale or (known.scale if known else DEFAULT_SCALE), when)


def take_out(cursor: duckdb.DuckDBPyConnection, name: str, qids: Sequence[str], when: datetime) -> QuerySet:
    """Take queries out of a set that exists; returns it as it is now."""
    gone = set(qids)
    known = read_one(cursor, name)
    rest = [member for member in members(cursor, name) if member[0].qid not in gone]
    return _write(cursor, name, rest, known.scale if known else DEFAULT_SCALE, when)


def follow_queries(cursor: duckdb.DuckDBPyConnection, when: datetime) -> list[QuerySet]:
    """Make a new version of every set with a member that the `queries` table has in other words by now; returns them."""
    stale = cursor.execute(
        """
        SELECT DISTINCT m.set_name FROM query_set_members AS m JOIN queries AS q USING (qid)
        WHERE m.version = (SELECT max(version) FROM query_sets AS s WHERE s.name = m.set_name)
          AND (q.query, q.project, q.as_of, q.type) IS DISTINCT FROM (m.query, m.project, m.as_of, m.type)
        ORDER BY ALL
        """
    ).fetchall()
    changed = []
    for (name,) in stale:
        known = read_one(cursor, name)
        rows = cursor.execute(
            "SELECT q.qid, q.query, q.project, q.as_of, q.type, m.source FROM query_set_members AS m "
            "JOIN queries AS q USING (qid) WHERE m.set_name = ? AND m.version = ? ORDER BY q.qid",
            [name, known.version if known else 0],
        ).fetchall()
        scale = known.scale if known else DEFAULT_SCALE
        changed.append(_write(cursor, name, [_member(row) for row in rows], scale, when))
    return changed


def adopt_all(cursor: duckdb.DuckDBPyConnection, when: datetime) -> None:
    """Put the queries of a store that has no set yet into the set "all"; nothing when there are none."""
    if cursor.execute("SELECT count(*) FROM query_sets").fetchall()[0][0]:
        return
    rows = cursor.execute("SELECT qid, query, project, as_of, type, '' FROM queries ORDER BY qid").fetchall()
    if rows:
        _write(cursor, ALL, [_member(row) for row in rows], DEFAULT_SCALE, when)


def read(cursor: duckdb.DuckDBPyConnection) -> list[QuerySet]:
    """The latest version of every set, by name."""
    return _read(cursor, "s.version = (SELECT max(version) FROM query_sets AS l WHERE l.name = s.name)", [])


def versions(cursor: duckdb.DuckDBPyConnection, name: str) -> list[QuerySet]:
    """All versions of a set, newest first; none when there is no such set."""
    return sorted(_read(cursor, "s.name = ?", [name]), key=lambda one: -one.version)


def read_one(cursor: duckdb.DuckDBPyConnection, name: str, version: int | None = None) -> QuerySet | None:
    """One version of a set, the latest when None; None when there is none."""
    found = versions(cursor, name)
    return next((one for one in found if version in (None, one.version)), None)


def members(cursor: duckdb.DuckDBPyConnection, name: str, version: int | None = None) -> list[Member]:
    """The queries of a set by qid, as they were in that version (the latest when None), with their inputs."""
    rows = cursor.execute(
        "SELECT qid, query, project, as_of, type, source FROM query_set_members WHERE set_name = $name AND version = "
        "coalesce($version, (SELECT max(version) FROM query_sets WHERE name = $name)) ORDER BY qid",
        {"name": name, "version": version},
    ).fetchall()
    return [_member(row) for row in rows]


def scales_of(cursor: duckdb.DuckDBPyConnection, qids: Sequence[str]) -> dict[str, dict[str, GradeScale]]:
    """Per qid the scales of the sets it is in now, by the set's name; a query in no set is absent."""
    rows = cursor.execute(
        "SELECT m.qid, m.set_name, s.scale FROM "
        "(FROM query_sets QUALIFY row_number() OVER (PARTITION BY name ORDER BY version DESC) = 1) AS s "
        "JOIN query_set_members AS m ON m.set_name = s.name AND m.version = s.version "
        "WHERE m.qid IN (SELECT unnest(?)) ORDER BY ALL",
        [list(qids)],
    ).fetchall()
    read_scales: dict[str, GradeScale] = {}
    found: dict[str, dict[str, GradeScale]] = {}
    for qid, name, text in rows:
        scale = read_scales.setdefault(text, GradeScale.from_dict(json.loads(text)))
        found.setdefault(qid, {})[name] = scale
    return found


def _write(
    cursor: duckdb.DuckDBPyConnection, name: str, rows: Sequence[Member], scale: GradeScale, when: datetime
) -> QuerySet:
    import pyarrow as pa

    known = read_one(cursor, name)
    mark = digest([query for query, _ in rows], scale)
    if known is not None and known.digest == mark:
        return known
    version = known.version + 1 if known else 1
    if known is not None and known.created_at == when:  # another input of the same import
        version = known.version
        cursor.execute("DELETE FROM query_sets WHERE name = ? AND version = ?", [name, version])
        cursor.execute("DELETE FROM query_set_members WHERE set_name = ? AND version = ?", [name, version])
    cursor.execute(
        "INSERT INTO query_sets VALUES (?, ?, ?, ?, ?)",
        [name, version, to_naive(when), mark, json.dumps(scale.to_dict(), ensure_ascii=False)],
    )
    text = pa.string()
    table = pa.table(
        {
            "qid": pa.array([query.qid for query, _ in rows], text),
            "query": pa.array([query.query for query, _ in rows], text),
            "project": pa.array([query.project for query, _ in rows], text),
            "as_of": pa.array([to_naive(query.as_of) for query, _ in rows], pa.timestamp("us")),
            "type": pa.array([query.type for query, _ in rows], text),
            "source": pa.array([source for _, source in rows], text),
        }
    )
    cursor.register("staged_members", table)
    try:
        cursor.execute(
            "INSERT INTO query_set_members SELECT ?, ?, qid, query, project, as_of, type, source FROM staged_members",
            [name, version],
        )
    finally:
        cursor.unregister("staged_members")
    written = read_one(cursor, name)
    assert written is not None  # it was written just now
    return written


def _read(cursor: duckdb.DuckDBPyConnection, where: str, values: list[object]) -> list[QuerySet]:
    rows = cursor.execute(
        "SELECT s.name, s.version, s.created_at, s.digest, s.scale, count(m.qid), "
        "coalesce(list(DISTINCT m.source ORDER BY m.source) FILTER (m.source <> ''), []) "
        "FROM query_sets AS s LEFT JOIN query_set_members AS m ON m.set_name = s.name AND m.version = s.version "
        f"WHERE {where} GROUP BY ALL ORDER BY s.name, s.version",
        values,
    ).fetchall()
    return [
        QuerySet(
            name, version, made.replace(tzinfo=UTC), mark, GradeScale.from_dict(json.loads(scale)), size, tuple(sources)
        )
        for name, version, made, mark, scale, size, sources in rows
    ]


def _member(row: tuple[str, str, str | None, datetime | None, str | None, str]) -> Member:
    qid, query, project, as_of, kind, source = row
    return Query(qid, query, project, to_aware(as_of), kind), source
