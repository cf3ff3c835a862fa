"""A labelling queue that several reviewers work off at once: which card is next for whom, and how far each is.

A pair is done when `overlap` people have graded it. A reviewer gets the first pair of their order that they have not graded or skipped,
whose query they did not call unclear, and for which graders and the reviewers who look at it now are fewer than `overlap`. The order is
the queue's; of a shuffled queue everybody has an order of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.evaluation.pooling import STRATEGIES, Pair, PooledPair, Strategy, shuffled
from cems_workbench.records import Judgment, Memory, Query
from cems_workbench.store import LabelEvent, QueueRecord, Store
from cems_workbench.store.memory_rows import text_sha

PACE_LABELS = 20
PAUSE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Card:
    """What a reviewer sees, blind: no rank, no score, no config, nobody's grade."""

    queue: str
    query: Query
    memory: Memory

    def shown(self) -> dict[str, Any]:
        """What is kept with the label: the words of the query and which text of the memory was read."""
        return {
            "queue": self.queue,
            "query": self.query.query,
            "text_sha": text_sha(self.memory.content),
            "blind": True,
        }


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a reviewer is. `seconds_per_label` is the median over the latest labels, pauses left out; None at first.

    `left` are the pairs this reviewer could still be dealt, `done_by_all` those with enough graders, `total` all of the queue.
    """

    graded: int
    skipped: int
    unclear: int
    left: int
    done_by_all: int
    total: int
    seconds_per_label: float | None

    @property
    def seconds_left(self) -> float | None:
        """How long the rest would take at that pace."""
        return None if self.seconds_per_label is None else self.seconds_per_label * self.left


def make_queue(
    name: str,
    pairs: Sequence[PooledPair],
    strategy: Strategy,
    overlap: int = 1,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> QueueRecord:
    """A queue of pairs in their order; `settings` (JSON values) says how it came about. Raises InputError without pairs."""
    if strategy not in STRATEGIES:
        raise InputError(f"strategy: {strategy!r} is not one of {', '.join(STRATEGIES)}")
    if not pairs:
        raise InputError(f"queue {name}: there is no pair to judge")
    how = {**(settings or {}), "strategy": strategy, "seed": seed}
    return QueueRecord(name, datetime.now(UTC), overlap, how, tuple(one.pair for one in pairs))


class LabelQueue:
    """A kept queue at work. The store is asked anew at each call, so that all sessions see the same labels."""

    def __init__(self, store: Store, name: str) -> None:
        """Raises InputError when the store has no queue of that name."""
        self._store = store
        known = {queue.name: queue for queue in store.labels.queues()}
        if name not in known:
            raise InputError(f"no labelling queue {name!r} in the store; there are {', '.join(known) or 'none yet'}")
        self.record = known[name]
        self._pairs = store.labels.queue_pairs(name)
        self._queries = {query.qid: query for query in store.queries()}

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs in the queue's order."""
        return self._pairs

    def next_card(self, reviewer: str) -> Card | None:
        """The next card for a reviewer, held for them until they ask again; None when nothing is left for them now."""

        def choose(looking: dict[str, Pair]) -> Pair | None:
            # Read while nobody's claim can move: a label is committed before its reviewer moves on, so that a pair which
            # nobody looks at any more is seen with its label.
            graders, open_pairs = self._standing(reviewer)
            busy: dict[Pair, set[str]] = {}
            for who, pair in looking.items():
                busy.setdefault(pair, set()).add(who)
            # One who has graded a pair may still look at it, and counts once.
            free = (
                pair
                for pair in open_pairs
                if len(graders.get(pair, set()) | busy.get(pair, set())) < self.record.overlap
            )
            return next(free, None)

        pair = self._store.labels.claims.claim(reviewer, choose)
        return None if pair is None else self.card(pair)

    def card(self, pair: Pair) -> Card | None:
        """The card of a pair; None when its query or memory is gone."""
        query, memory = self._queries.get(pair[0]), self._store.memory(pair[1])
        return None if query is None or memory is None else Card(self.record.name, query, memory)

    def progress(self, reviewer: str) -> Progress:
        """How far a reviewer is, and the queue as a whole."""
        labels, marks = self._store.labels.queue_labels(self.record.name), self._store.labels.marks()
        graders, open_pairs = self._standing(reviewer, labels, marks)
        there = set(self._pairs)
        own = [label for label in labels if label.judge == reviewer and (label.qid, label.memory_id) in there]
        mine = [mark for mark in marks if mark.judge == reviewer]
        return Progress(
            graded=len(own),
            skipped=len({(mark.qid, mark.memory_id) for mark in mine if mark.action == "skip"} & there),
            unclear=len({mark.qid for mark in mine if mark.action == "unclear"} & {qid for qid, _ in there}),
            left=sum(len(graders.get(pair, ())) < self.record.overlap for pair in open_pairs),
            done_by_all=sum(len(graders.get(pair, ())) >= self.record.overlap for pair in self._pairs),
            total=len(self._pairs),
            seconds_per_label=pace(own),
        )

    def _standing(
        self, reviewer: str, labels: Sequence[Judgment] | None = None, marks: Sequence[LabelEvent] | None = None
    ) -> tuple[dict[Pair, set[str]], list[Pair]]:
        """Who graded each pair, and the pairs this reviewer has neither graded nor put aside, in their order."""
        graders: dict[Pair, set[str]] = {}
        for label in self._store.labels.queue_labels(self.record.name) if labels is None else labels:
            graders.setdefault((label.qid, label.memory_id), set()).add(label.judge)
        aside = {
            (mark.qid, mark.memory_id)
            for mark in (self._store.labels.marks() if marks is None else marks)
            if mark.judge == reviewer
        }
        order = self._order(reviewer)
        return graders, [
            pair for pair in order if reviewer not in graders.get(pair, ()) and not {pair, (pair[0], "")} & aside
        ]

    def _order(self, reviewer: str) -> Sequence[Pair]:
        if self.record.settings.get("strategy") != "shuffled":
            return self._pairs
        pairs = [PooledPair(qid, memory_id, {}) for qid, memory_id in self._pairs]
        return [one.pair for one in shuffled(pairs, f"{self.record.settings.get('seed', 0)}/{reviewer}")]


def pace(labels: Sequence[Judgment]) -> float | None:
    """The median of seconds between a reviewer's latest labels, pauses left out; None for fewer than two."""
    times = sorted(label.judged_at for label in labels if label.judged_at is not None)[-PACE_LABELS - 1 :]
    gaps = [(after - before) / timedelta(seconds=1) for before, after in pairwise(times)]
    working = [gap for gap in gaps if gap <= PAUSE_SECONDS]
    return median(working) if working else None
