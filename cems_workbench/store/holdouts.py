"""Looks at hold-outs: how often the sealed queries of a query set were scored.

Looks are counted per query; those of a hold-out are the maximum over its queries. So the count persists when evidence is gathered
again, the set grows, or another seed puts some of the queries into another hold-out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from cems_workbench.store.rows import to_naive
from cems_workbench.store.team.session import TeamTables, persistent


class Holdouts:
    """The look counts of an open store. Thread-safe."""

    def __init__(self, team: TeamTables) -> None:
        self._team = team

    @persistent
    def count(self, query_set: str, qids: Sequence[str]) -> int:
        """The maximum number of looks over these queries of a set."""
        with self._team.reading() as session:
            rows = session.rows(_COUNT, [query_set, list(qids)])
        return int(rows[0][0])

    @persistent
    def by_query(self, query_set: str, qids: Sequence[str]) -> dict[str, int]:
        """Looks per query, of those of these queries that have any."""
        with self._team.reading() as session:
            rows = session.rows(
                "SELECT qid, looks FROM holdout_looks WHERE set_name = ? AND qid IN (SELECT unnest(?::text[]))",
                [query_set, list(qids)],
            )
        return {str(qid): int(looks) for qid, looks in rows}

    @persistent
    def lookers(self, query_set: str) -> dict[str, int]:
        """The known people who looked at sealed queries of a set, with their number of looks; most first."""
        with self._team.reading() as session:
            rows = session.rows(
                "SELECT who, looks FROM holdout_lookers WHERE set_name = ? ORDER BY looks DESC, who", [query_set]
            )
        return {str(who): int(looks) for who, looks in rows}

    @persistent
    def look(self, query_set: str, qids: Sequence[str], who: str = "") -> int:
        """Count a look at these queries and return its number. It is committed before any score is shown."""
        now = to_naive(datetime.now(UTC))
        with self._team.transaction() as session:
            if who:
                session.change(
                    "INSERT INTO holdout_lookers VALUES (?, ?, 1, ?) "
                    "ON CONFLICT (set_name, who) DO UPDATE SET looks = holdout_lookers.looks + 1, last_at = excluded.last_at",
                    [query_set, who, now],
                )
            session.change(
                "INSERT INTO holdout_looks SELECT ?, qid, 1, ? FROM (SELECT unnest(?::text[]) AS qid) AS seen "
                "ON CONFLICT (set_name, qid) DO UPDATE SET looks = holdout_looks.looks + 1, last_at = excluded.last_at",
                [query_set, now, list(dict.fromkeys(qids))],
            )
            rows = session.rows(_COUNT, [query_set, list(qids)])
        return int(rows[0][0])


_COUNT = "SELECT coalesce(max(looks), 0) FROM holdout_looks WHERE set_name = ? AND qid IN (SELECT unnest(?::text[]))"
