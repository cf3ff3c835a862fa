"""What a search teaches, and calibration, against numbers worked out by hand and scikit-learn."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from benchmarks.synthetic_queries import fusion_only
from cems_workbench.config import PipelineConfig, preset
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import SignalTable
from cems_workbench.progress import Cancelled
from cems_workbench.tuning.calibration import (
    METHODS,
    Isotonic,
    Logistic,
    Method,
    calibrate,
    fitted,
    reliability,
)
from cems_workbench.tuning.learned import (
    importance,
    main_effects,
    region,
    response_curve,
    stability,
    within_one_error,
)
from cems_workbench.tuning.space import SearchSpace, parse_axis
from cems_workbench.tuning.tune import Search, Trial
from tests.unit.tuning.made_up_scores import Formula, tuned_to

K, BLEND, VECTOR = "fusion.k=10:50:10", "fusion.score_blend=0:1:0.5", "lists.vector.weight=0.5:2.5:0.5"


def trial(space: SearchSpace, values: tuple[object, ...], reached: float, pruned: bool = False) -> Trial:
    return Trial(values, space.config(values), np.zeros((1, 1)), np.array([reached]), pruned)


def test_main_effects_of_a_grid_of_two_by_two() -> None:
    """y = 2 a + b over a, b in {0, 1}: variances 1 and 1/4 of 5/4 in all. With y = a xor b neither explains anything."""
    assert main_effects(np.array([[0.0, 1.0], [2.0, 3.0]])).tolist() == pytest.approx([0.8, 0.2])
    assert main_effects(np.array([[0.0, 1.0], [1.0, 0.0]])).tolist() == [0.0, 0.0]


def test_on_a_whole_grid_importance_is_exact_whatever_the_order_of_trials_and_beside_the_baseline() -> None:
    space = SearchSpace.of(fusion_only(), [parse_axis(K), parse_axis(BLEND)])
    points = list(itertools.product((10, 30, 50), (0.0, 1.0)))[::-1]
    trials = [trial(space, (60, 0.5), 99.0), *(trial(space, (k, b), k / 20 + b) for k, b in points)]
    found = importance(space, Search(trials))
    # k / 20 has variance 2/3, b has 1/4: of 11/12 in all, 8/11 and 3/11.
    assert found is not None and found.exact and found.trials == 7
    assert dict(found.shares) == pytest.approx({"fusion.k": 8 / 11, "fusion.score_blend": 3 / 11})
    assert [path for path, _ in found.shares] == ["fusion.k", "fusion.score_blend"]
    assert found.together == pytest.approx(0.0, abs=1e-12)


def forest_trials(space: SearchSpace, count: int = 80) -> list[Trial]:
    rng = np.random.default_rng(0)
    drawn = [tuple(axis.value(int(rng.integers(axis.size))) for axis in space.axes) for _ in range(count)]
    return [trial(space, values, 10 * values[0] + values[1] / 10, pruned=i % 3 == 0) for i, values in enumerate(drawn)]


def test_off_a_grid_a_forest_finds_what_matters_and_says_the_same_every_time() -> None:
    axes = [
        parse_axis("fusion.score_blend"),
        parse_axis(VECTOR),
        parse_axis("fusion.k"),
        parse_axis("fusion.normalize"),
    ]
    space = SearchSpace.of(fusion_only(), axes)
    trials = forest_trials(space)
    found, again = importance(space, Search(trials), seed=1), importance(space, Search(trials), seed=1)
    assert found is not None and not found.exact and found == again
    shares = dict(found.shares)
    assert found.shares[0][0] == "fusion.score_blend" and shares["fusion.score_blend"] > 0.8
    assert shares["fusion.k"] < 0.05 and shares["fusion.normalize"] < 0.05
    assert 0 <= found.together < 0.2 and sum(shares.values()) + found.together == pytest.approx(1.0)


def test_nothing_is_said_of_too_few_trials_or_of_trials_that_reached_the_same() -> None:
    space = SearchSpace.of(fusion_only(), [parse_axis(K), parse_axis(BLEND)])
    assert importance(space, Search([trial(space, (10, 0.0), 1.0)])) is None
    assert importance(space, Search([trial(space, (10 * i, 0.0), 1.0) for i in range(1, 6)])) is None
    incomplete = [trial(space, (10, 0.0), 1.0), trial(space, (20, 0.5), 2.0), trial(space, (30, 0.0), 3.0)]
    assert importance(space, Search(incomplete)) is None


def by_k(config: PipelineConfig) -> list[float]:
    """Two queries want k = 30, two do not care."""
    loss = abs(config.fusion.k - 30) / 100
    return [0.8 - loss, 0.6 - loss, 0.4, 0.2]


def test_a_curve_has_the_mean_its_error_and_the_paired_difference_at_every_value() -> None:
    score = Formula(by_k)
    curve = response_curve(tuned_to(score, (30, 0.5), K, BLEND), score, "fusion.k")
    assert curve.values == (10, 20, 30, 40, 50) and curve.own == 2
    assert curve.mean.tolist() == pytest.approx([0.4, 0.45, 0.5, 0.45, 0.4])
    assert curve.difference.tolist() == pytest.approx([-0.1, -0.05, 0.0, -0.05, -0.1])
    assert curve.difference_error[0] == pytest.approx(math.sqrt(4 * 0.01 / 3) / 2)  # of -0.2, -0.2, 0, 0
    assert curve.difference_error[2] == 0.0
    assert score.asked == {0, 1, 2, 3}, "the hold-out stays sealed"


def test_a_curve_has_no_value_where_a_constraint_is_broken() -> None:
    score = Formula(lambda config: [config.rerank.bands[0].retrieval] * 4)
    tuned = tuned_to(score, (0.75,), "rerank.bands.0=0.5:0.9:0.1", baseline=preset("cems").config)
    curve = response_curve(tuned, score, "rerank.bands.0")
    assert curve.values == (0.5, 0.6, 0.7, 0.75, 0.8, 0.9) and curve.own == 3
    assert np.isnan(curve.mean).tolist() == [True, False, False, False, False, False]  # the second band has 0.6
    assert curve.mean[1:].tolist() == pytest.approx([0.6, 0.7, 0.75, 0.8, 0.9])


def test_a_response_can_be_cancelled_and_counts_what_it_replays() -> None:
    score, heard = Formula(by_k), []
    tuned = tuned_to(score, (30,), K)

    def stop(label: str, done: int, total: int) -> None:
        heard.append((label, done, total))
        if done == 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        response_curve(tuned, score, "fusion.k", progress=stop)
    assert heard == [("fusion.k", 0, 5), ("fusion.k", 1, 5), ("fusion.k", 2, 5)]


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


RNG = np.random.default_rng(7)
ANSWERS = RNG.random(200) < 0.7
SCORES = np.where(ANSWERS, RNG.normal(0.5, 0.15, 200), RNG.normal(0.3, 0.15, 200))
GROUPS = [f"g{i % 20}" for i in range(200)]


def table(scores: np.ndarray = SCORES, answers: np.ndarray = ANSWERS) -> SignalTable:
    return SignalTable(tuple(map(str, range(len(scores)))), answers, ~answers, {"vector": scores})


def test_both_curves_are_those_of_scikit_learn() -> None:
    from sklearn.isotonic import IsotonicRegression
    from sklearn.linear_model import LogisticRegression

    grid = np.linspace(-0.2, 1.2, 57)
    line = IsotonicRegression(out_of_bounds="clip").fit(SCORES, ANSWERS)
    assert fitted("isotonic", SCORES, ANSWERS).probability(grid) == pytest.approx(line.predict(grid), abs=1e-9)
    place, spread = SCORES.mean(), SCORES.std()
    model = LogisticRegression(C=1.0).fit(((SCORES - place) / spread)[:, None], ANSWERS)
    expected = model.predict_proba(((grid - place) / spread)[:, None])[:, 1]
    assert fitted("logistic", SCORES, ANSWERS).probability(grid) == pytest.approx(expected, abs=1e-9)


def test_bins_error_and_brier_are_those_of_scikit_learn_and_of_hand() -> None:
    from sklearn.calibration import calibration_curve

    predicted = np.array([0.05, 0.05, 0.25, 0.25, 0.95, 0.95, 1.0, 0.12])
    answers = np.array([0, 0, 0, 1, 1, 1, 1, 0], dtype=bool)
    bins = reliability(predicted, answers)
    observed, mean = calibration_curve(answers, predicted, n_bins=10)
    assert [one.observed for one in bins] == pytest.approx(observed) and sum(one.queries for one in bins) == 8
    assert [(one.low, one.queries) for one in bins] == [(0.0, 2), (0.1, 1), (0.2, 2), (0.9, 3)]
    assert sorted(one.predicted for one in bins) == pytest.approx(sorted(mean))


@pytest.mark.parametrize("method", METHODS)
def test_the_threshold_of_a_probability_is_the_least_score_that_reaches_it(method: Method) -> None:
    curve = fitted(method, SCORES, ANSWERS)
    for wanted in (0.3, 0.5, 0.8):
        found = curve.threshold(wanted)
        assert found is not None
        above, below = curve.probability(np.array([found + 1e-9, found - 1e-3]))
        assert above >= wanted - 1e-6 and below < wanted


def test_a_score_that_says_nothing_or_is_never_sure_enough_has_no_threshold() -> None:
    assert Logistic(0.0, 1.0, -0.5, 0.0).threshold(0.5) is None
    steps = Isotonic(np.array([0.1, 0.2, 0.4]), np.array([0.2, 0.2, 0.6]))
    assert steps.threshold(0.7) is None and steps.threshold(0.1) == -np.inf
    assert steps.threshold(0.4) == pytest.approx(0.3)


@pytest.mark.parametrize("method", METHODS)
def test_a_calibration_is_measured_on_groups_it_was_not_fitted_on(method: Method) -> None:
    found = calibrate(table(), GROUPS, "vector", method)
    assert found.folds == 5 and found.auroc > 0.75 and found.brier < found.base_brier and found.ece < 0.15
    assert found.setting == f"abstain.vector={found.threshold:.6g}"
    assert found.refused is not None and found.wrongly is not None and found.refused > 0.3 > found.wrongly
    noise = calibrate(table(RNG.random(200)), GROUPS, "vector", method)
    assert noise.brier > noise.base_brier - 0.02


def test_too_few_queries_of_a_kind_are_refused_in_a_line() -> None:
    with pytest.raises(InputError, match="takes 5 of each"):
        calibrate(table(SCORES[:20], np.ones(20, dtype=bool)), GROUPS[:20], "vector")
