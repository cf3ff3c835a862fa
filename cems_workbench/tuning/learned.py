"""Parameter importance of a search, and response curves of one or two parameters around the proposal.

Importance is the share of the variance of the objective over the space that a parameter explains alone:

    importance = var over its values v of mean(y | v)  /  var(y)

On a complete grid it is exact: the main effects of an analysis of variance. Otherwise a random forest is fitted to the trials, and the
variance of its predictions is decomposed in the same way (functional ANOVA, 64 trees, seeded). The shares add up to 1 less the
interactions of parameters. A pruned trial counts with its estimate.

Responses are measured, not modelled: every value is replayed on all open queries; values that the search has scored cost nothing. Sealed
queries are not scored.

Source: Fisher 1925; Hutter, Hoos & Leyton-Brown, An efficient approach for assessing hyperparameter importance, 2014; Optuna.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cems_workbench.errors import InputError
from cems_workbench.pipeline.table import Floats
from cems_workbench.progress import Progress, silent
from cems_workbench.tuning.optimizer import Search, Trial
from cems_workbench.tuning.scorer import Score
from cems_workbench.tuning.space import Axis, SearchSpace, Values
from cems_workbench.tuning.tune import Tuned

MIN_FOREST_TRIALS = 8
"""Minimum number of trials for a forest."""
CURVE_POINTS, SURFACE_POINTS = 25, 12
"""Values of a parameter that are replayed for a curve, and for each side of a surface."""


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
    error: Floats
    """(V) standard error of the mean."""
    difference: Floats
    """(V) mean of the paired differences to the proposal."""
    difference_error: Floats
    """(V) standard error of that, which is far smaller than `error`: the queries are the same."""


@dataclass(frozen=True, eq=False)
class Surface:
    """The objective at A × B values of two parameters, everything else as in the proposal. NaN if a constraint is violated."""

    paths: tuple[str, str]
    values: tuple[tuple[Any, ...], tuple[Any, ...]]
    own: tuple[int, int]
    mean: Floats
    """(A, B) over the open queries."""
    error: Floats
    """(A, B) standard error of the mean."""


def importance(space: SearchSpace, searched: Search, objective: int = 0, seed: int = 0) -> Importance | None:
    """The importance of each parameter for an objective. None for too few trials, or if all have the same objective."""
    trials = [trial for trial in searched.trials if _on_axes(space, trial)]
    reached = np.array([trial.reached[objective] for trial in trials])
    if len(trials) < 2 or not np.ptp(reached) > 0:
        return None
    places = np.array([_places(space, trial.values) for trial in trials])
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
    tuned: Tuned, score: Score, path: str, most: int = CURVE_POINTS, objective: int = 0, progress: Progress = silent
) -> Curve:
    """Replay up to `most` values of a searched parameter around the proposal. Raises InputError, and Cancelled of `progress`."""
    at, axis = axis_of(tuned.plan.space, path)
    proposal = tuned.proposal.values
    values = values_around(axis, proposal[at], most)
    own = scores_at(tuned, score, proposal, objective)
    rows = np.empty((4, len(values)))
    for place, value in enumerate(values):
        progress(path, place, len(values))
        there = scores_at(tuned, score, (*proposal[:at], value, *proposal[at + 1 :]), objective)
        rows[:2, place] = mean_and_error(there)
        rows[2:, place] = mean_and_error(None if there is None or own is None else there - own)
    progress(path, len(values), len(values))
    rows[::2] *= tuned.plan.goal.directions[objective]
    return Curve(path, values, values.index(proposal[at]), *rows)


def response_surface(
    tuned: Tuned,
    score: Score,
    paths: tuple[str, str],
    most: int = SURFACE_POINTS,
    objective: int = 0,
    progress: Progress = silent,
) -> Surface:
    """Replay up to `most` × `most` values of two searched parameters. Raises InputError, and Cancelled of `progress`."""
    (i, first), (j, second) = (axis_of(tuned.plan.space, path) for path in paths)
    if i == j:
        raise InputError(f"{paths[0]}: a surface is of two different parameters")
    proposal = tuned.proposal.values
    values = values_around(first, proposal[i], most), values_around(second, proposal[j], most)
    shape = len(values[0]), len(values[1])
    mean, error = np.empty(shape), np.empty(shape)
    for a, b in np.ndindex(shape):
        progress(" × ".join(paths), a * shape[1] + b, shape[0] * shape[1])
        there = list(proposal)
        there[i], there[j] = values[0][a], values[1][b]
        mean[a, b], error[a, b] = mean_and_error(scores_at(tuned, score, tuple(there), objective))
    progress(" × ".join(paths), shape[0] * shape[1], shape[0] * shape[1])
    own = values[0].index(proposal[i]), values[1].index(proposal[j])
    return Surface(paths, values, own, mean * tuned.plan.goal.directions[objective], error)


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


def scores_at(tuned: Tuned, score: Score, values: Values, objective: int = 0) -> Floats | None:
    """(Q) an objective of the open queries at a point of the space; None where a constraint is broken.

    The proposal's point is an exception: a baseline may violate the constraints of the space.
    """
    space = tuned.plan.space
    config = space.config(values)
    if values != tuned.proposal.values and not space.keeps(config):
        return None
    return score(config, tuned.plan.split.open)[:, objective]


def mean_and_error(scores: Floats | None) -> tuple[float, float]:
    """Mean and standard error, sd / sqrt(Q), of the scores that are defined; NaN for none, 0 for the error of a single query."""
    scores = np.zeros(0) if scores is None else scores[~np.isnan(scores)]
    if not len(scores):
        return float("nan"), float("nan")
    spread = float(scores.std(ddof=1)) if len(scores) > 1 else 0.0
    return float(scores.mean()), spread / float(np.sqrt(len(scores)))


def _on_axes(space: SearchSpace, trial: Trial) -> bool:
    """Whether all values are on the axes. Only the baseline may have a value that is no choice, or null instead of a number."""
    return all(
        value in axis.choices if axis.choices else value is not None
        for axis, value in zip(space.axes, trial.values, strict=True)
    )


def _places(space: SearchSpace, values: Values) -> list[int]:
    return [axis.place(value) for axis, value in zip(space.axes, values, strict=True)]


def _whole_grid(places: Sequence[Sequence[int]] | Any, reached: Floats) -> Floats | None:
    """The objective as an array with an axis per parameter; None unless every combination of the tried values was tried.

    The first trial is the baseline, which is left out if it is not on the grid.
    """
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
