"""The `adjudications` table: what a named person decided where labels conflict. Rows are only added; the latest counts."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from cems_workbench.store.memory_rows import to_aware, to_naive
from cems_workbench.store.reports import Decision

if TYPE_CHECKING:
    import duckdb

_COLUMNS = "qid, memory_id, grade, decided_by, note, decided_at"


def append(cursor: duckdb.DuckDBPyConnection, decision: Decision) -> None:
    """Add a decision."""
    cursor.execute(
        f"INSERT INTO adjudications ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
        [
            decision.qid, decision.memory_id, decision.grade, decision.decided_by, decision.note,
            to_naive(decision.decided_at),
        ],
    )  # fmt: skip


def read(cursor: duckdb.DuckDBPyConnection) -> list[Decision]:
    """The decisions that count: the latest of each pair, but those that were taken back; by qid and memory."""
    rows = cursor.execute(
        f"SELECT {_COLUMNS} FROM (FROM adjudications "
        "QUALIFY row_number() OVER (PARTITION BY qid, memory_id ORDER BY id DESC) = 1) "
        "WHERE grade IS NOT NULL ORDER BY qid, memory_id"
    ).fetchall()
    return [_decision(row) for row in rows]


def history(cursor: duckdb.DuckDBPyConnection, qid: str, memory_id: str) -> list[Decision]:
    """Every decision on one pair, oldest first."""
    rows = cursor.execute(
        f"SELECT {_COLUMNS} FROM adjudications WHERE qid = ? AND memory_id = ? ORDER BY id", [qid, memory_id]
    ).fetchall()
    return [_decision(row) for row in rows]


def _decision(row: tuple[str, str, int | None, str, str | None, datetime]) -> Decision:
    moment = to_aware(row[5])
    assert moment is not None  # the column is NOT NULL
    return Decision(*row[:5], moment)
