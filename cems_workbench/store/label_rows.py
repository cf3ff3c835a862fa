"""Giving a label and taking it back: a change of `judgments` and its event, in one transaction of the caller."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cems_workbench.records import Judgment
from cems_workbench.store import label_events
from cems_workbench.store.judgment_rows import WORKBENCH, Key, key
from cems_workbench.store.label_events import State
from cems_workbench.store.memory_rows import to_naive
from cems_workbench.store.reports import LabelEvent

if TYPE_CHECKING:
    import duckdb


def give(
    cursor: duckdb.DuckDBPyConnection, judgment: Judgment, shown: Mapping[str, Any] | None, when: datetime
) -> int | None:
    """Write a label of its judge; returns the event's id, None when the same label stands there already.

    A note of None leaves the note that is there.
    """
    before = label_events.present(cursor, key(judgment))
    note = judgment.note if judgment.note is not None or before is None else before["note"]
    if before is not None and (before["grade"], before["note"], before["source"]) == (judgment.grade, note, WORKBENCH):
        return None
    seen = None if shown is None else json.dumps(shown, ensure_ascii=False)
    moment = judgment.judged_at or when
    after = label_events.state(judgment.grade, note, to_naive(moment), WORKBENCH, seen)
    _set(cursor, key(judgment), after)
    return label_events.append(
        cursor,
        key(judgment),
        "label",
        when,
        grade=judgment.grade,
        source=WORKBENCH,
        before=before,
        note=note,
        shown=shown,
    )


def take_back(cursor: duckdb.DuckDBPyConnection, event: LabelEvent, when: datetime) -> None:
    """Put back what an event replaced, and record that."""
    pair = (event.qid, event.memory_id, event.judge, event.kind)
    if event.action == "label":
        present = label_events.present(cursor, pair)
        if event.before is None:
            cursor.execute(
                "DELETE FROM judgments WHERE qid = ? AND memory_id = ? AND judge = ? AND kind = ?", list(pair)
            )
        else:
            _set(cursor, pair, event.before)
    else:
        present = None
    grade = event.before["grade"] if event.before else None
    label_events.append(cursor, pair, "undo", when, grade=grade, source=WORKBENCH, before=present, undoes=event.id)


def _set(cursor: duckdb.DuckDBPyConnection, pair: Key, after: State) -> None:
    moment = None if after["judged_at"] is None else to_naive(datetime.fromisoformat(after["judged_at"]))
    cursor.execute(
        "INSERT INTO judgments (qid, memory_id, judge, kind, grade, judged_at, note, source, shown) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (qid, memory_id, judge, kind) DO UPDATE SET "
        "grade = excluded.grade, judged_at = excluded.judged_at, note = excluded.note, source = excluded.source, "
        "shown = excluded.shown",
        [*pair, after["grade"], moment, after["note"], after["source"], after["shown"]],
    )
