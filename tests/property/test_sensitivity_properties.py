"""Breakpoints hold: replays just below and just above give the two results, and between two of them nothing changes."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import configs, evidences

from cems_workbench.analysis.sensitivity.exact import HALF_LIFE, ParameterSweep, line_kind
from cems_workbench.analysis.sensitivity.scan import Sweep, is_number, sweep
from cems_workbench.analysis.why.counterfactual import searched_specs
from cems_workbench.analysis.why.trial import changed
from cems_workbench.config import PipelineConfig, load_config, preset, with_values
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.bundle import read_bundle
from cems_workbench.pipeline.replay import run, single_table
from cems_workbench.pipeline.stages import ADJUST, ASSEMBLY, FUSION
from tests.thoroughly import THOROUGH, some

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


@given(evidences(), configs(assembly__strategy="greedy"), st.sampled_from(SOLVED), st.integers(1, 6), st.integers(0, 9))
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
