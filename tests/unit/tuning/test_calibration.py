"""Calibration of a signal against scikit-learn and numbers worked out by hand.

What a calibration says of a signal with a threshold and one without.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import SignalTable
from cems_workbench.tuning.calibration import (
    METHODS,
    Isotonic,
    Logistic,
    Method,
    calibrate,
    calibration_table,
    fitted,
    reliability,
    wilson,
)
from cems_workbench.ui.evaluate.breakdown import reliability_figure

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
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


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


def test_the_diagram_has_a_dot_a_bin_with_its_interval() -> None:
    found = calibrate(table(), GROUPS, "vector")
    dots = reliability_figure(found).data[1]
    assert list(dots.y) == [one.observed for one in found.bins] and len(found.table) == len(found.bins)
    assert list(dots.error_y.array) == [one.interval[1] - one.observed for one in found.bins]


def test_a_threshold_is_an_assignment_and_its_absence_is_said() -> None:
    found = calibrate(table(), GROUPS, "vector")
    assert found.setting == f"abstain.vector={found.threshold:.6g}"
    assert replace(found, threshold=None).without.startswith("no threshold: no score reaches a probability of 0.5")
    assert [row[0] for row in calibration_table([found], "session").rows] == ["vector"]
