"""Labels as people give them, skip them and take them back.

A label is a change of `judgments` and its event in one transaction; a skip of a pair, a query called unclear and a judge called
wrong are events alone. Every method that changes something returns after the commit, so that what a page confirms is on disk.
A transaction is of one judge: those of others go on beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.records import Judgment
from cems_workbench.store import judgments, label_events
from cems_workbench.store.database import Database
from cems_workbench.store.judgments import WORKBENCH, key_of
from cems_workbench.store.label_events import Key, LabelEvent, State
from cems_workbench.store.rows import check_name, to_naive
from cems_workbench.store.team.session import Session, TeamTables, persistent


class Labels:
    """The labels of an open store; methods may be called from any thread."""

    def __init__(self, database: Database, team: TeamTables) -> None:
        self._database = database
        self._team = team

    @persistent
    def give(self, judgment: Judgment, shown: Mapping[str, Any] | None = None) -> LabelEvent | None:
        """Write one label, in place of the same judge's earlier one; nobody else's is touched.

        `shown` is what the reviewer saw, as JSON values. `judged_at` is now when the judgment does not say. A note of None
        leaves the note that is there. Returns the event, None when the same label stood there already. Raises InputError for
        an unknown query or memory, a grade off the scale, or a judge without a name.
        """
        check_name(judgment.judge)
        if judgment.kind not in ("human", "model"):
            raise InputError(f"kind must be human or model, found {judgment.kind!r}")
        # Not in the transaction, for which other reviewers wait.
        judgments.check_gradable(self._database, self._team, judgment.qid, judgment.memory_id, judgment.grade)
        with self._team.transaction(of=judgment.judge) as session:
            number = _give(session, judgment, shown, datetime.now(UTC))
            return None if number is None else label_events.get(session, number)

    def skip(self, qid: str, memory_id: str, reviewer: str, note: str | None = None) -> LabelEvent:
        """Note that a reviewer would rather not grade a pair."""
        return self._mark("skip", (qid, memory_id, reviewer, "human"), note)

    def unclear(self, qid: str, reviewer: str, note: str | None = None) -> LabelEvent:
        """Note that a reviewer cannot tell what a query asks for."""
        return self._mark("unclear", (qid, "", reviewer, "human"), note)

    def call_judge_wrong(self, qid: str, memory_id: str, reviewer: str, model: str) -> LabelEvent:
        """Note that a person finds a model's judgment of a pair wrong; nobody's label changes."""
        return self._mark(label_events.JUDGE_WRONG, (qid, memory_id, reviewer, "human"), model)

    @persistent
    def _mark(self, action: str, key: Key, note: str | None) -> LabelEvent:
        check_name(key[2])
        with self._team.transaction(of=key[2]) as session:
            number = label_events.append(
                session, key, action, datetime.now(UTC), grade=None, source=WORKBENCH, before=None, note=note
            )
            return label_events.get(session, number)

    @persistent
    def marks(self) -> list[LabelEvent]:
        """What was skipped, called unclear or said to have no answer by anybody, and not undone, oldest first."""
        with self._team.reading() as session:
            return label_events.marks(session)

    @persistent
    def judged_wrong(self) -> list[LabelEvent]:
        """The pairs that a person called a model judge wrong on, and did not take back; the note names the model."""
        with self._team.reading() as session:
            return label_events.judged_wrong(session)

    @persistent
    def take_back(self, mark: LabelEvent) -> None:
        """Take a mark back: a skip, an "unclear" or a "judge wrong"; labels are taken back by `undo`."""
        if mark.action == "label":
            raise InputError("a label is taken back by its undo")
        with self._team.transaction(of=mark.judge) as session:
            _take_back(session, mark, datetime.now(UTC))

    @persistent
    def undo(self, reviewer: str, kind: str = "human") -> LabelEvent | None:
        """Take back this reviewer's latest label, skip or "unclear" not undone yet; returns it, None when there is none.

        What stood there before the label stands there again. Called again, it takes back the one before.
        """
        with self._team.transaction(of=reviewer) as session:
            event = label_events.last_undoable(session, reviewer, kind)
            if event is not None:
                _take_back(session, event, datetime.now(UTC))
            return event

    @persistent
    def history(self, reviewer: str, qid: str | None = None, memory_id: str | None = None) -> list[LabelEvent]:
        """What was done to a reviewer's labels, of one query or memory or all, oldest first."""
        with self._team.reading() as session:
            return label_events.history(session, reviewer, qid, memory_id)


def _give(session: Session, judgment: Judgment, shown: Mapping[str, Any] | None, when: datetime) -> int | None:
    """Write a label of its judge; returns the event's id, None when the same label stands there already."""
    key = key_of(judgment)
    before = label_events.present(session, key)
    note = judgment.note if judgment.note is not None or before is None else before["note"]
    if before is not None and (before["grade"], before["note"], before["source"]) == (judgment.grade, note, WORKBENCH):
        return None
    seen = None if shown is None else json.dumps(shown, ensure_ascii=False)
    moment = judgment.judged_at or when
    _set(session, key, label_events.state(judgment.grade, note, to_naive(moment), WORKBENCH, seen))
    return label_events.append(
        session, key, "label", when, grade=judgment.grade, source=WORKBENCH, before=before, note=note, shown=shown
    )


def _take_back(session: Session, event: LabelEvent, when: datetime) -> None:
    """Put back what an event replaced, and record that."""
    key = (event.qid, event.memory_id, event.judge, event.kind)
    present = None
    if event.action == "label":
        present = label_events.present(session, key)
        if event.before is None:
            judgments.delete(session, key)
        else:
            _set(session, key, event.before)
    grade = event.before["grade"] if event.before else None
    label_events.append(session, key, "undo", when, grade=grade, source=WORKBENCH, before=present, undoes=event.id)


def _set(session: Session, key: Key, after: State) -> None:
    moment = None if after["judged_at"] is None else to_naive(datetime.fromisoformat(after["judged_at"]))
    session.change(
        "INSERT INTO judgments (qid, memory_id, judge, kind, grade, judged_at, note, source, shown) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (qid, memory_id, judge, kind) DO UPDATE SET "
        "grade = excluded.grade, judged_at = excluded.judged_at, note = excluded.note, source = excluded.source, "
        "shown = excluded.shown",
        [*key, after["grade"], moment, after["note"], after["source"], after["shown"]],
    )
