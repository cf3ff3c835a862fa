"""The `judgments` table: one grade per query, memory and judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cems_workbench.records import Judgment
from cems_workbench.store.reports import RowCounts

if TYPE_CHECKING:
    import duckdb

MAX_NOTES = 20


def upsert(cursor: duckdb.DuckDBPyConnection, judgments: Sequence[Judgment]) -> tuple[RowCounts, list[str]]:
    """Insert judgments, replace those with another grade; (qid, memory, judge) must be distinct in `judgments`.

    Returns the counts and a note for each replaced grade (the first MAX_NOTES, then how many more).
    """
    import pyarrow as pa

    table = pa.table(
        {
            "qid": [judgment.qid for judgment in judgments],
            "memory_id": [judgment.memory_id for judgment in judgments],
            "judge": [judgment.judge for judgment in judgments],
            "grade": pa.array([judgment.grade for judgment in judgments], pa.int64()),
            "kind": [judgment.kind for judgment in judgments],
        }
    )
    same = "j.qid = s.qid AND j.memory_id = s.memory_id AND j.judge = s.judge"
    cursor.register("staged_judgments", table)
    try:
        conflicts = cursor.execute(
            f"SELECT s.qid, s.memory_id, s.judge, j.grade, s.grade FROM staged_judgments AS s JOIN judgments AS j "
            f"ON {same} WHERE j.grade <> s.grade ORDER BY ALL"
        ).fetchall()
        updated = cursor.execute(
            "UPDATE judgments AS j SET grade = s.grade, kind = s.kind FROM staged_judgments AS s "
            f"WHERE {same} AND (j.grade <> s.grade OR j.kind <> s.kind)"
        ).fetchall()[0][0]
        added = cursor.execute(
            "INSERT INTO judgments SELECT qid, memory_id, judge, grade, kind FROM staged_judgments AS s "
            f"WHERE NOT EXISTS (FROM judgments AS j WHERE {same})"
        ).fetchall()[0][0]
    finally:
        cursor.unregister("staged_judgments")
    return RowCounts(added, updated, len(judgments) - added - updated), _notes(conflicts)


def _notes(conflicts: Sequence[tuple[str, str, str, int, int]]) -> list[str]:
    notes = [
        f"judgment {qid} / {memory_id} by {judge}: grade {old} replaced by {new}"
        for qid, memory_id, judge, old, new in conflicts[:MAX_NOTES]
    ]
    if len(conflicts) > MAX_NOTES:
        notes.append(f"{len(conflicts) - MAX_NOTES} more judgments were replaced by another grade")
    return notes


def read(cursor: duckdb.DuckDBPyConnection, qid: str | None = None) -> list[Judgment]:
    """Judgments of live memories, of one query or of all, by qid, memory and judge."""
    rows = cursor.execute(
        "SELECT j.qid, j.memory_id, j.grade, j.judge, j.kind FROM judgments AS j "
        "JOIN memories AS m ON m.id = j.memory_id AND m.deleted_at IS NULL "
        "WHERE coalesce(j.qid = ?, TRUE) ORDER BY j.qid, j.memory_id, j.judge",
        [qid],
    ).fetchall()
    return [Judgment(*row) for row in rows]


def of_memory(cursor: duckdb.DuckDBPyConnection, memory_id: str) -> list[tuple[Judgment, str]]:
    """The judgments of one memory, each with the words of its query, highest grade first, ties by qid and judge."""
    rows = cursor.execute(
        "SELECT j.qid, j.memory_id, j.grade, j.judge, j.kind, q.query FROM judgments AS j JOIN queries AS q USING (qid) "
        "WHERE j.memory_id = ? ORDER BY j.grade DESC, j.qid, j.judge",
        [memory_id],
    ).fetchall()
    return [(Judgment(*row[:5]), row[5]) for row in rows]


def remove(cursor: duckdb.DuckDBPyConnection, qid: str, memory_id: str, judge: str) -> bool:
    """Take back one judgment; False when there was none."""
    removed = cursor.execute(
        "DELETE FROM judgments WHERE qid = ? AND memory_id = ? AND judge = ?", [qid, memory_id, judge]
    ).fetchall()[0][0]
    return bool(removed)
