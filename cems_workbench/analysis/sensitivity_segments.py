"""From results at single values to segments of a range: neighbours that differ are closed in on until nothing lies between.

Where an event (a value at which the results may change) lies between two samples, the change is looked for right beside it;
else, or when the replays do not agree, it is bisected. Every end of a segment was replayed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Results = tuple[str, ...]
Replayed = Callable[[Any], Results]

BESIDE = (1.0, 10.0, 100.0, 1000.0)
"""How far beside an event its two sides are replayed, in tolerances: lines that cross at a small angle need more."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of values with the same results; `first` and `last` were replayed."""

    first: Any
    last: Any
    results: Results


@dataclass(frozen=True)
class Closing:
    """How neighbours are closed in on: to `least` apart (1 for whole numbers), events `beside` which a change is expected."""

    results: Replayed
    least: float
    whole: bool
    beside: float
    events: Sequence[float] = ()

    def segments(self, samples: Sequence[Any]) -> tuple[list[Segment], int]:
        """The segments over ascending samples, and how many changes were not where an event is."""
        found: list[Segment] = []
        searched = 0
        for value in samples:
            right = Segment(value, value, self.results(value))
            if found and found[-1].results != right.results:
                pair = self._at_an_event(found[-1], right)
                between = pair or list(self._bisected(found[-1].last, right.first))
                searched += pair is None and bool(between)
                for inner in between:
                    _append(found, Segment(inner, inner, self.results(inner)))
            _append(found, right)
        return found, searched

    def _at_an_event(self, left: Segment, right: Segment) -> list[Any] | None:
        """Two values beside an event that have the results of either side; None when there is no such event."""
        if self._close(left.last, right.first):
            return []
        low, high = bisect_left(self.events, left.last), bisect_right(self.events, right.first)
        for event in self.events[low:high]:
            for far in BESIDE:
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


def _append(found: list[Segment], segment: Segment) -> None:
    if found and found[-1].results == segment.results:
        found[-1] = Segment(found[-1].first, segment.last, segment.results)
    else:
        found.append(segment)
