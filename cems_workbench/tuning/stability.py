"""Stability: how far each value of the proposal can move, alone, before the objective falls by more than one standard error.

A value is within one standard error if, over the same queries,

    mean(d) >= -sd(d) / sqrt(Q),    d = score there - score of the proposal

The region of a number is the range of values around the proposal that stay within: walked outwards over up to `COARSE_POINTS` values of its
range, then narrowed between the last inside and the first outside to a single step. A region that reaches the end of the range says
that the range was too narrow to see more. The region of a choice is every choice that stays within.

Source: the one-standard-error rule, Breiman et al., Classification and regression trees, 1984, paired over queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cems_workbench.pipeline.table import Floats
from cems_workbench.progress import Progress, silent
from cems_workbench.tuning.learned import CURVE_POINTS, axis_of, mean_and_error, scores_at, values_around
from cems_workbench.tuning.scorer import Score
from cems_workbench.tuning.space import Axis
from cems_workbench.tuning.tune import Tuned

COARSE_POINTS = CURVE_POINTS
SCORE_TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True)
class Region:
    """The values of one parameter that stay within one standard error of the proposal."""

    path: str
    own: Any
    low: Any = None
    """The lowest value of a number's region; None for a choice, and for a proposal that is null."""
    high: Any = None
    at_low_edge: bool = False
    """Whether the region reaches the lowest searched value."""
    at_high_edge: bool = False
    choices: tuple[Any, ...] = ()
    """The choices within one standard error, the proposal's own among them; empty for a number."""


def stability(tuned: Tuned, score: Score, objective: int = 0, progress: Progress = silent) -> list[Region]:
    """The region of every searched parameter, in their order; values that the curves have replayed cost nothing.

    `progress` is called for each parameter, and may raise Cancelled.
    """
    axes = tuned.plan.space.axes
    regions = []
    for number, axis in enumerate(axes):
        progress(axis.path, number, len(axes))
        regions.append(region(tuned, score, axis.path, objective))
    progress("", len(axes), len(axes))
    return regions


def region(tuned: Tuned, score: Score, path: str, objective: int = 0) -> Region:
    """How far one parameter can move. Raises InputError if it was not searched."""
    at, axis = axis_of(tuned.plan.space, path)
    proposal = tuned.proposal.values
    own = scores_at(tuned, score, proposal, objective)
    assert own is not None  # the proposal is always scored

    def inside(value: Any) -> bool:
        there = scores_at(tuned, score, (*proposal[:at], value, *proposal[at + 1 :]), objective)
        return there is not None and within_one_error(there - own)

    values = values_around(axis, proposal[at], COARSE_POINTS)
    if axis.choices or proposal[at] is None:
        return Region(path, proposal[at], choices=tuple(value for value in values if inside(value)))
    middle = values.index(proposal[at])
    low = _furthest(axis, values[middle::-1], inside)
    high = _furthest(axis, values[middle:], inside)
    ends = axis.value(0), axis.value(axis.size - 1)
    return Region(path, proposal[at], low, high, low <= ends[0], high >= ends[1])


def within_one_error(difference: Floats) -> bool:
    """Whether the mean of (Q) paired differences to the proposal is at most one standard error below 0."""
    mean, error = mean_and_error(difference)
    return mean >= -error - SCORE_TOLERANCE


def _furthest(axis: Axis, outwards: Sequence[Any], inside: Callable[[Any], bool]) -> Any:
    """The last value inside, walking from the proposal, the first of `outwards`, to the end of the range."""
    last = outwards[0]
    for value in outwards[1:]:
        if not inside(value):
            return _narrowed(axis, last, value, inside)
        last = value
    return last


def _narrowed(axis: Axis, last: Any, first: Any, inside: Callable[[Any], bool]) -> Any:
    """The outermost value inside, by bisection between a value inside and one outside."""
    low, high = min(last, first), max(last, first)
    between = [value for value in map(axis.value, range(axis.size)) if low < value < high]
    if first < last:
        between.reverse()
    near, far = 0, len(between)  # those before `near` are inside, those from `far` on outside
    while near < far:
        middle = (near + far) // 2
        if inside(between[middle]):
            near = middle + 1
        else:
            far = middle
    return between[near - 1] if near else last
