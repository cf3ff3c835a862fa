"""Trying configs: grid up to three parameters, beyond that TPE and then the neighbours of the best; seeded, cancellable.

A config that is clearly worse on the first part of the queries is given up: when the mean of `config - best so far` over the queries of
that part lies more than `CLEARLY` standard errors below 0. Not where several objectives are wanted, nor on a grid, whose trials serve
every fold. A config that breaks a constraint is not scored. The order of trials depends on nothing but space, seed and scores, so that
a search that was cancelled and is run again, with the scores it already knows, is the search that was not cancelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cems_workbench.pipeline.table import Floats, Ints
from cems_workbench.progress import Cancelled
from cems_workbench.tuning.objective import Goal
from cems_workbench.tuning.pareto import pareto_front
from cems_workbench.tuning.proposals import Proposals, by_grid, by_neighbours, by_tpe
from cems_workbench.tuning.scorer import Score
from cems_workbench.tuning.space import SearchSpace, Values
from cems_workbench.tuning.trial import Search, Trial, Watch, unwatched

CLEARLY = 3.5
REFINED = 0.25
"""Share of the trials that refine the best."""
NOWHERE = -1e9
"""What a config that breaks a constraint reaches."""


@dataclass
class _Run:
    """A search while it runs."""

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


def search(
    space: SearchSpace, score: Score, goal: Goal, rows: Ints, *, types: Sequence[str | None] | None = None,
    trials: int = 200, seed: int = 0, watch: Watch = unwatched,
) -> Search:  # fmt: skip
    """Search the space on the queries at `rows`. `types` are the query types of those rows, for the guards.

    At most `trials` configs are tried beside the baseline, each once. Cancelling keeps what was tried.
    """
    parts = [part for part in (rows[np.isin(rows, part)] for part in score.parts) if len(part)]
    run = _Run(space, score, goal, np.concatenate(parts), _dealt(types, rows, parts), trials + 1, watch, parts, [], {})
    cancelled = False
    try:
        _try(run, space.values_of(space.baseline), "baseline")
        if space.is_grid:
            _follow(run, by_grid(space, trials), "grid")
        else:
            _follow(run, by_tpe(space, trials - int(trials * REFINED), _objectives(goal), seed), "search")
            best = Search(run.trials).best
            _follow(run, by_neighbours(space, best.values, best.reached, trials + 1 - len(run.trials)), "refine")
    except Cancelled:
        cancelled = True
    if not run.trials:
        raise Cancelled
    return Search(_in_row_order(run, rows), cancelled, _front(run.trials))


def _follow(run: _Run, proposals: Proposals, phase: str) -> None:
    reached: Floats | None = None
    while len(run.trials) < run.total:
        try:
            values = next(proposals) if reached is None else proposals.send(reached)
        except StopIteration:
            return
        reached = _try(run, values, phase)


def _try(run: _Run, values: Values, phase: str) -> Floats:
    """What these values reach; a config that was tried is not tried again."""
    if values not in run.known:
        config = run.space.config(values)
        if run.trials and not run.space.keeps(config):
            return np.full(_objectives(run.goal), NOWHERE)
        trial = _scored(run, values, phase)
        run.known[values] = trial
        run.trials.append(trial)
        run.watch(len(run.trials), run.total, Search(run.trials).best)
    trial = run.known[values]
    # A broken guard is worse than the baseline, the more so the better the config looks on the rest.
    return trial.reached if not trial.broken else np.minimum(trial.reached, run.trials[0].reached) - 0.01


def _scored(run: _Run, values: Values, phase: str) -> Trial:
    config = run.space.config(values)
    best = Search(run.trials).best if run.trials else None
    first = run.parts[0]
    if best is None or len(run.parts) == 1 or _objectives(run.goal) > 1 or run.space.is_grid:
        scores = run.score(config, run.rows)
    else:
        scores = run.score(config, first)
        d = scores[:, 0] - best.scores[: len(first), 0]
        if d.mean() < -CLEARLY * d.std() / np.sqrt(len(d)):
            return Trial(values, config, scores, best.reached + d.mean(), pruned=True, phase=phase)
        scores = np.concatenate([scores, run.score(config, run.rows[len(first) :])])
    broken = tuple(run.goal.broken(scores, run.trials[0].scores, run.types)) if run.trials else ()
    return Trial(values, config, scores, run.goal.reached(scores), broken=broken, phase=phase)


def _objectives(goal: Goal) -> int:
    return len(goal.names)


def _dealt(types: Sequence[str | None] | None, rows: Ints, parts: Sequence[Ints]) -> list[str | None]:
    """The types in the order in which the rows are scored."""
    given = dict(zip(rows.tolist(), types, strict=True)) if types is not None else {}
    return [given.get(row) for part in parts for row in part.tolist()]


def _in_row_order(run: _Run, rows: Ints) -> list[Trial]:
    """The trials with their scores in the order of `rows`; those of a trial that was given up stay as they are."""
    place = {row: i for i, row in enumerate(run.rows.tolist())}
    order = np.array([place[row] for row in rows.tolist()])
    return [
        trial if trial.pruned else Trial(
            trial.values, trial.config, trial.scores[order], trial.reached, False, trial.broken, trial.phase
        )
        for trial in run.trials
    ]  # fmt: skip


def _front(trials: Sequence[Trial]) -> list[int]:
    usable = [i for i, trial in enumerate(trials) if trial.usable]
    if not usable:
        return []
    front = pareto_front(np.stack([trials[i].reached for i in usable]))
    return [i for i, stands in zip(usable, front.tolist(), strict=True) if stands]
