"""Geometry of figures: positions along a scale, in percent of its width, so that a figure fits any width.

The templates draw them as inline SVG without a view box: lengths are percent across and pixels down, and text keeps its size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cems_workbench.evaluation.comparison import BETTER, WORSE

SHAPES = ("circle", "square", "diamond", "triangle")
"""Of the configs in turn, so that nobody needs to tell their colours apart."""
DASH = "–"


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale from `low` to `high`; `ticks` are (percent, number)."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """A value as percent of the way, held within it; NaN has no position and must not be drawn."""
        return round(100 * min(1.0, max(0.0, (value - self.low) / (self.high - self.low))), 2)

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """About five round numbers along the scale, each with its place."""
        span = self.high - self.low
        step = next(
            s for power in range(-9, 10) for s in (10.0**power, 2 * 10.0**power, 5 * 10.0**power) if span / s <= 6
        )
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return tuple((self.share(step * i), f"{step * i:.6g}".replace("-", "−")) for i in range(first, last + 1))


def scale_of(values: Sequence[float], around_zero: bool = False) -> Scale:
    """A scale that holds the values: 0 to 1 where that does, else with a little room; to both sides of 0 alike where asked."""
    found = [value for value in values if math.isfinite(value)]
    if around_zero:
        edge = max((abs(value) for value in found), default=0.0) * 1.1 or 0.1
        return Scale(-edge, edge)
    if not found or (min(found) >= 0 and max(found) <= 1):
        return Scale(0.0, 1.0)
    room = max((max(found) - min(found)) * 0.1, 0.01)
    return Scale(min(found) - room, max(found) + room)


@dataclass(frozen=True, slots=True)
class Mark:
    """A value with its interval along a scale: its shape at `x`, a line from `low` to `high`; `words` say the same."""

    name: str
    shape: str
    x: float
    low: float
    high: float
    words: str


def mark_at(name: str, shape: str, value: float, low: float, high: float, scale: Scale, words: str) -> Mark:
    """The mark of a value; it has no shape where there is no value, and no line where there is no interval."""
    if value != value:
        return Mark(name, "none", 0, 0, 0, words)
    ends = (low, high) if low == low and high == high else (value, value)
    return Mark(name, shape, scale.share(value), scale.share(ends[0]), scale.share(ends[1]), words)


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a stacked bar, from `x` over `width`; `colour` is a class of the style sheet."""

    x: float
    width: float
    colour: str
    words: str


def tone(said: str) -> str:
    """The class of the style sheet for a verdict: good or bad where it says so."""
    return {BETTER: "good", WORSE: "bad"}.get(said, "same")


def number(value: float | None, form: str = ".4f") -> str:
    """A figure with a true minus; a dash where there is none."""
    return DASH if value is None or not math.isfinite(value) else f"{value:{form}}".replace("-", "−")


def signed(value: float | None) -> str:
    """A difference, with its sign."""
    return number(value, "+.4f")
