"""Where the next config to try comes from: a grid, Optuna's TPE, or the neighbours of the best.

Each is a generator that yields values to try and is sent what they reached, so that the same reached values give the same proposals:
a search that is run again with its scores at hand is the same search.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from cems_workbench.pipeline.table import Floats
from cems_workbench.tuning.space import SearchSpace, Values

Proposals = Generator[Values, Floats, None]
STARTUP = 24
"""Trials drawn at random before TPE has something to learn from."""


def by_grid(space: SearchSpace, trials: int) -> Proposals:
    """Every combination of a grid with at most about `trials` points."""
    for values in space.grid(trials):  # noqa: UP028 - what is reached is sent in, which a plain iterator refuses
        yield values


def by_tpe(space: SearchSpace, trials: int, objectives: int, seed: int) -> Proposals:
    """Optuna's tree-structured Parzen estimator, multivariate, seeded; told of the baseline first.

    Source: Bergstra et al. 2011; Optuna, TPESampler.
    """
    import warnings

    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=seed, multivariate=True, n_startup_trials=min(STARTUP, max(1, trials // 4))
        )
    study = optuna.create_study(directions=["maximize"] * objectives, sampler=sampler)
    ranges: dict[str, optuna.distributions.BaseDistribution] = {
        axis.path: optuna.distributions.CategoricalDistribution(range(axis.size))
        if axis.choices
        else optuna.distributions.IntDistribution(0, axis.size - 1)
        for axis in space.axes
    }
    own = space.values_of(space.baseline)
    study.enqueue_trial({axis.path: axis.place(value) for axis, value in zip(space.axes, own, strict=True)})
    for _ in range(trials):
        trial = study.ask(ranges)
        reached = yield tuple(axis.value(int(trial.params[axis.path])) for axis in space.axes)
        study.tell(trial, [float(value) for value in reached])


def by_neighbours(space: SearchSpace, start: Values, reached: Floats, trials: int) -> Proposals:
    """Pattern search on the first objective: along each axis by a step, which halves when no neighbour is better.

    Source: Hooke & Jeeves 1961.
    """
    best, at = float(reached[0]), [axis.place(value) for axis, value in zip(space.axes, start, strict=True)]
    strides = [max(1, axis.size // 8) for axis in space.axes]
    left, seen = trials, {tuple(at)}
    while left > 0:
        moved = False
        for i, axis in enumerate(space.axes):
            steps = range(axis.size) if axis.choices else (at[i] - strides[i], at[i] + strides[i])
            for place in steps:
                there = [*at[:i], place, *at[i + 1 :]]
                if not 0 <= place < axis.size or tuple(there) in seen or left <= 0:
                    continue
                seen.add(tuple(there))
                left -= 1
                found = yield tuple(a.value(p) for a, p in zip(space.axes, there, strict=True))
                if float(found[0]) > best and np.isfinite(found[0]):
                    best, at, moved = float(found[0]), there, True
        if not moved:
            if max(strides) == 1:
                return
            strides = [max(1, stride // 2) for stride in strides]
