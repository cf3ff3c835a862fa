"""What a search learned: importance of the parameters, response curves around the proposal, and stability of its values.

Importance is the share of the variance of the objective over the space that a parameter explains alone:

    importance = var over its values v of mean(y | v)  /  var(y)

On a complete grid it is exact: the main effects of an analysis of variance. Otherwise a random forest is fitted to the trials, and the
variance of its predictions is decomposed in the same way (functional ANOVA, 64 trees, seeded). The shares add up to 1 less the
interactions of parameters. A pruned trial counts with its estimate.

Responses are measured, not modelled: every value is replayed on all open queries; values that the search has scored cost nothing. Sealed
queries are not scored.

Source: Fisher 1925; Hutter, Hoos & Leyton-Brown, An efficient approach for assessing hyperparameter importance, 2014; Optuna.

Stability is how far each value of the proposal can move alone. A value is within one standard error if, over the same queries,

    mean(d) >= -sd(d) / sqrt(Q),    d = score there - score of the proposal

The region of a number is the range of values around the proposal that stay within: walked outwards over up to `CURVE_POINTS` values of
its range, then narrowed between the last inside and the first outside to a single step. A region that reaches the end of the range says
that the range was too narrow to see more. The region of a choice is every choice that stays within.

Source: the one-standard-error rule, Breiman et al., Classification and regression trees, 1984, paired over queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cems_workbench.errors import InputError
from cems_workbench.pipeline.table import Floats
from cems_workbench.progress import Progress, silent
from cems_workbench.tuning.scorer import Score
from cems_workbench.tuning.space import Axis, SearchSpace
from cems_workbench.tuning.tune import Search, Tuned

MIN_FOREST_TRIALS = 8
"""Minimum number of trials for a forest."""
CURVE_POINTS = 25
"""Values of a parameter that are replayed for a curve, and at first for a region."""


@dataclass(frozen=True, slots=True)
class Importance:
    """The share of the variance of the objective that each parameter explains alone, largest first."""

    shares: tuple[tuple[str, float], ...]
    together: float
    """The rest of 1: interactions of parameters."""
    exact: bool
    """Whether it is of a complete grid; otherwise it is of a forest fitted to the trials."""
    trials: int


@dataclass(frozen=True, eq=False)
class Curve:
    """The objective at V values of one parameter, everything else as in the proposal. NaN if a constraint is violated."""

    path: str
    values: tuple[Any, ...]
    own: int
    """Index of the proposal's value."""
    mean: Floats
    """(V) over the open queries."""
    difference: Floats
    """(V) mean of the paired differences to the proposal."""
    difference_error: Floats
    """(V) standard error of that."""


def importance(space: SearchSpace, searched: Search, seed: int = 0) -> Importance | None:
    """The importance of each parameter for the first objective. None for too few trials, or if all reached the same."""
    # Only the baseline may have a value that is no choice, or null instead of a number.
    trials = [
        trial
        for trial in searched.trials
        if all(
            value in axis.choices if axis.choices else value is not None
            for axis, value in zip(space.axes, trial.values, strict=True)
        )
    ]
    reached = np.array([trial.reached[0] for trial in trials])
    if len(trials) < 2 or not np.ptp(reached) > 0:
        return None
    places = np.array(
        [[axis.place(value) for axis, value in zip(space.axes, trial.values, strict=True)] for trial in trials]
    )
    grid = _whole_grid(places, reached) if not any(trial.pruned for trial in trials) else None
    if grid is None and len(trials) < MIN_FOREST_TRIALS:
        return None
    shares = main_effects(grid) if grid is not None else _by_forest(space, places, reached, seed)
    named = sorted(zip((axis.path for axis in space.axes), shares.tolist(), strict=True), key=lambda row: -row[1])
    return Importance(tuple(named), max(0.0, 1.0 - float(shares.sum())), grid is not None, len(trials))


def main_effects(grid: Floats) -> Floats:
    """(N) the share of the variance of a complete grid of N parameters that each explains alone."""
    total = grid.var()
    axes = range(grid.ndim)
    return np.array([grid.mean(axis=tuple(a for a in axes if a != i)).var() / total for i in axes])


def response_curve(
    tuned: Tuned, score: Score, path: str, most: int = CURVE_POINTS, progress: Progress = silent
) -> Curve:
    """Replay up to `most` values of a searched parameter around the proposal. Raises InputError, and Cancelled of `progress`."""
    at, axis = axis_of(tuned.plan.space, path)
    proposal = tuned.proposal.values
    values = values_around(axis, proposal[at], most)
    own = scores_at(tuned, score, {})
    rows = np.empty((3, len(values)))
    for place, value in enumerate(values):
        progress(path, place, len(values))
        there = scores_at(tuned, score, {at: value})
        rows[0, place] = mean_and_error(there)[0]
        rows[1:, place] = mean_and_error(None if there is None or own is None else there - own)
    progress(path, len(values), len(values))
    rows[:2] *= tuned.plan.goal.directions[0]
    return Curve(path, values, values.index(proposal[at]), *rows)


def axis_of(space: SearchSpace, path: str) -> tuple[int, Axis]:
    """The index and the axis of a searched parameter. Raises InputError."""
    for at, axis in enumerate(space.axes):
        if axis.path == path:
            return at, axis
    raise InputError(f"{path} was not searched; searched: {', '.join(axis.path for axis in space.axes)}")


def values_around(axis: Axis, own: Any, most: int) -> tuple[Any, ...]:
    """Up to `most` values of an axis over its range, the proposal's own among them, in order; null is last."""
    values = axis.grid(most)
    if own not in values:
        values.append(own)
        if not axis.choices:
            values.sort(key=lambda value: (value is None, value if value is not None else 0))
    return tuple(values)


def scores_at(tuned: Tuned, score: Score, moved: Mapping[int, Any]) -> Floats | None:
    """(Q) the first objective of the open queries at the proposal with the values of some axes replaced; None where a
    constraint is broken. The proposal's point is an exception: a baseline may violate the constraints of the space."""
    space, proposal = tuned.plan.space, tuned.proposal.values
    values = tuple(moved.get(at, value) for at, value in enumerate(proposal))
    config = space.config(values)
    if values != proposal and not space.keeps(config):
        return None
    return score(config, tuned.plan.split.open)[:, 0]


def mean_and_error(scores: Floats | None) -> tuple[float, float]:
    """Mean and standard error, sd / sqrt(Q), of the scores that are defined; NaN for none, 0 for the error of a single query."""
    scores = np.zeros(0) if scores is None else scores[~np.isnan(scores)]
    if not len(scores):
        return float("nan"), float("nan")
    spread = float(scores.std(ddof=1)) if len(scores) > 1 else 0.0
    return float(scores.mean()), spread / float(np.sqrt(len(scores)))


def _whole_grid(places: Sequence[Sequence[int]] | Any, reached: Floats) -> Floats | None:
    """The objective as an array with an axis per parameter; None unless every combination of the tried values was
    tried. The first trial is the baseline, which is left out if it is not on the grid."""
    for start in (0, 1):
        here, values = np.asarray(places)[start:], reached[start:]
        levels = [np.unique(column) for column in here.T]
        shape = tuple(map(len, levels))
        if len(values) > 1 and np.prod(shape) == len(values) == len({tuple(row) for row in here.tolist()}):
            grid = np.empty(shape)
            at = tuple(np.searchsorted(level, column) for level, column in zip(levels, here.T, strict=True))
            grid[at] = values
            return grid if np.ptp(grid) > 0 else None
    return None


def _by_forest(space: SearchSpace, places: Any, reached: Floats, seed: int) -> Floats:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    ranges: dict[str, BaseDistribution] = {
        axis.path: CategoricalDistribution(range(axis.size)) if axis.choices else IntDistribution(0, axis.size - 1)
        for axis in space.axes
    }
    study = optuna.create_study(direction="maximize")
    for row, value in zip(places.tolist(), reached.tolist(), strict=True):
        params = dict(zip(ranges, row, strict=True))
        study.add_trial(optuna.trial.create_trial(params=params, distributions=ranges, value=value))
    shares = optuna.importance.FanovaImportanceEvaluator(seed=seed).evaluate(study, params=list(ranges))
    return np.array([shares[path] for path in ranges])


STABLE_TOLERANCE = 1e-12


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


def stability(tuned: Tuned, score: Score, progress: Progress = silent) -> list[Region]:
    """The region of every searched parameter, in their order; values that the curves have replayed cost nothing.
    `progress` is called for each parameter, and may raise Cancelled."""
    axes = tuned.plan.space.axes
    regions = []
    for number, axis in enumerate(axes):
        progress(axis.path, number, len(axes))
        regions.append(region(tuned, score, axis.path))
    progress("", len(axes), len(axes))
    return regions


def region(tuned: Tuned, score: Score, path: str) -> Region:
    """How far one parameter can move. Raises InputError if it was not searched."""
    at, axis = axis_of(tuned.plan.space, path)
    proposal = tuned.proposal.values
    own = scores_at(tuned, score, {})
    assert own is not None  # the proposal is always scored

    def inside(value: Any) -> bool:
        there = scores_at(tuned, score, {at: value})
        return there is not None and within_one_error(there - own)

    values = values_around(axis, proposal[at], CURVE_POINTS)
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
    return mean >= -error - STABLE_TOLERANCE


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
