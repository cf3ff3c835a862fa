"""Optimizer: a grid for up to three parameters, otherwise TPE and then the neighbours of the best; seeded and cancellable.

proposals   a grid, Optuna's TPE, or the neighbours of the best. Each is a generator that yields values and is sent their objectives. The
            order of trials depends only on space, seed and scores, so a cancelled search that is resumed with its known scores equals
            an uninterrupted one.
pruning     a config is pruned after the first part of the queries if the mean of `config - best so far` there is more than
            `PRUNE_ERRORS` standard errors below 0. No pruning with several objectives, nor on a grid, whose trials serve every fold. A
            config that violates a constraint is not scored.
front       the Pareto front of the usable trials.
choice      the best of many configs is partly luck. Among the configs that a paired one-sided t-test cannot distinguish from the best, the
            one nearest to the baseline is proposed.

    t = mean(d) / (sd(d) / sqrt(Q)),   d = best - other per query;   a tie if t < t(1 - alpha; Q - 1)
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline.table import Bools, Floats, Ints
from cems_workbench.progress import Cancelled
from cems_workbench.tuning.objective import Goal, Guard
from cems_workbench.tuning.scorer import Score
from cems_workbench.tuning.space import SearchSpace, Values


@dataclass(frozen=True, eq=False)
class Trial:
    """A config of the space with its scores.

    `reached` are its objectives. A pruned trial has scores of the first part of the queries only, and estimated objectives: those of the
    best so far plus the mean difference on that part.
    """

    values: Values
    config: PipelineConfig
    scores: Floats
    """(Q, M), fewer rows if the trial was pruned."""
    reached: Floats
    pruned: bool = False
    broken: tuple[Guard, ...] = ()
    phase: str = "search"
    missed: float = 0.0
    """Sum of its shortfalls over the guards that it breaks."""

    @property
    def usable(self) -> bool:
        """Whether it is scored on every query and holds every guard."""
        return not self.pruned and not self.broken


@dataclass(frozen=True)
class Search:
    """The trials of a search. The first is the baseline itself."""

    trials: Sequence[Trial]
    cancelled: bool = False
    front: Sequence[int] = field(default_factory=tuple)
    """Indices of the usable trials on the Pareto front."""

    @property
    def baseline(self) -> Trial:
        """The baseline's trial."""
        return self.trials[0]

    @property
    def best(self) -> Trial:
        """The usable trial with the highest first objective, the earliest of ties; the baseline if none is usable."""
        usable = [trial for trial in self.trials if trial.usable]
        return max(usable, key=lambda trial: float(trial.reached[0])) if usable else self.baseline


Watch = Callable[[int, int, Trial], None]
"""Called as `watch(done, total, best so far)` after each trial; may raise `Cancelled`, which keeps the trials so far."""


def unwatched(done: int, total: int, best: Trial) -> None:
    """The watch that does nothing."""


Proposals = Generator[Values, Floats, None]
STARTUP_TRIALS = 24
"""Random trials before TPE models them."""


def by_grid(space: SearchSpace, trials: int) -> Proposals:
    """Every combination of a grid with at most about `trials` points."""
    for values in space.grid(trials):  # noqa: UP028 - objectives are sent in, which a plain iterator refuses
        yield values


def by_tpe(space: SearchSpace, trials: int, objectives: int, seed: int) -> Proposals:
    """Optuna's tree-structured Parzen estimator, multivariate, seeded; the baseline is its first trial.

    Source: Bergstra et al. 2011; Optuna, TPESampler.
    """
    import warnings

    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=seed, multivariate=True, n_startup_trials=min(STARTUP_TRIALS, max(1, trials // 4))
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
                # Strictly better: a tie stays with the point found first.
                if float(found[0]) > best and np.isfinite(found[0]):
                    best, at, moved = float(found[0]), there, True
        if not moved:
            if max(strides) == 1:
                return
            strides = [max(1, stride // 2) for stride in strides]


def pareto_front(values: Floats) -> Bools:
    """(T) which rows of (T, M) values are dominated by no other row; larger is better. Equal rows are all on the front."""
    front = np.ones(len(values), dtype=bool)
    for row in range(len(values)):
        at_least = (values >= values[row]).all(axis=1)
        better = (values > values[row]).any(axis=1)
        front[row] = not (at_least & better).any()
    return front


PRUNE_ERRORS = 3.5
REFINE_SHARE = 0.25
"""Share of the trials that go to the neighbours of the best."""
INFEASIBLE_SCORE = -1e9
"""Objective of a config that violates a constraint."""


@dataclass
class _SearchState:
    """The state of a running search."""

    space: SearchSpace
    score: Score
    goal: Goal
    rows: Ints
    types: Sequence[str | None]
    total: int
    watch: Watch
    parts: list[Ints]
    trials: list[Trial]
    known: dict[Values, Trial]
    best: Trial | None = None
    """`Search.best` of the trials so far; None before the first."""

    def add(self, trial: Trial) -> Trial:
        """Add a trial, and return the best so far."""
        self.known[trial.values] = trial
        self.trials.append(trial)
        best = self.best or trial
        better = not best.usable or float(trial.reached[0]) > float(best.reached[0])
        self.best = trial if trial.usable and better else best
        return self.best


def optimize(
    space: SearchSpace,
    score: Score,
    goal: Goal,
    rows: Ints,
    *,
    types: Sequence[str | None] | None = None,
    trials: int = 200,
    seed: int = 0,
    watch: Watch = unwatched,
) -> Search:
    """Search the space on the queries at `rows`. `types` are the query types of those rows, for the guards.

    At most `trials` configs are tried besides the baseline, each once. Cancelling keeps the trials so far.
    """
    parts = [part for part in (rows[np.isin(rows, part)] for part in score.parts) if len(part)]
    state = _SearchState(
        space,
        score,
        goal,
        np.concatenate(parts),
        _types_as_scored(types, rows, parts),
        trials + 1,
        watch,
        parts,
        [],
        {},
    )
    cancelled = False
    try:
        _try_values(state, space.values_of(space.baseline), "baseline")
        if space.is_grid:
            _follow(state, by_grid(space, trials), "grid")
        else:
            _follow(state, by_tpe(space, trials - int(trials * REFINE_SHARE), _objectives(goal), seed), "search")
            best = state.best or state.trials[0]
            _follow(state, by_neighbours(space, best.values, best.reached, trials + 1 - len(state.trials)), "refine")
    except Cancelled:
        cancelled = True
    if not state.trials:
        raise Cancelled
    return Search(_in_row_order(state, rows), cancelled, _front(state.trials))


def _follow(state: _SearchState, proposals: Proposals, phase: str) -> None:
    reached: Floats | None = None
    while len(state.trials) < state.total:
        try:
            values = next(proposals) if reached is None else proposals.send(reached)
        except StopIteration:
            return
        reached = _try_values(state, values, phase)


def _try_values(state: _SearchState, values: Values, phase: str) -> Floats:
    """The objectives of these values; a config is tried once."""
    if values not in state.known:
        config = state.space.config(values)
        if state.trials and not state.space.keeps(config):
            return np.full(_objectives(state.goal), INFEASIBLE_SCORE)
        best = state.add(_scored_trial(state, values, phase))
        state.watch(len(state.trials), state.total, best)
    trial = state.known[values]
    # A broken guard ranks below the baseline, by how far it is missed: that leads the search to where it holds.
    return (
        trial.reached if not trial.broken else np.minimum(trial.reached, state.trials[0].reached) - 0.01 - trial.missed
    )


def _scored_trial(state: _SearchState, values: Values, phase: str) -> Trial:
    config = state.space.config(values)
    best = state.best
    first = state.parts[0]
    if best is None or not best.usable or len(state.parts) == 1 or _objectives(state.goal) > 1 or state.space.is_grid:
        scores = state.score(config, state.rows)
    else:
        scores = state.score(config, first)
        d = scores[:, 0] - best.scores[: len(first), 0]
        d = d[~np.isnan(d)]
        if len(d) and d.mean() < -PRUNE_ERRORS * d.std() / np.sqrt(len(d)):
            return Trial(values, config, scores, best.reached + d.mean(), pruned=True, phase=phase)
        scores = np.concatenate([scores, state.score(config, state.rows[len(first) :])])
    baseline = state.trials[0].scores if state.trials else scores
    return with_guards(
        Trial(values, config, scores, state.goal.reached(scores), phase=phase), state.goal, baseline, state.types
    )


def with_guards(trial: Trial, goal: Goal, baseline: Floats, types: Sequence[str | None]) -> Trial:
    """The trial with the guards that its scores break, relative to the baseline's scores."""
    missed = goal.shortfalls(trial.scores, baseline, types)
    broken = tuple(guard for guard, by in zip(goal.guards, missed.tolist(), strict=True) if by)
    return replace(trial, broken=broken, missed=float(missed.sum()))


def _objectives(goal: Goal) -> int:
    return len(goal.names)


def _types_as_scored(types: Sequence[str | None] | None, rows: Ints, parts: Sequence[Ints]) -> list[str | None]:
    """The query types in the order in which the rows are scored."""
    given = dict(zip(rows.tolist(), types, strict=True)) if types is not None else {}
    return [given.get(row) for part in parts for row in part.tolist()]


def _in_row_order(state: _SearchState, rows: Ints) -> list[Trial]:
    """The trials with their scores in the order of `rows`; those of a pruned trial are unchanged."""
    place = {row: i for i, row in enumerate(state.rows.tolist())}
    order = np.array([place[row] for row in rows.tolist()])
    return [trial if trial.pruned else replace(trial, scores=trial.scores[order]) for trial in state.trials]


def _front(trials: Sequence[Trial]) -> list[int]:
    usable = [i for i, trial in enumerate(trials) if trial.usable]
    if not usable:
        return []
    front = pareto_front(np.stack([trials[i].reached for i in usable]))
    return [i for i, stands in zip(usable, front.tolist(), strict=True) if stands]


ALPHA = 0.05


def simplest_of_best(scores: Sequence[Floats], distances: Sequence[float], alpha: float = ALPHA) -> int:
    """Index of the config to propose, from (Q) scores per config: of the ties with the best the nearest, then the best, then the first.

    Queries that the measure is not defined for have NaN under every config, and are left out.
    """
    defined = ~np.isnan(scores[0])
    if not defined.any():
        return min(range(len(scores)), key=lambda i: (round(distances[i], 9), i))
    scores = [values[defined] for values in scores]
    means = np.array([values.mean() for values in scores])
    best = int(means.argmax())
    equal = np.flatnonzero(statistical_ties(scores[best], scores, alpha))
    return min(equal.tolist(), key=lambda i: (round(distances[i], 9), -means[i], i))


def statistical_ties(best: Floats, others: Sequence[Floats], alpha: float = ALPHA) -> Bools:
    """Which of the others tie with the best: it is not significantly better on the same queries (Q)."""
    from scipy.special import stdtrit

    if len(best) < 2:
        return np.ones(len(others), dtype=bool)
    difference = best - np.stack(others)
    mean, spread = difference.mean(axis=1), difference.std(axis=1, ddof=1)
    limit = float(stdtrit(len(best) - 1, 1 - alpha))
    told: Bools = mean > limit * spread / np.sqrt(len(best)) + 1e-12
    return ~told
