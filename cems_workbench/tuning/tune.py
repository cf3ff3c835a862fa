"""Tuning protocol: one search, nested cross-validation by group, and a sealed hold-out.

`optimizer.simplest_of_best` chooses the proposal among the configs of one search over all open queries. Its gain is estimated by choosing
on all folds but one and scoring the choice on the fold that was left out. On a grid the configs are the same for every fold, so that
costs nothing. Otherwise each fold has its own search that never scores the fold (nested), because a search learns from the queries it
scores. Only `open_holdout` scores the hold-out.

Evidence card of a tuned config: the evidence and queries it was tuned and measured on, the looks at the hold-out, and versions.

Optimizer: a grid for up to three parameters, otherwise TPE and then the neighbours of the best; seeded and cancellable.

proposals   a grid, Optuna's TPE, or the neighbours of the best. Each is a generator that yields values and is sent their objectives. The
            order of trials depends only on space, seed and scores, so a cancelled search that is resumed with its known scores equals
            an uninterrupted one.
pruning     a config is pruned after the first part of the queries if the mean of `config - best so far` there is more than
            `PRUNE_ERRORS` standard errors below 0. No pruning with several objectives, nor on a grid, whose trials serve every fold. A
            config that violates a constraint is not scored.
front       the Pareto front of the usable trials.
settle      the choice gets back the baseline's value of a parameter where that changes no score.
choice      the best of many configs is partly luck. Among the configs that a paired one-sided t-test cannot distinguish from the best, the
            one nearest to the baseline is proposed, but none with a lower mean than the config nearest to the baseline of all.

    t = mean(d) / (sd(d) / sqrt(Q)),   d = best - other per query;   a tie if t < t(1 - alpha; Q - 1)
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version

import numpy as np

from cems_workbench import __version__
from cems_workbench.config import EvidenceCard, Measured, PipelineConfig, with_values
from cems_workbench.evaluation.evidence_file import Header
from cems_workbench.pipeline.table import Bools, Floats, Ints
from cems_workbench.progress import Cancelled
from cems_workbench.tuning.holdout import Gain, HoldoutLooks, Split, gain, mean_of
from cems_workbench.tuning.objective import Goal, Guard
from cems_workbench.tuning.scorer import Score
from cems_workbench.tuning.space import BANDS_PATH, SearchSpace, Values
from cems_workbench.tuning.unlabelled import AGAINST_RERANKER


@dataclass(frozen=True, eq=False)
class Trial:
    """A config of the space with its scores. `reached` are its objectives. A pruned trial has scores of the first part
    of the queries only, and estimated objectives: those of the best so far plus the mean difference on that part."""

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


def by_tpe(space: SearchSpace, trials: int, objectives: int, seed: int) -> Proposals:
    """Optuna's tree-structured Parzen estimator, multivariate, seeded; the baseline is its first trial. Source:
    Bergstra et al. 2011; Optuna, TPESampler."""
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
    Source: Hooke & Jeeves 1961."""
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


def choose(space: SearchSpace, trials: Sequence[Trial]) -> Trial:
    """The proposal of a search: the usable trial nearest to the baseline, the first, among those that tie with the best."""
    usable = [trial for trial in trials if trial.usable]
    if not usable:  # no trial holds the guards, the baseline neither
        return trials[0]
    distances = [space.distance(trial.values) for trial in usable]
    return usable[simplest_of_best([trial.scores[:, 0] for trial in usable], distances)]


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
    """Search the space on the queries at `rows`. `types` are the query types of those rows, for the guards. At most
    `trials` configs are tried besides the baseline, each once, and a few to settle. Cancelling keeps the trials so far."""
    run, cancelled = _Run(space, score, goal, rows, types or [None] * len(rows), trials + 1, watch), False
    try:
        run.reach(space.values_of(space.baseline), "baseline")
        if space.is_grid:
            for values in space.grid(trials):
                run.reach(values, "grid")
        else:
            run.follow(by_tpe(space, trials - int(trials * REFINE_SHARE), len(goal.names), seed), "search")
            best = run.best
            run.follow(by_neighbours(space, best.values, best.reached, trials + 1 - len(run.trials)), "refine")
        run.settle()
    except Cancelled:
        cancelled = True
    if not run.trials:
        raise Cancelled
    # Scores are in the order of the parts; those of a pruned trial stay so. The double argsort is the place of each of `rows` in order.
    order = np.argsort(run.rows)[np.argsort(np.argsort(rows))]
    found = [trial if trial.pruned else replace(trial, scores=trial.scores[order]) for trial in run.trials]
    usable = [i for i, trial in enumerate(found) if trial.usable]
    front = pareto_front(np.stack([found[i].reached for i in usable])).tolist() if usable else []
    return Search(found, cancelled, [i for i, inside in zip(usable, front, strict=True) if inside])


class _Run:
    """A running search."""

    def __init__(
        self,
        space: SearchSpace,
        score: Score,
        goal: Goal,
        rows: Ints,
        types: Sequence[str | None],
        total: int,
        watch: Watch,
    ) -> None:
        self.space, self.score, self.goal, self.total, self.watch = space, score, goal, total, watch
        self.parts = [part for part in (rows[np.isin(rows, part)] for part in score.parts) if len(part)]
        self.rows = np.concatenate(self.parts)
        by_row = dict(zip(rows.tolist(), types, strict=True))
        self.types = [by_row[row] for row in self.rows.tolist()]
        self.trials: list[Trial] = []
        self.known: dict[Values, Trial] = {}
        self.best: Trial
        """`Search.best` of the trials so far, from the first one on."""

    def follow(self, proposals: Proposals, phase: str) -> None:
        """Try what is proposed, and answer with what it reached."""
        reached: Floats | None = None
        while len(self.trials) < self.total:
            try:
                values = next(proposals) if reached is None else proposals.send(reached)
            except StopIteration:
                return
            reached = self.reach(values, phase)

    def reach(self, values: Values, phase: str) -> Floats:
        """The objectives of these values; a config is tried once."""
        if values not in self.known:
            config = self.space.config(values)
            if self.trials and not self.space.keeps(config):
                return np.full(len(self.goal.names), INFEASIBLE_SCORE)
            trial = self.known[values] = self._tried(values, config, phase)
            self.trials.append(trial)
            if len(self.trials) == 1 or (
                trial.usable and (not self.best.usable or trial.reached[0] > self.best.reached[0])
            ):
                self.best = trial
            self.watch(len(self.trials), self.total, self.best)
        trial = self.known[values]
        if not trial.broken:
            return trial.reached
        # A broken guard ranks below the baseline, by how far it is missed: that leads the search to where it holds.
        return np.minimum(trial.reached, self.trials[0].reached) - 0.01 - trial.missed

    def settle(self) -> None:
        """Give the choice the baseline's value wherever no score changes by it, so that no change is proposed that does nothing: null
        or a value between two steps is no value of an axis, and every config of the search has another."""
        own, chosen = self.trials[0].values, choose(self.space, self.trials)
        changed = [at for at, value in enumerate(chosen.values) if value != own[at]]
        self.total = max(self.total, len(self.trials) + len(changed))
        for at in changed:
            values = (*chosen.values[:at], own[at], *chosen.values[at + 1 :])
            self.reach(values, "settle")
            there = self.known.get(values)
            if there is not None and there.usable and np.array_equal(there.scores, chosen.scores, equal_nan=True):
                chosen = there

    def _tried(self, values: Values, config: PipelineConfig, phase: str) -> Trial:
        if (
            not self.trials
            or len(self.parts) == 1
            or len(self.goal.names) > 1
            or self.space.is_grid
            or not self.best.usable
        ):
            scores = self.score(config, self.rows)
        else:
            best, first = self.best, len(self.parts[0])
            scores = self.score(config, self.parts[0])
            d = scores[:, 0] - best.scores[:first, 0]
            d = d[~np.isnan(d)]
            if len(d) and d.mean() < -PRUNE_ERRORS * d.std() / np.sqrt(len(d)):
                return Trial(values, config, scores, best.reached + d.mean(), pruned=True, phase=phase)
            scores = np.concatenate([scores, self.score(config, self.rows[first:])])
        baseline = self.trials[0].scores if self.trials else scores
        return with_guards(
            Trial(values, config, scores, self.goal.reached(scores), phase=phase), self.goal, baseline, self.types
        )


def with_guards(trial: Trial, goal: Goal, baseline: Floats, types: Sequence[str | None]) -> Trial:
    """The trial with the guards that its scores break, relative to the baseline's scores."""
    missed = goal.shortfalls(trial.scores, baseline, types)
    broken = tuple(guard for guard, by in zip(goal.guards, missed.tolist(), strict=True) if by)
    return replace(trial, broken=broken, missed=float(missed.sum()))


ALPHA = 0.05


def simplest_of_best(scores: Sequence[Floats], distances: Sequence[float], alpha: float = ALPHA) -> int:
    """Index of the config to propose, from (Q) scores per config: of the ties with the best the nearest, then the best, then the first.

    A tie with a lower mean than the config nearest to the baseline, which is the baseline itself if it is among them, is none: a search
    proposes no loss.
    Queries that the measure is not defined for have NaN under every config, and are left out.
    """
    defined = ~np.isnan(scores[0])
    if not defined.any():
        return min(range(len(scores)), key=lambda i: (round(distances[i], 9), i))
    scores = [values[defined] for values in scores]
    means = np.array([values.mean() for values in scores])
    best = int(means.argmax())
    nearest = min(range(len(scores)), key=lambda i: (round(distances[i], 9), i))
    equal = np.flatnonzero(statistical_ties(scores[best], scores, alpha) & (means >= means[nearest]))
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


WatchFactory = Callable[[str], Watch]
"""Makes the watch of a search from its name: `search`, `fold 1`, ..."""


@dataclass(frozen=True)
class Plan:
    """A search to run: space, goal, queries, number of trials and seed."""

    space: SearchSpace
    goal: Goal
    split: Split
    types: Sequence[str | None]
    """The type of every query of the scorer, for the guards."""
    trials: int = 200
    seed: int = 0
    name_suffix: str = "tuned"
    """The proposal is named after the baseline, with this suffix."""


@dataclass(frozen=True)
class Tuned:
    """A search with its proposal and the gain of that."""

    plan: Plan
    search: Search
    proposal: Trial
    train: float
    """Mean first objective of the folds' choices, on the queries that they were chosen on."""
    validation: Gain | None
    """Gain of the folds' choices over the baseline, on the queries that they did not see; None after an early cancel."""
    holdout: Gain | None = None
    looks: int = 0
    choices: tuple[PipelineConfig, ...] = ()
    """For each fold the config that was chosen without it."""

    @property
    def kept(self) -> bool:
        """Whether the baseline is the proposal, because no trial holds the guards or is significantly better."""
        return self.proposal is self.search.baseline

    @property
    def config(self) -> PipelineConfig:
        """The proposal as a validated config, named after its baseline; the baseline itself if that is kept."""
        space = self.plan.space
        if self.kept:
            return space.baseline
        return proposed(space, self.proposal, f"{space.baseline.name}-{self.plan.name_suffix}")


def tune(plan: Plan, score: Score, watch_for: WatchFactory = lambda name: unwatched) -> Tuned:
    """Search, choose and cross-validate. Cancelling keeps the trials so far; a cancel before the last fold leaves no validation."""
    searched = _searched(plan, score, watch_for("search"))
    proposal = choose(plan.space, searched.trials)
    tuned = Tuned(plan, searched, proposal, plan.goal.as_measured(proposal.reached)[0], None)
    if searched.cancelled:
        return tuned
    try:
        train, validation, choices = _cross_validated(plan, score, searched, watch_for)
    except Cancelled:
        return replace(tuned, search=replace(searched, cancelled=True))
    return replace(tuned, train=train, validation=validation, choices=choices)


def _searched(plan: Plan, score: Score, watch: Watch, fold: int | None = None) -> Search:
    """The search on the training queries of a fold, or on all open queries."""
    rows, seed = (plan.split.open, plan.seed) if fold is None else (plan.split.training(fold), plan.seed + fold + 1)
    types = [plan.types[row] for row in rows.tolist()]
    return optimize(plan.space, score, plan.goal, rows, types=types, trials=plan.trials, seed=seed, watch=watch)


def open_holdout(tuned: Tuned, score: Score, looks: HoldoutLooks, query_set: str, qids: Sequence[str]) -> Tuned:
    """Score proposal and baseline on the sealed queries, whose ids are `qids`. Every call counts as a look."""
    sealed = tuned.plan.split.holdout
    count = looks.look(query_set, qids)
    base, best = (score(trial.config, sealed)[:, 0] for trial in (tuned.search.baseline, tuned.proposal))
    return replace(
        tuned, holdout=gain(base, best, tuned.plan.seed, tuned.plan.goal.objectives[0].direction), looks=count
    )


def proposed(space: SearchSpace, trial: Trial, name: str) -> PipelineConfig:
    """A trial's config, validated as a whole."""
    changes = {
        axis.path: value
        for axis, value in zip(space.axes, trial.values, strict=True)
        if not axis.path.startswith(f"{BANDS_PATH}.")
    }
    if len(changes) < len(space.axes):
        changes[BANDS_PATH] = [band.model_dump() for band in trial.config.rerank.bands]
    return with_values(space.baseline, changes | {"name": name}, source="the proposal")


def _cross_validated(
    plan: Plan, score: Score, searched: Search, watch_for: WatchFactory
) -> tuple[float, Gain, tuple[PipelineConfig, ...]]:
    """Mean score of the choices on their training queries, their gain on the left-out queries, and the choices."""
    open_rows = plan.split.open
    base, tuned, train, choices = np.empty(len(open_rows)), np.empty(len(open_rows)), [], []
    for fold, held in enumerate(plan.split.folds):
        rows = plan.split.training(fold)
        if plan.space.is_grid:
            inner = _restricted(plan, searched, np.isin(open_rows, rows))
        else:
            inner = _searched(plan, score, watch_for(f"fold {fold + 1}"), fold)
            if inner.cancelled:
                raise Cancelled
        choice = choose(plan.space, inner.trials)
        train.append(plan.goal.as_measured(choice.reached)[0])
        choices.append(choice.config)
        at = np.searchsorted(open_rows, held)
        tuned[at] = score(choice.config, held)[:, 0]
        base[at] = score(plan.space.baseline, held)[:, 0]
    return mean_of(np.array(train)), gain(base, tuned, plan.seed, plan.goal.objectives[0].direction), tuple(choices)


def _restricted(plan: Plan, searched: Search, seen: Bools) -> Search:
    """The trials restricted to some of the queries, with the guards checked on those."""
    types = [
        kind for kind, inside in zip([plan.types[row] for row in plan.split.open.tolist()], seen, strict=True) if inside
    ]
    full = [trial for trial in searched.trials if not trial.pruned]
    base = full[0].scores[seen]
    return Search(
        [
            with_guards(
                replace(trial, scores=trial.scores[seen], reached=plan.goal.reached(trial.scores[seen])),
                plan.goal,
                base,
                types,
            )
            for trial in full
        ]
    )


PACKAGES = ("numpy", "optuna")


def corpus_hash(store_id: str, content_version: int) -> str:
    """Identifier on a card of the memories that a config was measured on."""
    return f"{store_id}/{content_version}"


def evidence_card(
    tuned: Tuned,
    header: Header,
    content_hash: str,
    grouping: str,
    date: str,
    relevance: str = "",
    lacking: Sequence[str] = (),
    *,
    unlabelled: Sequence[str] = (),
    by_judgments: Sequence[tuple[str, Gain]] = (),
) -> EvidenceCard:
    """The card of a proposal, from the header of the evidence and the hash of evidence and judgments.

    `date` is an ISO date, `grouping` what was never split, `relevance` describes grade and denominator, `lacking` what the evidence does
    not hold. `unlabelled` are the lines for a config that was tuned without judgments, `by_judgments` its gains by judgments.
    """
    objective = str(tuned.plan.goal.objectives[0])
    measure = objective + (AGAINST_RERANKER if unlabelled else "")
    measured = []
    if tuned.validation is not None:
        measured.append(_measured(measure, "cross-validation", tuned.validation))
    if tuned.holdout is not None:
        measured.append(_measured(measure, "hold-out", tuned.holdout))
    measured += [_measured(objective, where, gained) for where, gained in by_judgments]
    split = tuned.plan.split
    return EvidenceCard(
        baseline=tuned.plan.space.baseline.name,
        measured=tuple(measured),
        split=f"{len(split.folds)} folds of {len(split.open)} queries by {grouping}, {len(split.holdout)} held out",
        looks=tuned.looks,
        trials=len(tuned.search.trials) - 1,
        seed=tuned.plan.seed,
        corpus_hash=corpus_hash(header.store_id, header.content_version),
        evidence_hash=content_hash[:16],
        versions={"cems-workbench": __version__, "python": platform.python_version()}
        | {name: version(name) for name in PACKAGES},
        date=date,
        kept=tuned.kept,
        relevance=relevance,
        lacking=tuple(lacking),
        unlabelled=tuple(unlabelled),
    )


def _measured(measure: str, where: str, gained: Gain) -> Measured:
    same = {name: getattr(gained, name) for name in ("queries", "baseline", "tuned", "low", "high", "p")}
    return Measured(metric=measure, split=where, **same)
