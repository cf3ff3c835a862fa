"""The queries of all query sets: the `queries` table, and matching of an input's queries by text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cems_workbench.records import Judgment, ParsedInput, Query, RowError
from cems_workbench.store.rows import RowCounts, to_aware, to_naive
from cems_workbench.store.team.session import Session, TeamTables, persistent

COLUMNS = ("query", "project", "as_of", "type", "answerable", "given")
"""Of a query besides its qid. `given` is `Query.given` as JSON with sorted keys, null when it is empty."""


class Queries:
    """The queries of an open store, of all sets. Thread-safe."""

    def __init__(self, team: TeamTables) -> None:
        self._team = team

    @persistent
    def read(self) -> list[Query]:
        """All queries in their current version, by qid."""
        with self._team.reading() as session:
            rows = session.rows(f"SELECT qid, {', '.join(COLUMNS)} FROM queries ORDER BY qid")
        return [from_row(row) for row in rows]

    @persistent
    def with_words(self, words: str) -> list[Query]:
        """The queries with exactly this text, by qid; several may differ in project or time."""
        with self._team.reading() as session:
            rows = session.rows(f"SELECT qid, {', '.join(COLUMNS)} FROM queries WHERE query = ? ORDER BY qid", [words])
        return [from_row(row) for row in rows]


def from_row(row: Sequence[Any]) -> Query:
    """The query of a row (qid, *COLUMNS)."""
    return Query(row[0], row[1], row[2], to_aware(row[3]), row[4], row[5], **given_from(row[6]))


def given_text(query: Query) -> str | None:
    """`Query.given` as it is stored: JSON with sorted keys, None when it is empty."""
    return json.dumps(query.given, ensure_ascii=False, sort_keys=True) if query.given else None


def given_from(text: str | None) -> dict[str, Any]:
    """The fields of a Query that `given_text` stored."""
    values = json.loads(text) if text else {}
    return values | ({"wordings": tuple(values["wordings"])} if "wordings" in values else {})


def upsert(session: Session, queries: Sequence[Query]) -> RowCounts:
    """Insert queries and update those that differ; qids must be distinct in `queries`."""
    import pyarrow as pa

    table = pa.table(
        {
            "qid": [query.qid for query in queries],
            "query": [query.query for query in queries],
            "project": pa.array([query.project for query in queries], pa.string()),
            "as_of": pa.array([to_naive(query.as_of) for query in queries], pa.timestamp("us")),
            "type": pa.array([query.type for query in queries], pa.string()),
            "answerable": pa.array([query.answerable for query in queries], pa.bool_()),
            "given": pa.array([given_text(query) for query in queries], pa.string()),
        }
    )
    fields = COLUMNS
    with session.staged("staged_queries", table):
        updated = session.change(
            f"UPDATE queries AS q SET {', '.join(f'{name} = s.{name}' for name in fields)} FROM staged_queries AS s "
            f"WHERE q.qid = s.qid AND ({' OR '.join(f'q.{name} IS DISTINCT FROM s.{name}' for name in fields)})"
        )
        added = session.change(
            f"INSERT INTO queries (qid, {', '.join(fields)}) SELECT qid, {', '.join(fields)} FROM staged_queries "
            "WHERE qid NOT IN (SELECT qid FROM queries)"
        )
    return RowCounts(added, updated, len(queries) - added - updated)


def known_qids(session: Session, qids: Sequence[str]) -> set[str]:
    """Those of `qids` that exist in the store."""
    rows = session.rows("SELECT qid FROM queries WHERE qid IN (SELECT unnest(?::text[]))", [list(qids)])
    return {row[0] for row in rows}


def resolve_words(session: Session, parsed: ParsedInput) -> ParsedInput:
    """An input that names queries by their text, with the store's qids and without the queries that the store has.

    If exactly one stored query has the text, it is used; if none, the input's query is new; if several, the rows are reported as
    ambiguous and skipped. An input that names queries by id is returned unchanged.
    """
    if not parsed.extra.get("queries_by_words"):
        return parsed
    qids_of: dict[str, list[str]] = {}
    words = list({query.query for query in parsed.queries})
    for text, qid in session.rows(
        "SELECT query, qid FROM queries WHERE query IN (SELECT unnest(?::text[])) ORDER BY qid", [words]
    ):
        qids_of.setdefault(text, []).append(qid)
    meant = {query.qid: qids_of.get(query.query, []) for query in parsed.queries}
    numbers = parsed.extra.get("rows", {})
    judgments: list[Judgment] = []
    rows: list[int] = []
    problems: list[RowError] = []
    for number, judgment in zip(numbers.get("judgments", ()), parsed.judgments, strict=True):
        qids = meant.get(judgment.qid, [])
        if len(qids) > 1:
            reason = f"the queries {', '.join(qids[:5])} have this text; use a format that names the qid"
            problems.append(RowError(parsed.source, number, reason, "query"))
        else:
            judgments.append(replace(judgment, qid=qids[0]) if qids else judgment)
            rows.append(number)
    new = [
        (number, query)
        for number, query in zip(numbers.get("queries", ()), parsed.queries, strict=True)
        if not meant[query.qid]
    ]
    return replace(
        parsed,
        queries=tuple(query for _, query in new),
        judgments=tuple(judgments),
        errors=(*parsed.errors, *problems),
        extra={**parsed.extra, "rows": {**numbers, "judgments": rows, "queries": [number for number, _ in new]}},
    )
