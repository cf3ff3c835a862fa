"""Decisions of named people on conflicting labels, kept separate from the raw labels.

The `adjudications` table is append-only; the latest row of a pair counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from cems_workbench.store import judgments
from cems_workbench.store.database import Database
from cems_workbench.store.rows import check_name, to_naive
from cems_workbench.store.team.session import Row, TeamTables, persistent, rows_of

_COLUMNS = "qid, memory_id, grade, decided_by, note, decided_at"


@dataclass(frozen=True, slots=True)
class Decision:
    """A named person's grade for a pair with conflicting labels; None revokes an earlier decision."""

    qid: str
    memory_id: str
    grade: int | None
    decided_by: str
    note: str | None
    decided_at: datetime


class Decisions:
    """The decisions of an open store. Thread-safe."""

    def __init__(self, database: Database, team: TeamTables) -> None:
        self._database = database
        self._team = team

    @persistent
    def decide(self, qid: str, memory_id: str, grade: int | None, decided_by: str, note: str | None = None) -> Decision:
        """Decide a conflict by name; None revokes the decision.

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
        """The valid decisions: the latest of each pair, without revoked ones; by qid and memory."""
        rows = rows_of(
            self._team,
            f"SELECT {_COLUMNS} FROM (SELECT *, row_number() OVER "
            "(PARTITION BY qid, memory_id ORDER BY decided_at DESC, id DESC) AS nth FROM adjudications) AS decisions "
            "WHERE nth = 1 AND grade IS NOT NULL ORDER BY qid, memory_id",
        )
        return [_decision(row) for row in rows]

    @persistent
    def history(self, qid: str, memory_id: str) -> list[Decision]:
        """Every decision on one pair, oldest first."""
        rows = rows_of(
            self._team,
            f"SELECT {_COLUMNS} FROM adjudications WHERE qid = ? AND memory_id = ? ORDER BY decided_at, id",
            [qid, memory_id],
        )
        return [_decision(row) for row in rows]


def _decision(row: Row) -> Decision:
    qid, memory_id, grade, decided_by, note, decided_at = row
    return Decision(qid, memory_id, grade, decided_by, note, decided_at.replace(tzinfo=UTC))
