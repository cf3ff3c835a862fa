"""Labels as reviewers give them, decisions on conflicts, and labelling queues: the part of the store's face that is about them.

Every method that changes something returns after the commit, so that what a page confirms is on disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cems_workbench.errors import InputError
from cems_workbench.records import DEFAULT_SCALE, GradeScale, Judgment
from cems_workbench.store import (
    adjudication_rows,
    feedback_rows,
    judgment_rows,
    label_events,
    label_rows,
    memory_rows,
    query_rows,
    query_set_rows,
    queue_rows,
    schema,
)
from cems_workbench.store.claims import Claims
from cems_workbench.store.database import Database
from cems_workbench.store.importing_judgments import off_scale
from cems_workbench.store.query_sets import check_name
from cems_workbench.store.reports import Decision, LabelEvent, QueueRecord, RowCounts

if TYPE_CHECKING:
    import duckdb


class Labels:
    """The labels of an open store; methods may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.claims = Claims()

    def give(self, judgment: Judgment, shown: Mapping[str, Any] | None = None) -> LabelEvent | None:
        """Write one label, in place of the same judge's earlier one; nobody else's is touched.

        `shown` is what the reviewer saw, as JSON values. `judged_at` is now when the judgment does not say. Returns the
        event, None when the same label stood there already. Raises InputError for an unknown query or memory, a grade off
        the scale, or a judge without a name.
        """
        check_name(judgment.judge)
        if judgment.kind not in ("human", "model"):
            raise InputError(f"kind must be human or model, found {judgment.kind!r}")
        with self._database.reading() as cursor:  # not in the transaction, for which other reviewers wait
            _check(cursor, judgment.qid, judgment.memory_id, judgment.grade)
        with self._database.transaction() as cursor:
            number = label_rows.give(cursor, judgment, shown, datetime.now(UTC))
            return None if number is None else label_events.read_one(cursor, number)

    def record(self, judgments: Sequence[Judgment], source: str) -> RowCounts:
        """Keep many judgments of a model at once, in place of what the same models said before.

        Raises InputError for one of a person: those are given one by one. Pairs must be distinct per judge.
        """
        if any(judgment.kind != "model" for judgment in judgments):
            raise InputError("only judgments of a model are recorded in bulk")
        if not judgments:
            return RowCounts()
        with self._database.transaction() as cursor:
            return judgment_rows.upsert(cursor, judgments, source, datetime.now(UTC))[0]

    def skip(self, qid: str, memory_id: str, reviewer: str, note: str | None = None) -> LabelEvent:
        """Note that a reviewer would rather not grade a pair."""
        return self._mark("skip", (qid, memory_id, reviewer, "human"), note)

    def unclear(self, qid: str, reviewer: str, note: str | None = None) -> LabelEvent:
        """Note that a reviewer cannot tell what a query asks for."""
        return self._mark("unclear", (qid, "", reviewer, "human"), note)

    def _mark(self, action: str, pair: judgment_rows.Key, note: str | None) -> LabelEvent:
        check_name(pair[2])
        with self._database.transaction() as cursor:
            number = label_events.append(
                cursor,
                pair,
                action,
                datetime.now(UTC),
                grade=None,
                source=judgment_rows.WORKBENCH,
                before=None,
                note=note,
            )
            return label_events.read_one(cursor, number)

    def marks(self) -> list[LabelEvent]:
        """What was skipped or called unclear by anybody, and not undone, oldest first."""
        with self._database.reading() as cursor:
            return label_events.marks(cursor)

    def call_judge_wrong(self, qid: str, memory_id: str, reviewer: str, model: str) -> LabelEvent:
        """Note that a person finds a model's judgment of a pair wrong; nobody's label changes."""
        return self._mark(label_events.JUDGE_WRONG, (qid, memory_id, reviewer, "human"), model)

    def judged_wrong(self) -> list[LabelEvent]:
        """The pairs that a person called a model judge wrong on, and did not take back; the note names the model."""
        with self._database.reading() as cursor:
            return label_events.judged_wrong(cursor)

    def take_back(self, mark: LabelEvent) -> None:
        """Take a mark back: a skip, an "unclear" or a "judge wrong"; labels are taken back by `undo`."""
        if mark.action == "label":
            raise InputError("a label is taken back by its undo")
        with self._database.transaction() as cursor:
            label_rows.take_back(cursor, mark, datetime.now(UTC))

    def undo(self, reviewer: str, kind: str = "human") -> LabelEvent | None:
        """Take back this reviewer's latest label, skip or "unclear" not undone yet; returns it, None when there is none.

        What stood there before the label stands there again. Called again, it takes back the one before.
        """
        with self._database.transaction() as cursor:
            event = label_events.last_undoable(cursor, reviewer, kind)
            if event is not None:
                label_rows.take_back(cursor, event, datetime.now(UTC))
            return event

    def history(self, reviewer: str, qid: str | None = None, memory_id: str | None = None) -> list[LabelEvent]:
        """What was done to a reviewer's labels, of one query or memory or all, oldest first."""
        with self._database.reading() as cursor:
            return label_events.history(cursor, reviewer, qid, memory_id)

    def decide(self, qid: str, memory_id: str, grade: int | None, decided_by: str, note: str | None = None) -> Decision:
        """Decide a conflict by name, apart from the raw labels; None takes the decision back. Raises InputError."""
        check_name(decided_by)
        decision = Decision(qid, memory_id, grade, decided_by, note, datetime.now(UTC))
        if grade is not None:
            with self._database.reading() as cursor:
                _check(cursor, qid, memory_id, grade)
        with self._database.transaction() as cursor:
            adjudication_rows.append(cursor, decision)
        return decision

    def decisions(self) -> list[Decision]:
        """The decisions that count, by qid and memory."""
        with self._database.reading() as cursor:
            return adjudication_rows.read(cursor)

    def decision_history(self, qid: str, memory_id: str) -> list[Decision]:
        """Every decision on one pair, oldest first."""
        with self._database.reading() as cursor:
            return adjudication_rows.history(cursor, qid, memory_id)

    def count_feedback(self, counts: Mapping[str, tuple[int, int]]) -> int:
        """Set how often each memory was relevant and noise, which `adjust.feedback` reads; returns how many changed.

        `counts` (relevant, noise) by memory id come from `formats.cems_feedback.counts`; other memories keep theirs.
        """
        with self._database.transaction() as cursor:
            changed = feedback_rows.write(cursor, counts) if counts else 0
            if changed:
                schema.bump_content_version(cursor)
            return changed

    def scale_of(self, qid: str) -> GradeScale:
        """The scale a query is graded on: that of the sets it is in, the last by name where they differ; else the default."""
        with self._database.reading() as cursor:
            scales = query_set_rows.scales_of(cursor, [qid]).get(qid)
        return scales[max(scales)] if scales else DEFAULT_SCALE

    def keep_queue(self, queue: QueueRecord) -> None:
        """Keep a queue, in place of one of the same name; raises InputError for its name, its overlap or a repeated pair."""
        check_name(queue.name)
        if queue.overlap < 1:
            raise InputError(f"queue {queue.name}: the overlap must be at least 1, found {queue.overlap}")
        if len(set(queue.pairs)) < len(queue.pairs):
            raise InputError(f"queue {queue.name}: a pair stands more than once")
        with self._database.transaction() as cursor:
            queue_rows.write(cursor, queue)

    def queues(self) -> list[QueueRecord]:
        """The kept queues without their pairs and rankings, by name."""
        with self._database.reading() as cursor:
            return queue_rows.read(cursor)

    def queue_pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        """The pairs (qid, memory_id) of a queue in order; those of deleted memories are left out."""
        with self._database.reading() as cursor:
            return queue_rows.pairs(cursor, name)

    def queue_rankings(self, name: str) -> dict[str, dict[str, tuple[str, ...]]]:
        """The results of each config, by name and qid, within the depth of the queue, as they were when it was made."""
        with self._database.reading() as cursor:
            return queue_rows.rankings(cursor, name)

    def queue_labels(self, name: str) -> list[Judgment]:
        """What people have said of the pairs of a queue."""
        with self._database.reading() as cursor:
            return queue_rows.labels(cursor, name)

    def forget_queue(self, name: str) -> bool:
        """Take a queue away; the labels stay. False when there was none."""
        with self._database.transaction() as cursor:
            return queue_rows.remove(cursor, name)


def _check(cursor: duckdb.DuckDBPyConnection, qid: str, memory_id: str, grade: int) -> None:
    if not query_rows.known_qids(cursor, [qid]):
        raise InputError(f"no query {qid!r} in the store")
    if not memory_rows.known_ids(cursor, [memory_id]):
        raise InputError(f"no memory {memory_id!r} in the store")
    reason = off_scale(grade, query_set_rows.scales_of(cursor, [qid]).get(qid, {}))
    if reason:
        raise InputError(reason)
