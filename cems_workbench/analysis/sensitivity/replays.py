"""Replays of one evidence under one config while one parameter varies, and the intervals of its range with constant results.

Each value is replayed at most once. The boundary between neighbours with different results is searched: next to an event (a value at
which results may change) if one lies between them, else, or if the replays disagree, by bisection. Both ends of an interval were
replayed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cems_workbench.analysis.why.trial import changed
from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.replay import run, single_table
from cems_workbench.pipeline.stages import ADJUST, ASSEMBLY, GAP, RERANK
from cems_workbench.pipeline.stages.stage import PipelineRun


class ParameterSweep:
    """The results at each value of the parameter `path`.

    `k`: number of results compared. `unscored`: the largest number of candidates that the reranker needed and had not scored.
    """

    def __init__(
        self, evidence: Evidence, config: PipelineConfig, path: str, k: int, switched_off: Collection[int] = ()
    ) -> None:
        self.table = single_table(evidence)
        self.config = config
        self.path = path
        self.k = k
        self.count = 0
        self.unscored = 0
        self._off = tuple(sorted(switched_off))
        self._outcomes: dict[Any, tuple[tuple[str, ...], int]] = {}

    def stages(self, value: Any) -> PipelineRun:
        """Every stage's arrays at a value."""
        self.count += 1
        return run(self.table, changed(self.config, self.path, value), self._off)

    def results(self, value: Any) -> tuple[str, ...]:
        """The first k results at a value."""
        return self._outcome(value)[0]

    def depth(self, value: Any) -> int:
        """The depth of the order after adjust that these results depend on: the largest rank there of a result.

        With fewer than k results (and fewer than the limit), all candidates after the score gap were considered.
        """
        return self._outcome(value)[1]

    def _outcome(self, value: Any) -> tuple[tuple[str, ...], int]:
        if value not in self._outcomes:
            stages = self.stages(value)
            order = stages.of(ASSEMBLY).after.order(0)
            limit = changed(self.config, self.path, value).assembly.limit
            wanted = self.k if limit is None else min(self.k, limit)
            order = considered = order[: self.k]
            if self.config.rerank.position == "returned":
                # A reranker of the results puts any of those it reads first, whatever their rank before.
                considered = stages.of(RERANK).after.order(0)
            ranks = stages.of(ADJUST).after.rank[0, considered]
            depth = int(ranks.max()) if len(order) >= wanted else int(stages.of(GAP).after.alive[0].sum())
            ids = self.table.ids[0]
            self.unscored = max(self.unscored, sum(len(need.memory_ids) for need in stages.of(RERANK).needs(0)))
            self._outcomes[value] = tuple(ids[int(c)] for c in order), depth
        return self._outcomes[value]


Results = tuple[str, ...]
Replayed = Callable[[Any], Results]

EVENT_OFFSETS = (1.0, 10.0, 100.0, 1000.0)
"""Distances from an event at which its two sides are replayed, in tolerances; lines crossing at a small angle need more."""


@dataclass(frozen=True, slots=True)
class ConstantInterval:
    """An interval of values with the same results; `first` and `last` were replayed."""

    first: Any
    last: Any
    results: Results


@dataclass(frozen=True)
class BoundarySearch:
    """Search for boundaries: to a distance of `least` (1 for whole numbers), first at distance `beside` from an event."""

    results: Replayed
    least: float
    whole: bool
    beside: float
    events: Sequence[float] = ()

    def segments(self, samples: Sequence[Any]) -> tuple[list[ConstantInterval], int]:
        """The segments over ascending samples, and how many changes were not where an event is."""
        found: list[ConstantInterval] = []
        searched = 0
        for value in samples:
            right = ConstantInterval(value, value, self.results(value))
            if found and found[-1].results != right.results:
                pair = self._at_an_event(found[-1], right)
                between = pair or list(self._bisected(found[-1].last, right.first))
                searched += pair is None and bool(between)
                for inner in between:
                    _append(found, ConstantInterval(inner, inner, self.results(inner)))
            _append(found, right)
        return found, searched

    def _at_an_event(self, left: ConstantInterval, right: ConstantInterval) -> list[Any] | None:
        """Two values on either side of an event with the results of the neighbours; None if there is no such event."""
        if self._close(left.last, right.first):
            return []
        low, high = bisect_left(self.events, left.last), bisect_right(self.events, right.first)
        for event in self.events[low:high]:
            for far in EVENT_OFFSETS:
                pair = [max(left.last, event - far * self.beside), min(right.first, event + far * self.beside)]
                if [self.results(value) for value in pair] == [left.results, right.results]:
                    return pair
        return None

    def _bisected(self, low: Any, high: Any) -> Iterator[Any]:
        """Values between, ascending, that close in on each change met on the way."""
        if self._close(low, high) or self.results(low) == self.results(high):
            return
        middle = (low + high) // 2 if self.whole else (low + high) / 2
        if middle in (low, high):
            return
        yield from self._bisected(low, middle)
        yield middle
        yield from self._bisected(middle, high)

    def _close(self, low: Any, high: Any) -> bool:
        return bool(high - low <= self.least)


def _append(found: list[ConstantInterval], segment: ConstantInterval) -> None:
    if found and found[-1].results == segment.results:
        found[-1] = ConstantInterval(found[-1].first, segment.last, segment.results)
    else:
        found.append(segment)
