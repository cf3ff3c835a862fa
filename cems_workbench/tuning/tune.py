"""Tuning protocol: one search, nested cross-validation by group, and a sealed hold-out.

`optimizer.simplest_of_best` chooses the proposal among the configs of one search over all open queries. Its gain is estimated by choosing
on all folds but one and scoring the choice on the fold that was left out. On a grid the configs are the same for every fold, so that
costs nothing. Otherwise each fold has its own search that never scores the fold (nested), because a search learns from the queries it
scores. Only `open_holdout` scores the hold-out.

Evidence card of a tuned config: the evidence and queries it was tuned and measured on, the looks at the hold-out, and versions.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

import numpy as np

from cems_workbench import __version__
from cems_workbench.config import EvidenceCard, Measured, PipelineConfig, with_values
from cems_workbench.evaluation.evidence_file import Header
from cems_workbench.pipeline.table import Bools
from cems_workbench.progress import Cancelled
from cems_workbench.tuning.holdout import Gain, HoldoutLooks, Split, gain, mean_of
from cems_workbench.tuning.objective import Goal
from cems_workbench.tuning.optimizer import Search, Trial, Watch, choose, optimize, unwatched, with_guards
from cems_workbench.tuning.scorer import Score
from cems_workbench.tuning.space import BANDS_PATH, SearchSpace
from cems_workbench.tuning.unlabelled import AGAINST_RERANKER

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
