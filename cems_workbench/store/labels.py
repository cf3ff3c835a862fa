"""Labelling (label, skip, mark and undo), and the decisions of named people on conflicting labels, kept separate from these.

A label changes `judgments` and adds an event in one transaction; a skip of a pair, a query marked unclear and a judge marked wrong are
only events. Methods return after the commit, so that a confirmed label is on disk. A transaction locks one judge's rows only, so
reviewers do not wait for each other.

The `adjudications` table of decisions is append-only; the latest row of a pair counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.records import Judgment
from cems_workbench.store import judged_texts, judgments, label_events, rebase
from cems_workbench.store.database import Database
from cems_workbench.store.judgments import WORKBENCH, key_of
from cems_workbench.store.label_events import Key, LabelEvent, State
from cems_workbench.store.rows import check_name, to_naive
from cems_workbench.store.team import Row, Session, TeamTables, persistent, read_of, rows_of


class Labels:
    """The labels of an open store. Thread-safe."""

    def __init__(self, database: Database, team: TeamTables) -> None:
        self._database = database
        self._team = team

    @persistent
    def give(self, judgment: Judgment, shown: Mapping[str, Any] | None = None) -> LabelEvent | None:
        """Write one label; it replaces the same judge's earlier one and no other.

        `shown` is what the reviewer saw, as JSON values. `judged_at` defaults to now. A note of None keeps the existing note. Returns the
        event, None if the label is unchanged. Raises InputError for an unknown query or memory, a grade off the scale, or a judge without
        a name.
        """
        check_name(judgment.judge)
        if judgment.kind not in ("human", "model"):
            raise InputError(f"kind must be human or model, found {judgment.kind!r}")
        # Before the transaction, so that other reviewers wait for less.
        judgments.check_gradable(self._database, self._team, judgment.qid, judgment.memory_id, judgment.grade)
        judged_texts.keep_present(self._database, [judgment.memory_id])
        with self._team.transaction(of=judgment.judge) as session:
            number = _give(session, judgment, shown, datetime.now(UTC))
            return None if number is None else label_events.get(session, number)

    def skip(self, qid: str, memory_id: str, reviewer: str, note: str | None = None) -> LabelEvent:
        return self._mark("skip", (qid, memory_id, reviewer, "human"), note)

    def unclear(self, qid: str, reviewer: str, note: str | None = None) -> LabelEvent:
        return self._mark("unclear", (qid, "", reviewer, "human"), note)

    def call_judge_wrong(self, qid: str, memory_id: str, reviewer: str, model: str) -> LabelEvent:
        """Record that a person finds a model's judgment of a pair wrong; no label changes."""
        return self._mark(label_events.JUDGE_WRONG, (qid, memory_id, reviewer, "human"), model)

    @persistent
    def _mark(self, action: str, key: Key, note: str | None) -> LabelEvent:
        check_name(key[2])
        with self._team.transaction(of=key[2]) as session:
            number = label_events.append(
                session, key, action, datetime.now(UTC), grade=None, source=WORKBENCH, before=None, note=note
            )
            return label_events.get(session, number)

    def marks(self) -> list[LabelEvent]:
        """All pairs skipped and queries marked unclear or unanswerable, not undone, oldest first."""
        return read_of(self._team, label_events.marks)

    def judged_wrong(self) -> list[LabelEvent]:
        """The pairs on which a person marked a model judge wrong, not undone; the note names the model."""
        return read_of(self._team, label_events.judged_wrong)

    @persistent
    def take_back(self, mark: LabelEvent) -> None:
        """Undo a mark: a skip, an "unclear" or a "judge wrong". For labels see `undo`."""
        if mark.action == "label":
            raise InputError("use undo to revert a label")
        with self._team.transaction(of=mark.judge) as session:
            _take_back(session, mark, datetime.now(UTC))

    @persistent
    def decide_move(self, qid: str, memory_id: str, judged: Sequence[str], reviewer: str, *, accept: bool) -> int:
        """Move the labels of these judged memories, of all queries, to one that has their text, each with its judge, or record that it
        has not; how many were moved. `qid` is the query that was shown."""
        check_name(reviewer)
        if accept:
            judged_texts.keep_present(self._database, [memory_id])
        with self._team.transaction(of=reviewer) as session:
            now, key = datetime.now(UTC), (qid, memory_id, reviewer, "human")
            moved = rebase.accepted(session, memory_id, judged, reviewer) if accept else []
            if moved:
                judgments.upsert(session, moved, rebase.REBASE, now)
            action = "accept" if accept else "reject"
            label_events.append(session, key, action, now, grade=None, source=WORKBENCH, before=None, note=json.dumps(judged))
        return len(moved)

    def moves(self) -> list[LabelEvent]:
        """The doubtful moves that people accepted or rejected, not undone, oldest first."""
        return read_of(self._team, label_events.moves)

    @persistent
    def undo(self, reviewer: str, kind: str = "human") -> LabelEvent | None:
        """Undo this reviewer's latest label, skip or "unclear" that is not undone; returns it, or None. The replaced
        state is restored. A second call undoes the one before."""
        with self._team.transaction(of=reviewer) as session:
            event = label_events.last_undoable(session, reviewer, kind)
            if event is not None:
                _take_back(session, event, datetime.now(UTC))
            return event

    def history(self, reviewer: str, qid: str | None = None, memory_id: str | None = None) -> list[LabelEvent]:
        """The events of a reviewer's labels, of one query or memory or all, oldest first."""
        return read_of(self._team, label_events.history, reviewer, qid, memory_id)


def _give(session: Session, judgment: Judgment, shown: Mapping[str, Any] | None, when: datetime) -> int | None:
    """Write a label; returns the event's id, None if the label is unchanged."""
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
    """Restore the state that an event replaced, and record it."""
    key = (event.qid, event.memory_id, event.judge, event.kind)
    present = None
    if event.action == "label":
        present = label_events.present(session, key)
        if event.before is None:
            judgments.delete(session, key)
        else:
            _set(session, key, event.before)
    elif event.action == "accept":
        rebase.take_back(session, event.memory_id, json.loads(event.note or "[]"), event.judge, when)
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
        """Decide a conflict by name; None revokes the decision. Raises InputError for an unknown query or memory, a
        grade off the scale, or a person without a name."""
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
