"""Laws of a search: same seed, same result; wherever it is cut off and taken up again, it ends the same; what it learned adds up."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.synthetic_queries import evidences, fusion_only, planted
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.progress import Cancelled
from cems_workbench.tuning.holdout import split
from cems_workbench.tuning.learned import importance, main_effects, response_curve, stability
from cems_workbench.tuning.objective import Goal
from cems_workbench.tuning.optimizer import Trial, Watch
from cems_workbench.tuning.scorer import BatchScorer, ScoreCache
from cems_workbench.tuning.space import SearchSpace, parse_axis
from cems_workbench.tuning.tune import Plan, Tuned, tune
from tests.thoroughly import EXAMPLES

NDCG, HIT = parse_measure("nDCG@10"), parse_measure("hit@1")
AXES = (
    "lists.vector.weight=0:3:0.25",
    "lists.lexical.weight=0:3:0.25",
    "fusion.k=1:121:10",
    "fusion.score_blend",
    "fusion.normalize",
    "lists.lexical.normalization",
)
QUERIES, TRIALS = 40, 10


@cache
def batch() -> LabelledBatch:
    best = fusion_only({"lists.vector.weight": 2.5, "fusion.score_blend": 0.0})
    return planted(evidences(QUERIES, lists=2, hits=8), best, noise=0.2)


def scorer() -> BatchScorer:
    return BatchScorer(batch(), (NDCG, HIT), part=15)


def trace(tuned: Tuned) -> list[object]:
    trials = [(t.values, t.pruned, t.phase, t.reached.tolist(), t.scores.tolist()) for t in tuned.search.trials]
    return [trials, tuned.search.front, tuned.config, tuned.train, tuned.validation]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    axes = draw(st.lists(st.sampled_from(AXES), min_size=1, max_size=5, unique=True))
    seed = draw(st.integers(0, 2**31 - 1))
    goal = draw(st.sampled_from([Goal((NDCG,)), Goal((NDCG, HIT))]))
    groups = [f"g{row % 8}" for row in range(QUERIES)]
    space = SearchSpace.of(fusion_only(), [parse_axis(text) for text in axes])
    return Plan(space, goal, split(groups, folds=2, seed=seed), [None] * QUERIES, trials=TRIALS, seed=seed)


@settings(max_examples=EXAMPLES // 2)
@given(plan=plans(), stop_after=st.integers(1, 3 * TRIALS))
def test_a_search_cut_off_anywhere_and_taken_up_in_another_process_equals_an_uninterrupted_one(plan, stop_after):
    uninterrupted, score, left = scorer(), scorer(), [stop_after]
    whole = tune(plan, uninterrupted)

    def stage(name: str) -> Watch:
        def stop(done: int, total: int, best: Trial) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Cancelled

        return stop

    cut = tune(plan, score, stage)
    assert cut.search.cancelled or left[0] > 0
    with TemporaryDirectory() as folder:
        kept = ScoreCache(Path(folder) / "s.npz", ("this search",))
        kept.write(score.known())
        another = scorer()
        another.recall(kept.read())
    resumed = tune(plan, another)
    assert trace(resumed) == trace(whole) == trace(tune(plan, scorer()))
    tried = len(cut.search.trials)
    assert [t.values for t in cut.search.trials] == [t.values for t in whole.search.trials[:tried]]
    assert another.evaluations + score.evaluations <= uninterrupted.evaluations


@settings(max_examples=EXAMPLES // 2)
@given(plan=plans())
def test_what_a_search_learned_adds_up(plan: Plan) -> None:
    score = scorer()
    tuned = tune(plan, score)
    found = importance(plan.space, tuned.search, seed=plan.seed)
    if found is not None:
        assert all(-1e-9 <= share <= 1 + 1e-9 for _, share in found.shares)
        assert sum(share for _, share in found.shares) + found.together == pytest.approx(1.0)
        assert found == importance(plan.space, tuned.search, seed=plan.seed)
    for region, axis in zip(stability(tuned, score), plan.space.axes, strict=True):
        assert region.path == axis.path
        assert region.own in region.choices if axis.choices else region.low <= region.own <= region.high
        curve = response_curve(tuned, score, axis.path, most=5)
        assert curve.mean[curve.own] == tuned.proposal.scores[:, 0].mean() and curve.difference[curve.own] == 0.0
        assert np.all(curve.difference_error[~np.isnan(curve.mean)] >= 0)


@given(
    effects=st.lists(
        st.lists(st.floats(-5, 5), min_size=2, max_size=4).map(lambda effect: np.array(effect)), min_size=2, max_size=3
    )
)
def test_the_main_effects_of_a_sum_of_effects_are_all_there_is(effects: list[np.ndarray]) -> None:
    grid = sum(np.meshgrid(*effects, indexing="ij"), start=np.zeros([len(one) for one in effects]))
    if grid.var() > 1e-6:
        shares = main_effects(grid)
        assert shares.sum() == pytest.approx(1.0)
        assert shares.tolist() == pytest.approx([one.var() / grid.var() for one in effects])
