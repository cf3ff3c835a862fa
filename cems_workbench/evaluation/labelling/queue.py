"""A labelling queue that several reviewers work off at once: which card is next for whom, and how far each is.

A pair is done when `overlap` people have graded it. A reviewer gets the first pair of their order that they have not graded or skipped,
whose query they did not call unclear or without an answer, and for which graders and the reviewers who look at it now are fewer than
`overlap`. The order is the queue's; in a shuffled queue every reviewer has a separate order, and a decisive queue is reordered
for each card. In a queue of doubtful moves a reviewer says whether a memory has what was judged of another; one of them is enough.

*Decisive first* deals the pairs whose label could change which of two configs is better on nDCG@k. The difference of two configs on a
query, with gain g of memory m and discount d(r) = 1 / log2(1 + r) up to rank k and 0 beyond, is

    DCG_A - DCG_B = sum over m of g(m) * (d(rank of m under A) - d(rank of m under B))

so a memory that both rank alike cannot decide, regardless of its grade, and a query that both rank alike needs no label at all. A label is
worth |d_A - d_B| times the chance that the memory is relevant, over the gain already known to be there (which nDCG divides by). The
labels that are known narrow that: a pair judged needs none, and the gain of a relevant memory makes the rest of its query worth less.

Source: Carterette, Allan and Sitaraman, "Minimal Test Collections for Retrieval Evaluation" (SIGIR 2006), there for average precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import InputError
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.evaluation.labelling.pooling import STRATEGIES, Pair, PooledPair, Ranked, Strategy, pool, shuffled
from cems_workbench.records import GradeScale, Judgment, Memory, Query
from cems_workbench.store import LabelEvent, QueueRecord, Store
from cems_workbench.store.rebase import MOVES
from cems_workbench.store.rows import text_sha

CUTOFF = 10
"""Ranks that nDCG looks at."""
PACE_WINDOW = 20
PAUSE_S = 300.0


def discount(rank: int | None, k: int = CUTOFF) -> float:
    """1 / log2(1 + rank) within the first k, else 0; None is not ranked."""
    return float(1 / np.log2(1 + rank)) if rank is not None and rank <= k else 0.0


def swing(pair: PooledPair, first: str, second: str) -> float:
    """What a relevant label adds to the DCG of config `first` less that of `second`; 0: it cannot decide."""
    return discount(pair.ranks.get(first)) - discount(pair.ranks.get(second))


def by_rank(pair: PooledPair) -> float:
    """The chance of being relevant: falling with the best rank."""
    return 1 / (1 + pair.best_rank)


def decisive_first(
    pairs: Sequence[PooledPair], first: str, second: str, grades: Mapping[Pair, int] | None = None
) -> list[PooledPair]:
    """The pairs without a grade that could decide between two configs, the most decisive first, ties by query and
    memory. `grades` are the labels known. Pairs that cannot decide are left out."""
    known = grades or {}
    undecided = [pooled for pooled in pairs if pooled.pair not in known and swing(pooled, first, second) != 0]
    undecided.sort(key=lambda pooled: pooled.pair)
    order = by_worth(undecided, stakes(undecided, first, second), gains(known))
    return [undecided[at] for at in order]


def stakes(pairs: Sequence[PooledPair], first: str, second: str) -> NDArray[np.float64]:
    """What a label of each pair is worth while its query has no gain yet: |swing| times the chance that it is relevant."""
    return np.array([abs(swing(pooled, first, second)) * by_rank(pooled) for pooled in pairs], np.float64)


def gains(grades: Mapping[Pair, int]) -> dict[str, float]:
    """The gain that is known to be there, by qid: the sum of its grades."""
    gained: dict[str, float] = {}
    for (qid, _), grade in grades.items():
        gained[qid] = gained.get(qid, 0.0) + max(grade, 0)
    return gained


def by_worth(pairs: Sequence[PooledPair], stake: NDArray[np.float64], gained: Mapping[str, float]) -> list[int]:
    """The places of the pairs, most worth first, ties in their order; cheap enough to be asked after every label."""
    over = np.array([1 + gained.get(pair.qid, 0.0) for pair in pairs], np.float64)
    return [int(at) for at in np.argsort(-stake / over, kind="stable")]


@dataclass(frozen=True, slots=True)
class Card:
    """What a reviewer sees, blind: no rank, no score, no config, nobody's grade."""

    queue: str
    query: Query
    memory: Memory
    place: tuple[int, int] | None = None
    """Which card of its query this is, from 1, of how many; None where a query's cards do not follow one another."""
    judged: Mapping[str, str] = field(default_factory=dict)
    """Of a doubtful move the judged memories whose text this one may have, by id, as they were judged."""

    def shown(self) -> dict[str, Any]:
        """What is kept with the label: the words of the query and which text of the memory was read."""
        return {
            "queue": self.queue,
            "query": self.query.query,
            "text_sha": text_sha(self.memory.content),
            "blind": True,
        }


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a reviewer is. `seconds_per_label` is the median over the latest labels, pauses left out; None at first.
    `left` are the pairs this reviewer could still be dealt, `done_by_all` those with enough graders, `total` all of the
    queue."""

    graded: int
    skipped: int
    unclear: int
    without_answer: int
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
    rankings: Mapping[str, Ranked] | None = None,
) -> QueueRecord:
    """A queue of pairs in their order; `settings` (JSON values) says how it came about, `rankings` what each config
    returned. Raises InputError without pairs."""
    if strategy not in STRATEGIES:
        raise InputError(f"strategy: {strategy!r} is not one of {', '.join(STRATEGIES)}")
    if not pairs:
        raise InputError(f"queue {name}: there is no pair to judge")
    recorded = {**(settings or {}), "strategy": strategy, "seed": seed}
    returned = {
        config: {qid: tuple(results) for qid, results in ranked.items()} for config, ranked in (rankings or {}).items()
    }
    return QueueRecord(name, datetime.now(UTC), overlap, recorded, tuple(pooled.pair for pooled in pairs), returned)


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """What people had said of a queue's pairs, and what was skipped, called unclear or without an answer, at one moment."""

    labels: tuple[Judgment, ...]
    marks: tuple[LabelEvent, ...]


class LabelQueue:
    """A kept queue at work. The store is read at each call, so that all sessions see the same labels."""

    def __init__(self, store: Store, name: str) -> None:
        """Raises InputError when the store has no queue of that name."""
        self._store = store
        known = {queue.name: queue for queue in store.queues.read()}
        if name not in known:
            raise InputError(f"no labelling queue {name!r} in the store; there are {', '.join(known) or 'none yet'}")
        self.record = known[name]
        self._pairs = store.queues.pairs(name)
        self.moves: dict[Pair, list[str]] = {}
        """By pair the judged memories whose text its memory may have, in a queue of doubtful moves."""
        for qid, target, judged in self.record.settings.get(MOVES, ()):
            self.moves.setdefault((qid, target), []).append(judged)
        self._queries = {query.qid: query for query in store.queries.read()}
        self._shuffled: dict[str, Sequence[Pair]] = {}
        self._scales: dict[str, GradeScale] = {}
        self._decisive = self._decisive_order()
        self._open_at: tuple[str, QueueSnapshot, Mapping[Pair, set[str]], Sequence[Pair]] | None = None

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs in the order they were kept in."""
        return self._pairs

    def snapshot(self) -> QueueSnapshot:
        """The labels and marks so far; of doubtful moves 1 is accepted, 0 rejected."""
        labels = self._store.queues.labels(self.record.name) if not self.moves else self._decided()
        return QueueSnapshot(tuple(labels), tuple(self._store.labels.marks()))

    def _decided(self) -> list[Judgment]:
        said = [one for one in self._store.labels.moves() if (one.qid, one.memory_id) in self.moves]
        return [Judgment(one.qid, one.memory_id, int(one.action == "accept"), one.judge, judged_at=one.recorded_at) for one in said]

    def deal(self, reviewer: str) -> tuple[Card | None, QueueSnapshot]:
        """The next card, held for its reviewer until they ask again, or None if nothing is left for them; and what it was chosen by."""
        chosen_by: list[QueueSnapshot] = []

        def choose(looking: dict[str, Pair]) -> Pair | None:
            # Read while nobody's claim can move: a label is committed before its reviewer moves on, so that a pair which
            # nobody looks at any more is seen with its label.
            chosen_by.append(self.snapshot())
            graders, open_pairs = self._open(reviewer, chosen_by[-1])
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

        pair = self._store.queues.claims.claim(reviewer, choose)
        return None if pair is None else self.card(pair), chosen_by[-1]

    def card(self, pair: Pair) -> Card | None:
        """The card of a pair; None when its query or memory is gone."""
        query, memory = self._queries.get(pair[0]), self._store.memories.get(pair[1])
        if query is None or memory is None:
            return None
        olds = self.moves.get(pair, ())
        texts = self._store.judged_texts(olds) if olds else {}
        judged = {key: texts[key].text if key in texts else f"The text of {key} was not kept." for key in olds}
        return Card(self.record.name, query, memory, self._place(pair), judged)

    def _place(self, pair: Pair) -> tuple[int, int] | None:
        """Where a pair stands among those of its query, and how many those are; None unless the queue goes by query."""
        if self.record.settings.get("strategy") != "query" or pair not in self._pairs:
            return None
        same = [each for each in self._pairs if each[0] == pair[0]]
        return same.index(pair) + 1, len(same)

    def scale(self, qid: str) -> GradeScale:
        """The grades of a query, read once."""
        if qid not in self._scales:
            self._scales[qid] = self._store.query_sets.scale_of(qid)
        return self._scales[qid]

    def progress(self, reviewer: str, snapshot: QueueSnapshot | None = None) -> QueueProgress:
        """How far a reviewer is, and the queue as a whole, at the moment of a snapshot, or now."""
        now = snapshot or self.snapshot()
        graders, open_pairs = self._open(reviewer, now)
        there = set(self._pairs)
        own = [label for label in now.labels if label.judge == reviewer]
        mine = [mark for mark in now.marks if mark.judge == reviewer]
        return QueueProgress(
            graded=len(own),
            skipped=len({(mark.qid, mark.memory_id) for mark in mine if mark.action == "skip"} & there),
            unclear=len({mark.qid for mark in mine if mark.action == "unclear"} & {qid for qid, _ in there}),
            without_answer=len({mark.qid for mark in mine if mark.action == "label"} & {qid for qid, _ in there}),
            left=sum(len(graders.get(pair, ())) < self.record.overlap for pair in open_pairs),
            done_by_all=sum(len(graders.get(pair, ())) >= self.record.overlap for pair in self._pairs),
            total=len(self._pairs),
            seconds_per_label=pace(own),
        )

    def _open(self, reviewer: str, now: QueueSnapshot) -> tuple[Mapping[Pair, set[str]], Sequence[Pair]]:
        """Who graded each pair, and the pairs this reviewer has neither graded nor put aside, in their order. Of the
        latest snapshot it is computed once: dealing a card and counting what is left ask for the same."""
        if self._open_at is not None and self._open_at[0] == reviewer and self._open_at[1] is now:
            return self._open_at[2:]
        graders: dict[Pair, set[str]] = {}
        for label in now.labels:
            graders.setdefault((label.qid, label.memory_id), set()).add(label.judge)
        aside = {(mark.qid, mark.memory_id) for mark in now.marks if mark.judge == reviewer}
        order = self._order(reviewer, now.labels)
        pairs = [pair for pair in order if reviewer not in graders.get(pair, ()) and not {pair, (pair[0], "")} & aside]
        self._open_at = reviewer, now, graders, pairs
        return graders, pairs

    def _order(self, reviewer: str, labels: Sequence[Judgment]) -> Sequence[Pair]:
        if self._decisive is not None:
            return self._decisive(labels)
        if self.record.settings.get("strategy") != "shuffled":
            return self._pairs
        if reviewer not in self._shuffled:
            pairs = [PooledPair(qid, memory_id, {}) for qid, memory_id in self._pairs]
            drawn = shuffled(pairs, f"{self.record.settings.get('seed', 0)}/{reviewer}")
            self._shuffled[reviewer] = [pooled.pair for pooled in drawn]
        return self._shuffled[reviewer]

    def _decisive_order(self) -> Callable[[Sequence[Judgment]], Sequence[Pair]] | None:
        """The order under some labels of a queue that is decisive first; None for another, and where its rankings were not kept."""
        compared = list(self.record.settings.get("configs", ()))[:2]
        rankings = self._store.queues.rankings(self.record.name)
        if (
            self.record.settings.get("strategy") != "decisive"
            or len(compared) < 2
            or not rankings.keys() >= {*compared}
        ):
            return None
        there = set(self._pairs)
        depth = max(len(results) for ranked in rankings.values() for results in ranked.values())
        by_pair = {pooled.pair: pooled for pooled in pool(rankings, depth)}
        pairs = [by_pair.get(pair, PooledPair(*pair, {})) for pair in sorted(there)]
        stake = stakes(pairs, compared[0], compared[1])
        elsewhere = [
            judgment
            for judgment in self._store.judgments.read(kind="human")
            if (judgment.qid, judgment.memory_id) not in there
        ]

        def order(labels: Sequence[Judgment]) -> Sequence[Pair]:
            agreed = agreed_grades([*elsewhere, *labels], "human")
            known = {(qid, key): grade for qid, row in agreed.items() for key, grade in row.items()}
            return [pairs[at].pair for at in by_worth(pairs, stake, gains(known))]

        return order


def pace(labels: Sequence[Judgment]) -> float | None:
    """The median of seconds between a reviewer's latest labels, pauses left out; None for fewer than two."""
    times = sorted(label.judged_at for label in labels if label.judged_at is not None)[-PACE_WINDOW - 1 :]
    gaps = [(after - before) / timedelta(seconds=1) for before, after in pairwise(times)]
    working = [gap for gap in gaps if gap <= PAUSE_S]
    return median(working) if working else None
