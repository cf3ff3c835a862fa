"""Searches that are cut off and taken up again; breakpoints of values, and between them nothing changes."""

from __future__ import annotations

import math
import random
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import configs, evidences

from benchmarks.synthetic_queries import evidences as planted_evidences
from benchmarks.synthetic_queries import fusion_only, planted
from cems_workbench.analysis.why.counterfactual import searched_specs
from cems_workbench.config import PipelineConfig, load_config, preset, with_values
from cems_workbench.config.model import changed
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.bundle import read_bundle
from cems_workbench.pipeline.replay import run, single_table
from cems_workbench.pipeline.stages import ADJUST, ASSEMBLY, FUSION
from cems_workbench.progress import Cancelled
from cems_workbench.tuning.holdout import split
from cems_workbench.tuning.learned import importance, main_effects, response_curve, stability
from cems_workbench.tuning.objective import Goal
from cems_workbench.tuning.scorer import BatchScorer, ScoreCache
from cems_workbench.tuning.space import SearchSpace, parse_axis
from cems_workbench.tuning.tune import Plan, Trial, Tuned, Watch, tune
from tests.thoroughly import EXAMPLES, THOROUGH, some
from workbench_inspect.breakpoints import HALF_LIFE, ParameterSweep, line_kind
from workbench_inspect.sweeps import Sweep, is_number, sweep

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
    return planted(planted_evidences(QUERIES, lists=2, hits=8), best, noise=0.2)


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


NUMBERS = [spec.path for spec in searched_specs() if is_number(spec)]
SOLVED = [spec.path for spec in searched_specs() if spec.type is float]
GOLDEN_PATHS = [
    "lists.vector.weight",
    "lists.recency.weight",
    "variants.original_weight",
    "fusion.top_rank_bonus.rank1",
    "fusion.score_blend",
    "filter.min_score",
    "adjust.time_decay.half_life_days",
    "gap.ratio",
    "dedup.similarity",
    "assembly.max_tokens",
    "assembly.mmr_lambda",
]
SAMPLES = 1
NEAR = 1e-9
GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden"


def results(evidence: Evidence, config: PipelineConfig, path: str, value: object, k: int) -> tuple[str, ...]:
    """The first k results by a full replay."""
    rows = replay(evidence, changed(config, path, value)).stage("assembly").rows
    return tuple(row.memory_id for row in rows if row.kept)[:k]


def quickly(evidence: Evidence, config: PipelineConfig, path: str, value: object, k: int) -> tuple[str, ...]:
    """The same without making a trace."""
    order = run(single_table(evidence), changed(config, path, value)).of(ASSEMBLY).after.order(0)[:k]
    return tuple(single_table(evidence).ids[0][int(c)] for c in order)


def checked(evidence: Evidence, config: PipelineConfig, found: Sweep, seed: int) -> int:
    """Assert both sides of each breakpoint and, for what is exact, values between them; the number of breakpoints."""
    path, k, chance = found.spec.path, found.k, random.Random(seed)
    for point in found.breakpoints:
        assert point.before != point.after
        assert results(evidence, config, path, point.below, k) == point.before, (path, point)
        assert results(evidence, config, path, point.above, k) == point.after, (path, point)
        if found.method == "every value" and found.spec.type is int:
            assert point.above == point.below + 1
        assert point.above - point.below <= max(found.tolerance, 1 if found.spec.by_ones else 1e-3)
    if found.method != "bracketed":
        for one in found.segments:
            for _ in range(SAMPLES):
                whole = found.spec.by_ones
                value = (
                    chance.randint(math.ceil(one.first), math.ceil(one.last))
                    if whole
                    else chance.uniform(one.first, one.last)
                )
                assert quickly(evidence, config, path, value, k) == one.results or too_close(
                    evidence, config, path, value
                ), (path, value, one)
    return len(found.breakpoints)


def too_close(evidence: Evidence, config: PipelineConfig, path: str, value: float) -> bool:
    """Do two scores differ by no more than rounding, so that no line can tell them apart?"""
    stages = ParameterSweep(evidence, config, path, 1).stages(value)
    for stage in (FUSION, ADJUST):
        after = stages.of(stage).after
        scores = sorted(after.score[0, after.alive[0]])
        if any(0 < two - one < NEAR for one, two in pairwise(scores)):
            return True
    return False


@given(evidences(), configs(), st.sampled_from(NUMBERS), st.integers(1, 6), st.integers(0, 9))
def test_a_breakpoint_separates_two_results_and_between_them_nothing_changes(evidence, config, path, k, seed):
    checked(evidence, config, sweep(evidence, config, path, k), seed)


@given(
    evidences(),
    configs(assembly__strategy="greedy"),
    st.sampled_from(SOLVED),
    st.integers(1, 6),
    st.integers(0, 9),
)
def test_what_is_said_to_be_solved_is_constant_between_breakpoints(evidence, config, path, k, seed):
    """Few parameters are away from their defaults, so that most of these are solved."""
    plain = with_values(config, {"rerank.backend": "none", "fusion.method": "rrf"})
    found = sweep(evidence, plain, path, k)
    turned = ParameterSweep(evidence, plain, path, k)
    if path == HALF_LIFE or line_kind(turned) is not None:
        assert found.replays < 2500
    checked(evidence, plain, found, seed)


@given(evidences(), configs(), st.sampled_from(NUMBERS))
def test_the_segments_cover_the_range_and_hold_the_present_value(evidence, config, path):
    found = sweep(evidence, config, path, 5)
    for one, two in pairwise(found.segments):
        assert one.first <= one.last < two.first <= two.last
    now = tuple(row.memory_id for row in replay(evidence, config).results[:5])
    assert found.present.results == now


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="../shared is not beside the checkout")
def test_breakpoints_of_every_golden_case_hold() -> None:
    """A parameter of each kind on golden bundles, each under its own config."""
    count = 0
    for folder in some(sorted(GOLDEN.iterdir()), 4):
        evidence, config = read_bundle(folder / "bundle.json"), load_config(folder / "config.yaml")
        for path in GOLDEN_PATHS:
            count += checked(evidence, config, sweep(evidence, config, path, 5), 1)
    assert count > (300 if THOROUGH else 75)


def test_every_number_of_the_config_has_a_sweep() -> None:
    empty = Evidence(query="", memories={})
    for path in NUMBERS:
        found = sweep(empty, preset("cems").config, path, 5)
        assert [one.results for one in found.segments] == [()]
