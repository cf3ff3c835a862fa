"""People against the judge: kappa by threshold against scikit-learn, the best threshold, reliability, and where they differ most."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from cems_workbench.evaluation.labelling.judge_calibration import (
    GradedScore,
    band_confusion,
    calibrate,
    calibration_error,
    differences,
    graded_scores,
    probabilities,
    reliability,
    wilson,
)
from cems_workbench.evaluation.labelling.pooling import band, grade_of
from cems_workbench.records import GradeScale, JudgeScale

SCALE = JudgeScale(0.0, (2.0, 0.0, -2.0))


def scored(*rows: tuple[int, float], per_query: int = 2) -> list[GradedScore]:
    """Pairs of (grade, raw score), `per_query` a query."""
    return [GradedScore(f"q{n // per_query:03d}", f"m{n:03d}", grade, raw) for n, (grade, raw) in enumerate(rows)]


def drawn(seed: int, size: int = 60) -> list[GradedScore]:
    random = np.random.default_rng(seed)
    grades = random.integers(0, 4, size)
    return scored(*((int(grade), float(grade + random.normal(0, 1.5))) for grade in grades), per_query=5)


def test_kappa_of_every_threshold_equals_scikit_learn(subtests: pytest.Subtests) -> None:
    from sklearn.metrics import cohen_kappa_score  # a second: not while every worker collects

    for seed in range(10):
        with subtests.test(seed=seed):
            pairs = drawn(seed)
            found = calibrate(pairs, present=0.7, relevant_from=2, draws=5)
            people = [one.grade >= 2 for one in pairs]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for threshold, kappa in zip(
                    [*found.thresholds, 0.7], [*found.kappas, found.present.value], strict=True
                ):
                    judge = [one.raw > threshold for one in pairs]
                    assert kappa == pytest.approx(cohen_kappa_score(people, judge), nan_ok=True)
            assert found.kappa.value == pytest.approx(np.nanmax(found.kappas))


def test_scores_that_tell_grades_apart_give_a_threshold_between_them_and_kappa_one() -> None:
    found = calibrate(scored((0, -3.0), (1, -1.0), (2, 2.0), (3, 4.0)), present=-5.0, relevant_from=2)
    assert found.threshold is not None
    assert -1.0 <= found.threshold < 2.0
    assert found.kappa.value == 1.0
    assert found.present.value == 0.0  # everything is above -5


def test_a_threshold_has_few_digits_and_still_tells_its_neighbours_apart() -> None:
    assert list(calibrate(scored((0, 0.123), (3, 3.9)), 0.0, 2).thresholds) == [2.0]
    assert list(calibrate(scored((0, 0.51), (3, 0.52)), 0.0, 2).thresholds) == [0.515]


def test_the_interval_holds_the_threshold_and_is_a_function_of_the_seed() -> None:
    found = calibrate(drawn(3), 0.0, 2, seed=7)
    assert found.threshold is not None and found.low is not None and found.high is not None
    assert found.low <= found.threshold <= found.high
    again = calibrate(drawn(3), 0.0, 2, seed=7)
    assert (again.low, again.high, again.kappa) == (found.low, found.high, found.kappa)


def test_a_hundred_times_the_labels_narrow_the_interval() -> None:
    few, many = calibrate(drawn(0, 40), 0.0, 2), calibrate(drawn(0, 4000), 0.0, 2)
    assert many.high - many.low < few.high - few.low  # type: ignore[operator]
    assert len(many.thresholds) <= 400


@pytest.mark.parametrize("pairs", [[], scored((3, 1.0)), scored((0, 1.0), (0, 2.0))], ids=["none", "one", "one side"])
def test_without_both_sides_nothing_is_defined_and_nothing_fails(pairs: list[GradedScore]) -> None:
    found = calibrate(pairs, 0.0, 2, draws=10)
    assert (found.threshold, found.kappa.value) == (None, None)


def test_bands_and_their_grades_by_hand() -> None:
    assert [band(raw, SCALE) for raw in (2.1, 2.0, 0.1, 0.0, -2.0)] == [0, 1, 1, 2, 3]
    assert [grade_of(raw, SCALE) for raw in (3.0, 1.0, -1.0, -3.0)] == [3, 2, 1, 0]
    yes_no = GradeScale(((0, "no"), (1, "yes")))
    assert [grade_of(raw, SCALE, yes_no) for raw in (3.0, 1.0, -1.0, -3.0)] == [1, 1, 0, 0]


def test_confusion_counts_each_pair_once_under_its_grade_and_band() -> None:
    confusion = band_confusion(scored((3, 3.0), (3, 1.0), (0, 1.0), (0, -5.0)), SCALE)
    assert confusion == {3: [1, 1, 0, 0], 0: [0, 1, 0, 1]}
    assert list(confusion) == [3, 0]


def test_only_pairs_that_both_graded_count() -> None:
    found = graded_scores({"q": {"a": 3, "b": 0}}, {("q", "a"): 1.0, ("q", "c"): 2.0, ("r", "a"): 2.0})
    assert found == [GradedScore("q", "a", 3, 1.0)]


@pytest.mark.parametrize("seed", range(5))
def test_reliability_equals_scikit_learns_quantile_curve(seed: int) -> None:
    from sklearn.calibration import calibration_curve

    random = np.random.default_rng(seed)
    probability = random.uniform(size=200)
    relevant = random.uniform(size=200) < probability
    bins = reliability(probability, list(relevant), 8)
    share, mean = calibration_curve(relevant, probability, n_bins=8, strategy="quantile")
    assert [one.share for one in bins] == pytest.approx(list(share))
    assert [one.probability for one in bins] == pytest.approx(list(mean))
    assert sum(one.pairs for one in bins) == 200


def test_calibration_error_by_hand() -> None:
    bins = reliability(np.array([0.2, 0.2, 0.8, 0.8]), [False, False, True, False], 2)
    assert [(one.probability, one.share, one.pairs) for one in bins] == [(0.2, 0.0, 2), (0.8, 0.5, 2)]
    assert calibration_error(bins) == pytest.approx(0.25)
    assert calibration_error([]) is None


def test_wilsons_interval_by_hand() -> None:
    """z² = 3.8415: (0 + 1.9207 -+ 1.9207) / 8.8415 of five trials without success."""
    assert wilson(0, 5) == pytest.approx((0.0, 3.8415 / 8.8415), abs=1e-4)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_scores_within_zero_and_one_are_probabilities_and_others_logits() -> None:
    assert probabilities(scored((0, 0.2), (1, 0.9)))[1] is True
    found, own = probabilities(scored((0, 0.0), (1, -1000.0)))
    assert not own
    assert list(found) == pytest.approx([0.5, 0.0])


def test_the_widest_difference_comes_first_and_agreement_is_none() -> None:
    found = differences(scored((3, 3.0), (2, -0.5), (3, -4.0), (0, 0.5), (0, -9.0)), SCALE, relevant_from=2)
    assert [(one.scored.grade, one.band, one.steps) for one in found] == [
        (3, "irrelevant", 3),
        (0, "relevant", 2),
        (2, "weak", 1),
    ]
