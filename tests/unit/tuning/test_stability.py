"""How far each value of a proposal can move within one standard error, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.synthetic_queries import fusion_only
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.tuning.learned import response_curve
from cems_workbench.tuning.stability import region, stability, within_one_error
from tests.unit.tuning.made_up_scores import Formula, tuned_to


def test_within_one_standard_error_of_the_paired_differences() -> None:
    """-0.2, 0, 0, 0 has mean -0.05 and standard error 0.05; -0.2 twice has -0.1 and 0.0577."""
    assert within_one_error(np.array([-0.2, 0.0, 0.0, 0.0]))
    assert not within_one_error(np.array([-0.2, -0.2, 0.0, 0.0]))
    assert within_one_error(np.array([-0.2, 0.2, 0.0, 0.0])) and within_one_error(np.zeros(4))
    assert within_one_error(np.full(4, 0.1)), "what is better is no loss"
    assert not within_one_error(np.array([-1e-6])), "one query says nothing of chance"


def plateau(config: PipelineConfig) -> list[float]:
    """Every query loses 0.1 below k = 24 and above k = 71; between them nothing changes."""
    return [0.5 if 24 <= config.fusion.k <= 71 else 0.4] * 4


def test_a_region_ends_at_the_last_step_that_stays_within() -> None:
    score = Formula(plateau)
    tuned = tuned_to(score, (60,), "fusion.k=1:200:1")
    found = region(tuned, score, "fusion.k")
    assert (found.low, found.high) == (24, 71)
    assert not found.at_low_edge and not found.at_high_edge and found.own == 60
    assert score.calls < 40, "not every one of 200 values is replayed"
    assert score.asked == {0, 1, 2, 3}, "the hold-out stays sealed"


def test_a_region_that_reaches_the_end_of_the_range_says_so() -> None:
    score = Formula(plateau)
    one = region(tuned_to(score, (60,), "fusion.k=30:100:10"), score, "fusion.k")
    assert (one.low, one.high, one.at_low_edge, one.at_high_edge) == (30, 70, True, False)
    both = region(tuned_to(score, (50,), "fusion.k=30:70:10"), score, "fusion.k")
    assert (both.low, both.high, both.at_low_edge, both.at_high_edge) == (30, 70, True, True)


def test_a_loss_that_chance_explains_is_within_and_one_on_every_query_is_not() -> None:
    def one_loses(config: PipelineConfig) -> list[float]:
        return [0.5 - 0.3 * (config.fusion.k > 60), 0.5, 0.5, 0.5]

    def all_lose(config: PipelineConfig) -> list[float]:
        return [0.5 - 0.001 * (config.fusion.k > 60)] * 4

    for formula, high in ((one_loses, 100), (all_lose, 60)):
        score = Formula(formula)
        assert region(tuned_to(score, (60,), "fusion.k=20:100:10"), score, "fusion.k").high == high


def test_a_region_is_a_run_around_the_proposal_without_what_lies_past_a_valley() -> None:
    score = Formula(lambda config: [0.5 - 0.1 * (config.fusion.k == 40)] * 4)
    found = region(tuned_to(score, (60,), "fusion.k=20:100:10"), score, "fusion.k")
    assert (found.low, found.high) == (50, 100)


def test_the_region_of_a_choice_is_every_choice_that_stays_within() -> None:
    worth = {"rrf": 0.5, "combsum": 0.5}
    score = Formula(lambda config: [worth.get(config.fusion.method, 0.1)] * 4)
    tuned = tuned_to(score, ("rrf",), "fusion.method")
    found = region(tuned, score, "fusion.method")
    assert found.choices[0] == "rrf" and set(found.choices) == set(worth) & set(tuned.plan.space.axes[0].choices)
    assert found.low is None and not found.at_low_edge


def test_a_proposal_beside_the_steps_has_a_region_too() -> None:
    score = Formula(plateau)
    tuned = tuned_to(score, (60,), "fusion.k=5:195:10", baseline=fusion_only({"fusion.k": 60}))
    found = region(tuned, score, "fusion.k")
    assert (found.own, found.low, found.high) == (60, 25, 65)


def test_every_searched_parameter_has_a_region_and_what_the_curves_replayed_agrees() -> None:
    score, heard = Formula(plateau), []
    tuned = tuned_to(score, (60, 0.5), "fusion.k=10:90:10", "fusion.score_blend=0:1:0.5")
    found = stability(tuned, score, progress=lambda label, done, total: heard.append((done, total)))
    assert [one.path for one in found] == ["fusion.k", "fusion.score_blend"] and heard == [(0, 2), (1, 2), (2, 2)]
    assert (found[0].low, found[0].high) == (30, 70)
    assert found[1].at_low_edge and found[1].at_high_edge
    curve = response_curve(tuned, score, "fusion.k")
    inside = [value for value, d in zip(curve.values, curve.difference.tolist(), strict=True) if d >= 0]
    assert (inside[0], inside[-1]) == (found[0].low, found[0].high)
    with pytest.raises(InputError, match="was not searched"):
        region(tuned, score, "gap.ratio")
