"""The queries of all query sets: the `queries` table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from cems_workbench.records import Query
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
