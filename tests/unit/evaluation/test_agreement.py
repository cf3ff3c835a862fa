"""Kappa and alpha: by hand, against scikit-learn and krippendorff on random tables, and what they are not defined for."""

from __future__ import annotations

import warnings

import krippendorff
import numpy as np
import pytest

from cems_workbench.evaluation.labelling import agreement
from cems_workbench.evaluation.labelling.agreement import (
    Disagreement,
    Estimate,
    alpha_reading,
    kappa_reading,
    label_table,
)
from cems_workbench.records import Judgment

SCALE = (0, 1, 2, 3)


def judged(grades: np.ndarray, missing: np.ndarray | None = None, per_query: int = 3) -> list[Judgment]:
    """Judgments of a table (reviewers, pairs), `per_query` pairs a query."""
    return [
        Judgment(f"q{pair // per_query:03d}", f"m{pair:03d}", int(grades[who, pair]), f"r{who}")
        for who in range(grades.shape[0])
        for pair in range(grades.shape[1])
        if missing is None or not missing[who, pair]
    ]


def test_kappa_by_hand():
    # Ann 0 0 1 1, Bo 0 1 1 1: observed disagreement 1/4, expected 2/4*1/4 + 2/4*3/4 = 1/2.
    confusion = np.array([[1.0, 1.0], [0.0, 2.0]])
    assert agreement.weighted_kappa(confusion, "linear") == pytest.approx(0.5)


def test_alpha_of_the_published_example():
    """Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), example C: four observers, twelve units."""
    gap = -1
    grades = np.array(
        [
            [1, 2, 3, 3, 2, 1, 4, 1, 2, gap, gap, gap],
            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, gap, 3],
            [gap, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, gap],
            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, gap],
        ]
    )
    table = label_table(judged(grades, grades == gap))
    assert agreement.alpha(table, "nominal", draws=5).value == pytest.approx(0.743, abs=5e-4)
    assert agreement.alpha(table, "ordinal", draws=5).value == pytest.approx(0.815, abs=5e-4)
    assert agreement.alpha(table, "interval", draws=5).value == pytest.approx(0.849, abs=5e-4)


def test_kappa_equals_scikit_learn_on_random_tables(subtests):
    from sklearn.metrics import cohen_kappa_score  # a second: not while every worker collects

    for seed in range(25):
        for weights in ["linear", "quadratic"]:
            with subtests.test(seed=seed, weights=weights):
                random = np.random.default_rng(seed)
                grades = random.integers(0, 4, (2, random.integers(2, 60)))
                (found,) = agreement.pairwise_kappa(label_table(judged(grades), SCALE), weights, draws=5)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    expected = cohen_kappa_score(grades[0], grades[1], weights=weights, labels=list(SCALE))
                assert found.kappa.value == pytest.approx(expected, abs=1e-12)
                assert found.kappa.pairs == grades.shape[1]


def test_alpha_equals_krippendorff_on_random_tables_with_gaps(subtests):
    for seed in range(25):
        for level in ["nominal", "ordinal", "interval"]:
            with subtests.test(seed=seed, level=level):
                random = np.random.default_rng(seed)
                shape = (random.integers(2, 6), random.integers(3, 50))
                grades, missing = random.integers(0, 4, shape), random.random(shape) < 0.3
                found = agreement.alpha(label_table(judged(grades, missing), SCALE), level, draws=5)
                values = np.where(missing, np.nan, grades)
                try:
                    expected = krippendorff.alpha(
                        reliability_data=values, level_of_measurement=level, value_domain=list(SCALE)
                    )
                except ValueError:  # nobody shared a pair, or one grade in all
                    expected = None
                assert found.value == (
                    None if expected is None or np.isnan(expected) else pytest.approx(expected, abs=1e-9)
                )


def test_the_interval_holds_the_value_and_is_the_same_for_the_same_seed():
    random = np.random.default_rng(1)
    truth = random.integers(0, 4, 90)
    noisy = np.stack([np.clip(truth + random.integers(-1, 2, 90), 0, 3) for _ in range(3)])
    table = label_table(judged(noisy), SCALE)
    found = agreement.alpha(table)
    assert found.low < found.value < found.high
    assert found == agreement.alpha(table)
    assert found != agreement.alpha(table, seed=1)
    few = agreement.alpha(label_table(judged(noisy[:, :30]), SCALE))
    assert few.high - few.low > found.high - found.low


def test_the_interval_is_drawn_over_queries_not_over_pairs():
    random = np.random.default_rng(2)
    bad = np.repeat(random.random(10) < 0.5, 9)  # whole queries on which the two differ
    first = random.integers(0, 2, 90)
    table = np.stack([first, np.where(bad, 1 - first, first)])
    by_query = agreement.alpha(label_table(judged(table, per_query=9)))
    by_pair = agreement.alpha(label_table(judged(table, per_query=1)))
    assert by_query.value == pytest.approx(by_pair.value)
    assert by_query.high - by_query.low > 1.5 * (by_pair.high - by_pair.low)


@pytest.mark.parametrize(
    "judgments",
    [
        [],
        [Judgment("q", "m", 1, "Ann")],
        [Judgment("q", "m", 1, "Ann"), Judgment("q", "n", 1, "Bo")],
        [Judgment("q", "m", 2, "Ann"), Judgment("q", "m", 2, "Bo")],
    ],
)
def test_without_a_shared_pair_or_a_second_grade_nothing_is_defined(judgments):
    table = label_table(judgments, SCALE)
    assert agreement.alpha(table).value is None
    assert [pair.kappa.value for pair in agreement.pairwise_kappa(table)] in ([], [None])


def test_agreement_by_type_of_query():
    grades = np.array([[0, 3, 0, 3, 0, 3], [0, 3, 0, 0, 3, 0]])
    types = {"q000": "temporal", "q001": None}
    found = agreement.alpha_by_type(judged(grades), types, SCALE, draws=50)
    assert found["temporal"].value == pytest.approx(1.0)
    assert found[""].value < 0
    assert isinstance(found[""], Estimate)


def test_disagreements_stand_widest_first():
    judgments = [
        Judgment("q", "m", 3, "Ann"),
        Judgment("q", "m", 3, "Bo"),
        Judgment("q", "n", 1, "Ann"),
        Judgment("q", "n", 2, "Bo"),
        Judgment("p", "m", 0, "Ann"),
        Judgment("p", "m", 3, "Bo"),
    ]
    assert agreement.disagreements(judgments) == [
        Disagreement("p", "m", {"Ann": 0, "Bo": 3}, 3),
        Disagreement("q", "n", {"Ann": 1, "Bo": 2}, 1),
    ]


@pytest.mark.parametrize(
    ("kappa", "read"),
    [
        (Estimate(0.41, 0.19, 0.63, 9), "moderate (slight to substantial)"),
        (Estimate(-0.1, -0.3, 0.0, 9), "none"),
        (Estimate(0.9, 0.85, 1.0, 9), "almost perfect"),
        (Estimate(None, None, None, 0), ""),
    ],
)
def test_a_kappa_is_read_by_landis_and_koch_and_so_are_the_ends_of_its_interval(kappa: Estimate, read: str) -> None:
    assert kappa_reading(kappa) == read


def test_an_alpha_is_read_by_krippendorff() -> None:
    assert [alpha_reading(Estimate(value, None, None, 9)) for value in (0.5, 0.667, 0.8)] == [
        "unreliable",
        "tentative",
        "reliable",
    ]
    assert str(Estimate(0.5, 0.4, 0.6, 9)) == "0.50 (95 % interval 0.40 to 0.60)"
