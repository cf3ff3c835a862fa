"""Query sets: named, versioned sets of queries, each with its grade scale (`query_sets` and `query_set_members`).

A set is the union of its inputs; importing an input again replaces that input's part. Each change of the members, their text or the
scale makes a new version; earlier versions are immutable. Changes with the same time (the inputs of one import) make one version. The
digest is the SHA-256 of scale and members, so that equal sets are recognised across stores. A right answer, which no search reads, is no
part of it: it is written to the present version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cems_workbench.errors import InputError, StoreError, nearest
from cems_workbench.records import DEFAULT_SCALE, GradeScale, Query
from cems_workbench.store import queries as queries_table
from cems_workbench.store.rows import check_name, table_of, to_naive
from cems_workbench.store.team import Row, Session, TeamTables, persistent, read_of

Member = tuple[Query, str]
"""A query and the input it came from."""


@dataclass(frozen=True, slots=True)
class QuerySet:
    """One version of a named set of queries. `sources` are the inputs of its queries, `size` is their number, `digest`
    the SHA-256 of scale and queries."""

    name: str
    version: int
    created_at: datetime
    digest: str
    scale: GradeScale
    size: int
    sources: tuple[str, ...] = ()


class QuerySets:
    """The query sets of an open store. Thread-safe."""

    def __init__(self, team: TeamTables) -> None:
        self._team = team

    def latest(self) -> list[QuerySet]:
        return read_of(self._team, latest)

    @persistent
    def get(self, name: str, version: int | None = None) -> QuerySet:
        """One version of a set, the latest by default. Raises StoreError, with the existing names, for an unknown one."""
        with self._team.reading() as session:
            query_set = get(session, name, version)
            if query_set is not None:
                return query_set
            if version is not None and (last := get(session, name)) is not None:
                raise StoreError(f"query set {name} has no version {version}; the latest is {last.version}")
            names = [each.name for each in latest(session)]
        near = nearest(name, names)
        known = f"did you mean {near}?" if near else f"there are {', '.join(names) or 'none yet'}"
        raise StoreError(f"no query set {name!r} in the store; {known}")

    @persistent
    def versions(self, name: str) -> list[QuerySet]:
        """All versions of a set, newest first. Raises StoreError for an unknown set."""
        self.get(name)
        return read_of(self._team, versions, name)

    @persistent
    def queries(self, name: str, version: int | None = None) -> list[Query]:
        """The queries of a version of a set (by default the latest), by qid. Raises StoreError."""
        found = [query for query, _ in read_of(self._team, members, name, version)]
        if not found:  # which raises for an unknown set
            self.get(name, version)
        return found

    @persistent
    def put(self, name: str, queries: Sequence[Query], source: str, scale: GradeScale | None = None) -> QuerySet:
        """Write queries to the store and to a set; they replace the set's earlier queries of `source`. Returns the new
        version. Raises InputError for an invalid name or a duplicate qid."""
        check_name(name)
        if len({query.qid for query in queries}) < len(queries):
            raise InputError(f"query set {name}: duplicate qid")
        when = datetime.now(UTC)
        with self._team.transaction() as session:
            if queries:
                queries_table.upsert(session, queries, source)
            put(session, name, {source: queries}, when, scale)
            follow_queries(session, when)
        return self.get(name)

    @persistent
    def add(self, name: str, query: Query, source: str) -> QuerySet:
        """Add one query to a new or existing set. Raises InputError for an invalid name."""
        check_name(name)
        when = datetime.now(UTC)
        with self._team.transaction() as session:
            queries_table.upsert(session, [query])
            known = get(session, name)
            rest = [member for member in members(session, name) if member[0].qid != query.qid]
            write(session, name, [*rest, (query, source)], _scale(known), when)
            follow_queries(session, when)
        return self.get(name)

    def holding(self, qid: str) -> list[str]:
        """The names of the sets whose latest version has the query."""
        return sorted(read_of(self._team, scales_of, [qid]).get(qid, {}))

    def scale_of(self, qid: str) -> GradeScale:
        """The scale of a query: that of its sets, the last by name if they differ; the default without a set."""
        scales = read_of(self._team, scales_of, [qid]).get(qid)
        return scales[max(scales)] if scales else DEFAULT_SCALE

    def relevant_from(self, name: str) -> int:
        """The lowest relevant grade of a set; 1 for an unknown set."""
        return _scale(read_of(self._team, get, name)).relevant_from

    def relevant_from_of(self, qids: Sequence[str]) -> dict[str, int]:
        """The lowest relevant grade by qid: that of its sets, the last by name if they differ."""
        scales = read_of(self._team, scales_of, qids)
        return {qid: relevant_from_among(scales.get(qid)) for qid in qids}

    @persistent
    def set_relevant_from(self, name: str, grade: int) -> QuerySet:
        """Set the lowest relevant grade of a set. Raises StoreError, and InputError for a grade off the scale."""
        scale = self.get(name).scale
        if grade not in scale:
            raise InputError(f"{name}: {grade} is not on the scale of this set, which is {scale}")
        return self.set_scale(name, replace(scale, relevant_from=grade))

    @persistent
    def set_scale(self, name: str, scale: GradeScale) -> QuerySet:
        """Change the scale of a set; labels off the new scale stay unchanged. Raises StoreError."""
        self.get(name)
        with self._team.transaction() as session:
            return put(session, name, {}, datetime.now(UTC), scale)


def _scale(known: QuerySet | None) -> GradeScale:
    return known.scale if known else DEFAULT_SCALE


def digest(queries: Sequence[Query], scale: GradeScale) -> str:
    """SHA-256, in hex, of a scale and of queries sorted by qid."""
    lines = [json.dumps(scale.to_dict(), sort_keys=True)]
    for query in sorted(queries, key=lambda query: query.qid):
        as_of = None if query.as_of is None else query.as_of.isoformat()
        row = [query.qid, query.query, query.project, as_of, query.type, query.answerable, query.given]
        lines.append(json.dumps(row, sort_keys=True))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def put(
    session: Session, name: str, parts: Mapping[str, Sequence[Query]], when: datetime, scale: GradeScale | None = None
) -> QuerySet:
    """Write the queries of each input (by name) to a set; they replace the set's earlier queries of that input. Returns
    the current version, a new one only if something differs. `scale` None keeps the set's."""
    known = get(session, name)
    members_by_qid = {query.qid: (query, source) for query, source in members(session, name) if source not in parts}
    members_by_qid.update({query.qid: (query, source) for source, queries in parts.items() for query in queries})
    return write(session, name, list(members_by_qid.values()), scale or (_scale(known)), when)


def join(session: Session, name: str, more: Sequence[Member], scale: GradeScale, when: datetime) -> QuerySet:
    """Add queries to a set, or create it; existing queries and the scale of an existing set stay unchanged."""
    known = get(session, name)
    by_qid = {query.qid: (query, source) for query, source in more}
    by_qid |= {query.qid: (query, source) for query, source in members(session, name)}
    return write(session, name, list(by_qid.values()), known.scale if known else scale, when)


def follow_queries(session: Session, when: datetime) -> list[QuerySet]:
    """Create a new version of every set with a member that differs from the `queries` table; returns these versions."""
    own, members_own = (", ".join(f"{alias}.{name}" for name in queries_table.COLUMNS) for alias in "qm")
    stale = session.rows(
        "SELECT DISTINCT m.set_name FROM query_set_members AS m JOIN queries AS q USING (qid) "
        "WHERE m.version = (SELECT max(version) FROM query_sets AS s WHERE s.name = m.set_name) "
        f"AND ({own}) IS DISTINCT FROM ({members_own}) ORDER BY 1"
    )
    changed = []
    for (name,) in stale:
        known = get(session, name)
        assert known is not None  # it has members
        rows = session.rows(
            f"SELECT q.qid, {own}, m.source FROM query_set_members AS m "
            "JOIN queries AS q USING (qid) WHERE m.set_name = ? AND m.version = ? ORDER BY q.qid",
            [name, known.version],
        )
        changed.append(write(session, name, [_member(row) for row in rows], known.scale, when))
    return changed


def latest(session: Session) -> list[QuerySet]:
    return _read(session, "s.version = (SELECT max(version) FROM query_sets AS l WHERE l.name = s.name)", [])


def versions(session: Session, name: str) -> list[QuerySet]:
    """All versions of a set, newest first; empty for an unknown set."""
    return sorted(_read(session, "s.name = ?", [name]), key=lambda query_set: -query_set.version)


def get(session: Session, name: str, version: int | None = None) -> QuerySet | None:
    """One version of a set, by default the latest; None if there is none."""
    asked = "s.name = ? AND s.version = coalesce(?, (SELECT max(version) FROM query_sets AS l WHERE l.name = s.name))"
    return next(iter(_read(session, asked, [name, version])), None)


def members(session: Session, name: str, version: int | None = None) -> list[Member]:
    """The queries of a version of a set (by default the latest) with their inputs, by qid."""
    rows = session.rows(
        f"SELECT qid, {', '.join(queries_table.COLUMNS)}, source FROM query_set_members "
        "WHERE set_name = ? AND version = "
        "coalesce(?, (SELECT max(version) FROM query_sets WHERE name = ?)) ORDER BY qid",
        [name, version, name],
    )
    return [_member(row) for row in rows]


def scales_of(session: Session, qids: Sequence[str]) -> dict[str, dict[str, GradeScale]]:
    """By qid, the scales of its sets by set name; queries in no set are absent."""
    if not qids:
        return {}
    rows = session.rows(
        "SELECT m.qid, m.set_name, s.scale FROM "
        "(SELECT name, scale, version, max(version) OVER (PARTITION BY name) AS latest FROM query_sets) AS s "
        "JOIN query_set_members AS m ON m.set_name = s.name AND m.version = s.version "
        "WHERE s.version = s.latest AND m.qid IN (SELECT unnest(?::text[])) ORDER BY m.qid, m.set_name",
        [list(qids)],
    )
    read_scales: dict[str, GradeScale] = {}
    by_qid: dict[str, dict[str, GradeScale]] = {}
    for qid, name, text in rows:
        if text not in read_scales:
            read_scales[text] = GradeScale.from_dict(json.loads(text))
        by_qid.setdefault(qid, {})[name] = read_scales[text]
    return by_qid


def relevant_from_among(scales: Mapping[str, GradeScale] | None) -> int:
    """The lowest relevant grade of a query from the scales of its sets (`scales_of`); the last by name if they differ."""
    return (scales[max(scales)] if scales else DEFAULT_SCALE).relevant_from


def write(session: Session, name: str, rows: Sequence[Member], scale: GradeScale, when: datetime) -> QuerySet:
    """Make these queries and this scale the latest version of a set, a new one only if something differs besides answers; returns it."""
    known = get(session, name)
    asked = [query for query, _ in rows]
    mark = digest(asked, scale)
    if known is not None and known.digest == mark:
        with session.staged("staged_answers", queries_table.staging(asked)):
            session.change(
                "UPDATE query_set_members AS m SET given = s.given FROM staged_answers AS s "
                "WHERE m.set_name = ? AND m.version = ? AND m.qid = s.qid AND m.given IS DISTINCT FROM s.given",
                [name, known.version],
            )
        return known
    version = known.version + 1 if known else 1
    if known is not None and known.created_at == when:  # another input of the same import
        version = known.version
        session.change("DELETE FROM query_sets WHERE name = ? AND version = ?", [name, version])
        session.change("DELETE FROM query_set_members WHERE set_name = ? AND version = ?", [name, version])
    session.change(
        "INSERT INTO query_sets VALUES (?, ?, ?, ?, ?)",
        [name, version, to_naive(when), mark, json.dumps(scale.to_dict(), ensure_ascii=False)],
    )
    sources_of = table_of("source string", [(source,) for _, source in rows])
    table = queries_table.staging(asked).append_column("source", sources_of["source"])
    columns = ", ".join(table.column_names)
    with session.staged("staged_members", table):
        session.change(
            f"INSERT INTO query_set_members (set_name, version, {columns}) SELECT ?, ?, {columns} FROM staged_members",
            [name, version],
        )
    sources = tuple(sorted({source for _, source in rows if source}))
    return QuerySet(name, version, when.astimezone(UTC), mark, scale, len(rows), sources)


def _read(session: Session, where: str, values: list[object]) -> list[QuerySet]:
    rows = session.rows(
        "SELECT s.name, s.version, s.created_at, s.digest, s.scale, count(m.qid), "
        "array_agg(DISTINCT m.source ORDER BY m.source) FILTER (WHERE m.source <> '') "
        "FROM query_sets AS s LEFT JOIN query_set_members AS m ON m.set_name = s.name AND m.version = s.version "
        f"WHERE {where} GROUP BY s.name, s.version, s.created_at, s.digest, s.scale "
        "ORDER BY s.name, s.version",
        values,
    )
    return [
        QuerySet(
            name,
            version,
            made.replace(tzinfo=UTC),
            mark,
            GradeScale.from_dict(json.loads(scale)),
            size,
            tuple(sources or ()),
        )
        for name, version, made, mark, scale, size, sources in rows
    ]


def _member(row: Row) -> Member:
    *query, source = row
    return queries_table.from_row(query), source
