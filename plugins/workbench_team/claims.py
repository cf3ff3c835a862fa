"""Claims on cards in a table of the team's database, so that reviewers on several machines do not get the same pair."""

from __future__ import annotations

from cems_workbench.store.claims import CLAIM_TIMEOUT_S, Choose, Pair
from cems_workbench.store.team import TeamTables


class TableClaims:
    """Claims in the table `label_claims` of a team's database, timed by that server's clock."""

    def __init__(self, team: TeamTables) -> None:
        self._team = team

    def claim(self, reviewer: str, choose: Choose) -> Pair | None:
        return self._team.persist(lambda: self._claimed(reviewer, choose))

    def _claimed(self, reviewer: str, choose: Choose) -> Pair | None:
        # A separate lock: claims wait for each other, not for the labels of other people.
        with self._team.transaction(of="claims") as session:
            rows = session.rows(
                "SELECT reviewer, qid, memory_id FROM label_claims "
                f"WHERE reviewer <> ? AND since > localtimestamp - INTERVAL '{CLAIM_TIMEOUT_S:g} seconds'",
                [reviewer],
            )
            chosen = choose({who: (qid, memory_id) for who, qid, memory_id in rows})
            if chosen is None:
                session.change("DELETE FROM label_claims WHERE reviewer = ?", [reviewer])
            else:
                session.change(
                    "INSERT INTO label_claims VALUES (?, ?, ?, localtimestamp) ON CONFLICT (reviewer) DO UPDATE SET "
                    "qid = excluded.qid, memory_id = excluded.memory_id, since = excluded.since",
                    [reviewer, *chosen],
                )
        return chosen

    def release(self, reviewer: str) -> None:
        def released() -> None:
            with self._team.transaction(of="claims") as session:
                session.change("DELETE FROM label_claims WHERE reviewer = ?", [reviewer])

        self._team.persist(released)
