"""Decisions on conflicting labels: what a named person decided, apart from the raw labels.

Rows of the `adjudications` table are only added; the latest of a pair counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from cems_workbench.store import judgments
from cems_workbench.store.database import Database
from cems_workbench.store.rows import check_name, to_naive
from cems_workbench.store.team.session import Row, TeamTables, persistent

_COLUMNS = "qid, memory_id, grade, decided_by, note, decided_at"


@dataclass(frozen=True, slots=True)
class Decision:
    """The grade a named person decided on where labels conflict; None when they took an earlier decision back."""

    qid: str
    memory_id: str
    grade: int | None
    decided_by: str
    note: str | None
    decided_at: datetime


class Decisions:
    """The decisions of an open store; methods may be called from any thread."""

    def __init__(self, database: Database, team: TeamTables) -> None:
        self._database = database
        self._team = team

    @persistent
    def decide(self, qid: str, memory_id: str, grade: int | None, decided_by: str, note: str | None = None) -> Decision:
        """Decide a conflict by name; None takes the decision back.

        Raises InputError for an unknown query or memory, a grade off the scale, or a person without a name.
        """
        check_name(decided_by)
        decision = Decision(qid, memory_id, grade, decided_by, note, datetime.now(UTC))
        if grade is not None:
            judgments.check_gradable(self._database, self._team, qid, memory_id, grade)
        with self._team.transaction() as session:
            session.change(
                f"INSERT INTO adjudications ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
                [qid, memory_id, grade, decided_by, note, to_naive(decision.decided_at)],
            )
        return decision

    @persistent
    def read(self) -> list[Decision]:
        """The decisions that count: the latest of each pair, but those that were taken back; by qid and memory."""
        with self._team.reading() as session:
            rows = session.rows(
                f"SELECT {_COLUMNS} FROM (SELECT *, row_number() OVER "
                "(PARTITION BY qid, memory_id ORDER BY decided_at DESC, id DESC) AS nth FROM adjudications) AS decisions "
                "WHERE nth = 1 AND grade IS NOT NULL ORDER BY qid, memory_id"
            )
        return [_decision(row) for row in rows]

    @persistent
    def history(self, qid: str, memory_id: str) -> list[Decision]:
        """Every decision on one pair, oldest first."""
        with self._team.reading() as session:
            rows = session.rows(
                f"SELECT {_COLUMNS} FROM adjudications WHERE qid = ? AND memory_id = ? ORDER BY decided_at, id",
                [qid, memory_id],
            )
        return [_decision(row) for row in rows]


def _decision(row: Row) -> Decision:
    qid, memory_id, grade, decided_by, note, decided_at = row
    return Decision(qid, memory_id, grade, decided_by, note, decided_at.replace(tzinfo=UTC))
