"""How often the sealed queries of a query set were scored, kept with the set.

The count is per query: a hold-out has been looked at as often as the most looked at of its queries. So it goes on when the evidence
is gathered again, when the set grows, and when another seed deals some of the same queries into another hold-out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from cems_workbench.store.rows import to_naive
from cems_workbench.store.team.session import TeamTables, persistent


class Holdouts:
    """The counts of an open store; methods may be called from any thread."""

    def __init__(self, team: TeamTables) -> None:
        self._team = team

    @persistent
    def count(self, query_set: str, qids: Sequence[str]) -> int:
        """Looks at these queries of a set so far: those of the most looked at."""
        with self._team.reading() as session:
            rows = session.rows(_COUNT, [query_set, list(qids)])
        return int(rows[0][0])

    @persistent
    def by_query(self, query_set: str, qids: Sequence[str]) -> dict[str, int]:
        """Looks at each of these queries of a set that was looked at."""
        with self._team.reading() as session:
            rows = session.rows(
                "SELECT qid, looks FROM holdout_looks WHERE set_name = ? AND qid IN (SELECT unnest(?::text[]))",
                [query_set, list(qids)],
            )
        return {str(qid): int(looks) for qid, looks in rows}

    @persistent
    def lookers(self, query_set: str) -> dict[str, int]:
        """Who looked at sealed queries of a set, and how often, as far as it was said; most looks first."""
        with self._team.reading() as session:
            rows = session.rows(
                "SELECT who, looks FROM holdout_lookers WHERE set_name = ? ORDER BY looks DESC, who", [query_set]
            )
        return {str(who): int(looks) for who, looks in rows}

    @persistent
    def look(self, query_set: str, qids: Sequence[str], who: str = "") -> int:
        """Count a look at these queries by somebody, and give the number of it. It is committed before anything can be shown."""
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
