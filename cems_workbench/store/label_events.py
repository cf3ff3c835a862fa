"""The `label_events` table: the history of judgments.

Append-only. Labels, imports that replace a judgment, and deletions add rows. An event has the state it replaced (`before`, None if there
was none), so that it can be undone and a reviewer's revisions can be read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cems_workbench.records import WHOLE_STORE
from cems_workbench.store.rows import to_aware, to_naive
from cems_workbench.store.team import Session

Key = tuple[str, str, str, str]
"""The key of a judgment: query, memory, judge and kind of judge."""
State = dict[str, Any]
"""A judgment without its key, as JSON values: grade, note, judged_at, source, shown."""
_COLUMNS = "id, qid, memory_id, judge, kind, action, grade, note, source, before, undoes, recorded_at"
JUDGE_WRONG = "judge wrong"
_IN_TIME = "recorded_at, id"
"""Events are ordered by time first: a store that joins a team later adds older events with higher ids."""
_BY_HAND = "'label', 'skip', 'unclear', 'accept', 'reject'"
_NOT_UNDONE = "NOT EXISTS (SELECT 1 FROM label_events AS u WHERE u.undoes = e.id)"
REJECTED = f"SELECT memory_id, note FROM label_events AS e WHERE action = 'reject' AND {_NOT_UNDONE}"
"""The memories of which a person said that they do not have what was judged of others, the ids of these as JSON."""


@dataclass(frozen=True, slots=True)
class LabelEvent:
    """One change of a judgment: `action` is label, undo, remove or import, `grade` the new grade (None: removed).

    Skips of a pair, what a person said of a doubtful move (`accept`, `reject`), and queries marked unclear (with an empty memory_id) are
    events too, and change no judgment of this key. A label
    of the whole store has the memory_id `records.WHOLE_STORE`. `before` is the replaced state with grade, note,
    judged_at, source and shown; None if there was no judgment. `undoes` is the id of the event that an undo reverted.
    """

    id: int
    qid: str
    memory_id: str
    judge: str
    kind: str
    action: str
    grade: int | None
    note: str | None
    source: str
    before: dict[str, Any] | None
    undoes: int | None
    recorded_at: datetime


def state(grade: int, note: str | None, judged_at: datetime | None, source: str, shown: str | None) -> State:
    """A judgment's columns as a State; `judged_at` is UTC without a zone, as stored."""
    moment = None if judged_at is None else judged_at.replace(tzinfo=UTC).isoformat()
    return {"grade": grade, "note": note, "judged_at": moment, "source": source, "shown": shown}


def present(session: Session, key: Key) -> State | None:
    """The state of the judgment of (qid, memory_id, judge, kind), or None."""
    rows = session.rows(
        "SELECT grade, note, judged_at, source, shown FROM judgments "
        "WHERE qid = ? AND memory_id = ? AND judge = ? AND kind = ?",
        list(key),
    )
    return state(*rows[0]) if rows else None


def append(
    session: Session,
    key: Key,
    action: str,
    when: datetime,
    *,
    grade: int | None,
    source: str,
    before: State | None,
    note: str | None = None,
    shown: Mapping[str, Any] | None = None,
    undoes: int | None = None,
) -> int:
    """Add an event and return its id; ids grow."""
    rows = session.rows(
        "INSERT INTO label_events (qid, memory_id, judge, kind, action, grade, note, source, shown, before, undoes, recorded_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
        [*key, action, grade, note, source, _json(shown), _json(before), undoes, to_naive(when)],
    )
    return int(rows[0][0])


def get(session: Session, number: int) -> LabelEvent:
    return _events(session, "id = ?", [number])[0]


def history(session: Session, judge: str, qid: str | None = None, memory_id: str | None = None) -> list[LabelEvent]:
    """The events of one judge's judgments, of one query or memory or all, oldest first."""
    of_judge = "judge = ? AND coalesce(qid = ?, TRUE) AND coalesce(memory_id = ?, TRUE)"
    return _events(session, of_judge, [judge, qid, memory_id])


def last_undoable(session: Session, judge: str, kind: str) -> LabelEvent | None:
    """The latest label, skip or "unclear" of this judge that is not undone."""
    by_hand = f"judge = ? AND kind = ? AND action IN ({_BY_HAND}) AND {_NOT_UNDONE}"
    return next(iter(_events(session, by_hand, [judge, kind], "recorded_at DESC, id DESC LIMIT 1")), None)


def marks(session: Session) -> list[LabelEvent]:
    """The skips and the queries marked unclear or unanswerable, not undone, oldest first."""
    unanswerable = f"action = 'label' AND memory_id = '{WHOLE_STORE}' AND grade = 0"
    return _events(session, f"(action IN ('skip', 'unclear') OR ({unanswerable})) AND {_NOT_UNDONE}")


def moves(session: Session) -> list[LabelEvent]:
    """The doubtful moves that people accepted or rejected, not undone, oldest first."""
    return _events(session, f"action IN ('accept', 'reject') AND {_NOT_UNDONE}")


def judged_wrong(session: Session) -> list[LabelEvent]:
    """The pairs on which a person marked the model judge wrong, not undone, oldest first; the note names the model."""
    return _events(session, f"action = '{JUDGE_WRONG}' AND {_NOT_UNDONE}")


def _events(session: Session, where: str, values: Sequence[object] = (), order: str = _IN_TIME) -> list[LabelEvent]:
    rows = session.rows(f"SELECT {_COLUMNS} FROM label_events AS e WHERE {where} ORDER BY {order}", values)
    return [_event(row) for row in rows]


def _event(row: tuple[Any, ...]) -> LabelEvent:
    (id_, qid, memory_id, judge, kind, action, grade, note, source, before, undoes, recorded_at) = row
    moment = to_aware(recorded_at)
    assert moment is not None  # the column is NOT NULL
    replaced = None if before is None else json.loads(before)
    return LabelEvent(id_, qid, memory_id, judge, kind, action, grade, note, source, replaced, undoes, moment)


def _json(values: Mapping[str, Any] | None) -> str | None:
    return None if values is None else json.dumps(values, ensure_ascii=False)
