"""Decisions on conflicting labels: what a named person decided, apart from the raw labels.

Rows of the `adjudications` table are only added; the latest of a pair counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from cems_workbench.store import judgments
from cems_workbench.store.database import Database
from cems_workbench.store.rows import check_name, to_naive

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

    def __init__(self, database: Database) -> None:
        self._database = database

    def decide(self, qid: str, memory_id: str, grade: int | None, decided_by: str, note: str | None = None) -> Decision:
        """Decide a conflict by name; None takes the decision back.

        Raises InputError for an unknown query or memory, a grade off the scale, or a person without a name.
        """
        check_name(decided_by)
        decision = Decision(qid, memory_id, grade, decided_by, note, datetime.now(UTC))
        if grade is not None:
            with self._database.reading() as cursor:
                judgments.check_gradable(cursor, qid, memory_id, grade)
        with self._database.transaction() as cursor:
            cursor.execute(
                f"INSERT INTO adjudications ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
                [qid, memory_id, grade, decided_by, note, to_naive(decision.decided_at)],
            )
        return decision

    def read(self) -> list[Decision]:
        """The decisions that count: the latest of each pair, but those that were taken back; by qid and memory."""
        with self._database.reading() as cursor:
            rows = cursor.execute(
                f"SELECT {_COLUMNS} FROM (FROM adjudications "
                "QUALIFY row_number() OVER (PARTITION BY qid, memory_id ORDER BY id DESC) = 1) "
                "WHERE grade IS NOT NULL ORDER BY qid, memory_id"
            ).fetchall()
        return [_decision(row) for row in rows]

    def history(self, qid: str, memory_id: str) -> list[Decision]:
        """Every decision on one pair, oldest first."""
        with self._database.reading() as cursor:
            rows = cursor.execute(
                f"SELECT {_COLUMNS} FROM adjudications WHERE qid = ? AND memory_id = ? ORDER BY id", [qid, memory_id]
            ).fetchall()
        return [_decision(row) for row in rows]


def _decision(row: tuple[str, str, int | None, str, str | None, datetime]) -> Decision:
    return Decision(*row[:5], row[5].replace(tzinfo=UTC))
