"""The `judgments` table: one grade per query, memory, judge and kind of judge, and the import into it.

A person's label never takes the place of a model's or of another person's, because judge and kind are part of the key. An import
replaces what an earlier import said, and keeps what that was in `label_events`; a label given in the workbench it leaves alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cems_workbench.records import Judgment
from cems_workbench.store import label_events
from cems_workbench.store.memory_rows import to_aware, to_naive
from cems_workbench.store.reports import RowCounts

if TYPE_CHECKING:
    import duckdb

MAX_NOTES = 20
WORKBENCH = "workbench"
"""The source of a judgment that was given here."""
FIELDS = ("qid", "memory_id", "grade", "judge", "kind", "judged_at", "note")
Key = tuple[str, str, str, str]
_SAME = "j.qid = s.qid AND j.memory_id = s.memory_id AND j.judge = s.judge AND j.kind = s.kind"
_DIFFERS = (
    "(j.grade <> s.grade OR j.judged_at IS DISTINCT FROM coalesce(s.judged_at, j.judged_at) "
    "OR j.note IS DISTINCT FROM coalesce(s.note, j.note))"
)


def key(judgment: Judgment) -> Key:
    """What a judgment is one of: query, memory, judge and kind."""
    return judgment.qid, judgment.memory_id, judgment.judge, judgment.kind


def given_here(cursor: duckdb.DuckDBPyConnection, judgments: Sequence[Judgment]) -> dict[Key, int]:
    """The grades of those of `judgments` that were given in the workbench, whatever grade they have here."""
    cursor.register("staged_judgments", _staging(judgments))
    try:
        rows = cursor.execute(
            f"SELECT j.qid, j.memory_id, j.judge, j.kind, j.grade FROM staged_judgments AS s JOIN judgments AS j ON {_SAME} "
            "WHERE j.source = ?",
            [WORKBENCH],
        ).fetchall()
    finally:
        cursor.unregister("staged_judgments")
    return {(qid, memory_id, judge, kind): grade for qid, memory_id, judge, kind, grade in rows}


def of_others(cursor: duckdb.DuckDBPyConnection, judgments: Sequence[Judgment]) -> dict[Key, list[tuple[str, int]]]:
    """(judge, grade) of the others of the same kind who graded a pair of `judgments` differently, by that judgment's key."""
    cursor.register("staged_judgments", _staging(judgments))
    try:
        rows = cursor.execute(
            "SELECT s.qid, s.memory_id, s.judge, s.kind, j.judge, j.grade FROM staged_judgments AS s JOIN judgments AS j "
            "ON j.qid = s.qid AND j.memory_id = s.memory_id AND j.kind = s.kind AND j.judge <> s.judge "
            "WHERE j.grade <> s.grade ORDER BY ALL"
        ).fetchall()
    finally:
        cursor.unregister("staged_judgments")
    found: dict[Key, list[tuple[str, int]]] = {}
    for qid, memory_id, judge, kind, other, grade in rows:
        found.setdefault((qid, memory_id, judge, kind), []).append((other, grade))
    return found


def upsert(
    cursor: duckdb.DuckDBPyConnection, judgments: Sequence[Judgment], source: str, when: datetime
) -> tuple[RowCounts, list[str]]:
    """Insert judgments, replace those with another grade; the keys of `judgments` must be distinct.

    Returns the counts and a note for each replaced grade (the first MAX_NOTES, then how many more).
    """
    cursor.register("staged_judgments", _staging(judgments))
    try:
        replaced = cursor.execute(
            "SELECT j.qid, j.memory_id, j.grade, j.judge, j.kind, j.judged_at, j.note, j.source, j.shown, s.grade "
            f"FROM staged_judgments AS s JOIN judgments AS j ON {_SAME} WHERE {_DIFFERS} "
            "ORDER BY j.qid, j.memory_id, j.judge, j.kind"
        ).fetchall()
        for row in replaced:
            _record_replacement(cursor, row, source, when)
        cursor.execute(
            "UPDATE judgments AS j SET grade = s.grade, judged_at = coalesce(s.judged_at, j.judged_at), "
            f"note = coalesce(s.note, j.note), source = ? FROM staged_judgments AS s WHERE {_SAME} AND {_DIFFERS}",
            [source],
        )
        added = cursor.execute(
            "INSERT INTO judgments (qid, memory_id, grade, judge, kind, judged_at, note, source) "
            "SELECT qid, memory_id, grade, judge, kind, judged_at, note, ? FROM staged_judgments AS s "
            f"WHERE NOT EXISTS (FROM judgments AS j WHERE {_SAME})",
            [source],
        ).fetchall()[0][0]
    finally:
        cursor.unregister("staged_judgments")
    counts = RowCounts(added, len(replaced), len(judgments) - added - len(replaced))
    return counts, _notes([(*row[:2], row[3], row[7], row[2], row[9]) for row in replaced if row[2] != row[9]])


def _staging(judgments: Sequence[Judgment]) -> Any:
    import pyarrow as pa

    text = pa.string()
    kinds = {"grade": pa.int64(), "judged_at": pa.timestamp("us")}
    columns: dict[str, list[Any]] = {name: [getattr(judgment, name) for judgment in judgments] for name in FIELDS}
    columns["judged_at"] = [to_naive(moment) for moment in columns["judged_at"]]
    return pa.table({name: pa.array(values, kinds.get(name, text)) for name, values in columns.items()})


def _record_replacement(cursor: duckdb.DuckDBPyConnection, row: tuple[Any, ...], source: str, when: datetime) -> None:
    """Keep what an import is about to replace."""
    before = label_events.state(row[2], row[6], row[5], row[7], row[8])
    pair = (row[0], row[1], row[3], row[4])
    label_events.append(cursor, pair, "import", when, grade=row[9], source=source, before=before)


def _notes(conflicts: Sequence[tuple[str, str, str, str, int, int]]) -> list[str]:
    notes = [
        f"judgment {qid} / {memory_id} by {judge}: grade {old} (from {source or 'before'}) replaced by {new}"
        for qid, memory_id, judge, source, old, new in conflicts[:MAX_NOTES]
    ]
    if len(conflicts) > MAX_NOTES:
        notes.append(f"{len(conflicts) - MAX_NOTES} more judgments were replaced by another grade")
    return notes


def read(cursor: duckdb.DuckDBPyConnection, qid: str | None = None, kind: str | None = None) -> list[Judgment]:
    """Judgments of live memories, of one query or of all, of people or models or both, by qid, memory, judge and kind."""
    rows = cursor.execute(
        f"SELECT {', '.join(f'j.{name}' for name in FIELDS)} FROM judgments AS j "
        "JOIN memories AS m ON m.id = j.memory_id AND m.deleted_at IS NULL "
        "WHERE coalesce(j.qid = ?, TRUE) AND coalesce(j.kind = ?, TRUE) ORDER BY j.qid, j.memory_id, j.judge, j.kind",
        [qid, kind],
    ).fetchall()
    return [record(row) for row in rows]


def record(row: Sequence[Any]) -> Judgment:
    """A row of FIELDS as a record."""
    return Judgment(row[0], row[1], row[2], row[3], row[4], to_aware(row[5]), row[6])


def of_memory(cursor: duckdb.DuckDBPyConnection, memory_id: str) -> list[tuple[Judgment, str]]:
    """The judgments of one memory, each with the words of its query, highest grade first, ties by qid and judge."""
    rows = cursor.execute(
        f"SELECT {', '.join(f'j.{name}' for name in FIELDS)}, q.query FROM judgments AS j JOIN queries AS q USING (qid) "
        "WHERE j.memory_id = ? ORDER BY j.grade DESC, j.qid, j.judge",
        [memory_id],
    ).fetchall()
    return [(record(row), row[-1]) for row in rows]


def remove(cursor: duckdb.DuckDBPyConnection, pair: Key, when: datetime) -> bool:
    """Take one judgment away, keeping what it was in `label_events`; False when there was none."""
    before = label_events.present(cursor, pair)
    if before is None:
        return False
    cursor.execute("DELETE FROM judgments WHERE qid = ? AND memory_id = ? AND judge = ? AND kind = ?", list(pair))
    label_events.append(cursor, pair, "remove", when, grade=None, source=WORKBENCH, before=before)
    return True
