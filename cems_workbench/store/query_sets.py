"""Query sets: named, versioned sets of queries, each with its grade scale (`query_sets` and `query_set_members`).

A set is the union of the inputs it was imported from; importing an input again replaces that input's part. What changes a set, a
member's wording or its scale makes a new version; the earlier ones stay as they were. Changes of one moment, as the inputs of one
import have, are one version. The digest is the SHA-256 of the scale and the members, so that equal sets are recognised across
stores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cems_workbench.errors import InputError, StoreError, nearest
from cems_workbench.records import DEFAULT_SCALE, GradeScale, Query
from cems_workbench.store import queries as queries_table
from cems_workbench.store.database import Database
from cems_workbench.store.rows import check_name, staged, to_aware, to_naive

if TYPE_CHECKING:
    import duckdb

Member = tuple[Query, str]
"""A query and the input it came from."""


@dataclass(frozen=True, slots=True)
class QuerySet:
    """One version of a named set of queries.

    `sources` are the inputs its queries came from, `size` is how many it has, `digest` the SHA-256 of scale and queries.
    """

    name: str
    version: int
    created_at: datetime
    digest: str
    scale: GradeScale
    size: int
    sources: tuple[str, ...] = ()


class QuerySets:
    """The query sets of an open store; methods may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def latest(self) -> list[QuerySet]:
        """The latest version of every set, by name."""
        with self._database.reading() as cursor:
            return latest(cursor)

    def get(self, name: str, version: int | None = None) -> QuerySet:
        """One set in one version, the latest when None. Raises StoreError when there is none, naming those there are."""
        with self._database.reading() as cursor:
            query_set = get(cursor, name, version)
            if query_set is not None:
                return query_set
            if version is not None and (last := get(cursor, name)) is not None:
                raise StoreError(f"query set {name} has no version {version}; the latest is {last.version}")
            names = [each.name for each in latest(cursor)]
        near = nearest(name, names)
        known = (
            f"; did you mean {near}?"
            if near
            else f"; there are {', '.join(names)}"
            if names
            else "; there are none yet"
        )
        raise StoreError(f"no query set {name!r} in the store{known}")

    def versions(self, name: str) -> list[QuerySet]:
        """All versions of a set, newest first; raises StoreError when there is no such set."""
        self.get(name)
        with self._database.reading() as cursor:
            return versions(cursor, name)

    def queries(self, name: str, version: int | None = None) -> list[Query]:
        """The queries of a set by qid, as they were in that version (the latest when None); raises StoreError."""
        self.get(name, version)
        with self._database.reading() as cursor:
            return [query for query, _ in members(cursor, name, version)]

    def put(self, name: str, queries: Sequence[Query], source: str, scale: GradeScale | None = None) -> QuerySet:
        """Put queries into the store and into a set, in place of what that set held of `source` before.

        Returns the set as it is now. Raises InputError for a name that cannot be one, or a qid that stands twice.
        """
        check_name(name)
        if len({query.qid for query in queries}) < len(queries):
            raise InputError(f"query set {name}: a qid stands more than once")
        when = datetime.now(UTC)
        with self._database.transaction() as cursor:
            if queries:
                queries_table.upsert(cursor, queries)
            put(cursor, name, {source: queries}, when, scale)
            follow_queries(cursor, when)
        return self.get(name)

    def add(self, name: str, query: Query, source: str) -> QuerySet:
        """Add one query to a set, new or there; what else it holds stays. Raises InputError for a name that cannot be one."""
        check_name(name)
        when = datetime.now(UTC)
        with self._database.transaction() as cursor:
            queries_table.upsert(cursor, [query])
            known = get(cursor, name)
            rest = [member for member in members(cursor, name) if member[0].qid != query.qid]
            _write(cursor, name, [*rest, (query, source)], known.scale if known else DEFAULT_SCALE, when)
            follow_queries(cursor, when)
        return self.get(name)

    def holding(self, qid: str) -> list[str]:
        """The names of the sets that a query is in now."""
        with self._database.reading() as cursor:
            return sorted(scales_of(cursor, [qid]).get(qid, {}))

    def take_out(self, name: str, qids: Sequence[str]) -> QuerySet:
        """Take queries out of a set (they stay in the store and in its earlier versions); raises StoreError."""
        self.get(name)
        removed = set(qids)
        with self._database.transaction() as cursor:
            known = get(cursor, name)
            rest = [member for member in members(cursor, name) if member[0].qid not in removed]
            return _write(cursor, name, rest, known.scale if known else DEFAULT_SCALE, datetime.now(UTC))

    def scale_of(self, qid: str) -> GradeScale:
        """The scale a query is graded on: that of the sets it is in, the last by name where they differ; else the default."""
        with self._database.reading() as cursor:
            scales = scales_of(cursor, [qid]).get(qid)
        return scales[max(scales)] if scales else DEFAULT_SCALE

    def relevant_from(self, name: str) -> int:
        """The lowest grade that counts as relevant in a set, as chosen for it; 1 for a name that is no set of the store."""
        with self._database.reading() as cursor:
            found = get(cursor, name)
        return (found.scale if found else DEFAULT_SCALE).relevant_from

    def relevant_from_of(self, qids: Sequence[str]) -> dict[str, int]:
        """Of each query the lowest relevant grade: that of the sets it is in, the last by name where they differ."""
        with self._database.reading() as cursor:
            scales = scales_of(cursor, qids)
        return {qid: relevant_from_among(scales.get(qid)) for qid in qids}

    def set_relevant_from(self, name: str, grade: int) -> QuerySet:
        """Count this grade and higher ones of a set as relevant from now on. Raises StoreError; InputError off the scale."""
        scale = self.get(name).scale
        if grade not in scale:
            raise InputError(f"{name}: {grade} is no grade of this set, which is graded {scale}")
        return self.set_scale(name, replace(scale, relevant_from=grade))

    def set_scale(self, name: str, scale: GradeScale) -> QuerySet:
        """Grade a set on another scale from now on; labels off the new scale stay as they are. Raises StoreError."""
        self.get(name)
        with self._database.transaction() as cursor:
            return put(cursor, name, {}, datetime.now(UTC), scale)


def digest(queries: Sequence[Query], scale: GradeScale) -> str:
    """SHA-256, in hex, of a scale and of queries in the order of their qids."""
    lines = [json.dumps(scale.to_dict(), sort_keys=True)]
    for query in sorted(queries, key=lambda query: query.qid):
        as_of = None if query.as_of is None else query.as_of.isoformat()
        said = [] if query.answerable is None else [query.answerable]  # so that sets of before have the digest they had
        lines.append(json.dumps([query.qid, query.query, query.project, as_of, query.type, *said]))
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
    known = get(cursor, name)
    members_by_qid = {query.qid: (query, source) for query, source in members(cursor, name) if source not in parts}
    members_by_qid.update({query.qid: (query, source) for source, queries in parts.items() for query in queries})
    return _write(cursor, name, list(members_by_qid.values()), scale or (known.scale if known else DEFAULT_SCALE), when)


def follow_queries(cursor: duckdb.DuckDBPyConnection, when: datetime) -> list[QuerySet]:
    """Make a new version of every set with a member that the `queries` table has in other words by now; returns them."""
    stale = cursor.execute(
        """
        SELECT DISTINCT m.set_name FROM query_set_members AS m JOIN queries AS q USING (qid)
        WHERE m.version = (SELECT max(version) FROM query_sets AS s WHERE s.name = m.set_name)
          AND (q.query, q.project, q.as_of, q.type, q.answerable)
              IS DISTINCT FROM (m.query, m.project, m.as_of, m.type, m.answerable)
        ORDER BY ALL
        """
    ).fetchall()
    changed = []
    for (name,) in stale:
        known = get(cursor, name)
        rows = cursor.execute(
            "SELECT q.qid, q.query, q.project, q.as_of, q.type, m.source, q.answerable FROM query_set_members AS m "
            "JOIN queries AS q USING (qid) WHERE m.set_name = ? AND m.version = ? ORDER BY q.qid",
            [name, known.version if known else 0],
        ).fetchall()
        scale = known.scale if known else DEFAULT_SCALE
        changed.append(_write(cursor, name, [_member(row) for row in rows], scale, when))
    return changed


def latest(cursor: duckdb.DuckDBPyConnection) -> list[QuerySet]:
    """The latest version of every set, by name."""
    return _read(cursor, "s.version = (SELECT max(version) FROM query_sets AS l WHERE l.name = s.name)", [])


def versions(cursor: duckdb.DuckDBPyConnection, name: str) -> list[QuerySet]:
    """All versions of a set, newest first; none when there is no such set."""
    return sorted(_read(cursor, "s.name = ?", [name]), key=lambda query_set: -query_set.version)


def get(cursor: duckdb.DuckDBPyConnection, name: str, version: int | None = None) -> QuerySet | None:
    """One version of a set, the latest when None; None when there is none."""
    return next((each for each in versions(cursor, name) if version in (None, each.version)), None)


def members(cursor: duckdb.DuckDBPyConnection, name: str, version: int | None = None) -> list[Member]:
    """The queries of a set by qid, as they were in that version (the latest when None), with their inputs."""
    rows = cursor.execute(
        "SELECT qid, query, project, as_of, type, source, answerable FROM query_set_members WHERE set_name = $name AND version = "
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
    by_qid: dict[str, dict[str, GradeScale]] = {}
    for qid, name, text in rows:
        scale = read_scales.setdefault(text, GradeScale.from_dict(json.loads(text)))
        by_qid.setdefault(qid, {})[name] = scale
    return by_qid


def relevant_from_among(scales: Mapping[str, GradeScale] | None) -> int:
    """The lowest relevant grade of a query by the scales of its sets (`scales_of`): of the last by name where they differ."""
    return (scales[max(scales)] if scales else DEFAULT_SCALE).relevant_from


def _write(
    cursor: duckdb.DuckDBPyConnection, name: str, rows: Sequence[Member], scale: GradeScale, when: datetime
) -> QuerySet:
    import pyarrow as pa

    known = get(cursor, name)
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
            "answerable": pa.array([query.answerable for query, _ in rows], pa.bool_()),
        }
    )
    with staged(cursor, "staged_members", table):
        cursor.execute(
            "INSERT INTO query_set_members (set_name, version, qid, query, project, as_of, type, source, answerable) "
            "SELECT ?, ?, qid, query, project, as_of, type, source, answerable FROM staged_members",
            [name, version],
        )
    written = get(cursor, name)
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


def _member(row: tuple[str, str, str | None, datetime | None, str | None, str, bool | None]) -> Member:
    qid, query, project, as_of, kind, source, answerable = row
    return Query(qid, query, project, to_aware(as_of), kind, answerable), source
