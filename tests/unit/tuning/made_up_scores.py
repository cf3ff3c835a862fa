"""A score that is a formula of the config, so that what tuning makes of it can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.synthetic_queries import fusion_only
from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.pipeline.table import Floats, Ints
from cems_workbench.tuning.holdout import Split
from cems_workbench.tuning.objective import Goal
from cems_workbench.tuning.space import SearchSpace, parse_axis
from cems_workbench.tuning.tune import Plan, Search, Trial, Tuned

NDCG = parse_measure("nDCG@10")
QUERIES = 4
SEALED = 2
"""The last queries are the hold-out."""


class Formula:
    """`score(config, queries)` from a formula that gives the (Q) scores of all queries; remembers what it was asked."""

    def __init__(self, formula: Callable[[PipelineConfig], Sequence[float]]) -> None:
        self.formula = formula
        self.asked: set[int] = set()
        self.calls = 0
        self.parts = [np.arange(QUERIES + SEALED)]

    def __call__(self, config: PipelineConfig, queries: Ints) -> Floats:
        self.asked |= set(queries.tolist())
        self.calls += 1
        return np.array([*self.formula(config), *[0.5] * SEALED], dtype=np.float64)[queries][:, None]


def tuned_to(score: Formula, proposal: tuple[object, ...], *axes: str, baseline: PipelineConfig | None = None) -> Tuned:
    """A finished search over some axes whose proposal has these values."""
    space = SearchSpace.of(baseline or fusion_only(), [parse_axis(text) for text in axes])
    split = Split((np.array([0, 1]), np.array([2, 3])), np.arange(QUERIES, QUERIES + SEALED))
    trials = [_trial(space, score, values) for values in (space.values_of(space.baseline), proposal)]
    plan = Plan(space, Goal((NDCG,)), split, [None] * (QUERIES + SEALED))
    score.asked, score.calls = set(), 0
    return Tuned(plan, Search(trials), trials[1], 0.0, None)


def _trial(space: SearchSpace, score: Formula, values: tuple[object, ...]) -> Trial:
    config = space.config(values)
    scores = score(config, np.arange(QUERIES))
    return Trial(values, config, scores, scores.mean(axis=0))
