"""Measures, their names, and chance, on numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cems_workbench.errors import InputError
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.evaluation.metrics import Measure, graded, parse_measure, parse_measures
from cems_workbench.evaluation.metrics.measure import rbo
from cems_workbench.evaluation.statistics import bootstrap, bounds, effect_size, holm, means, randomisation_test
from cems_workbench.records import Judgment

RANKING = ["x", "a", "b", "y", "c"]
GRADES = {"a": 3, "b": 1, "c": 2, "y": 0, "lost": 2}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hit@1", 0.0),
        ("hit@5", 1.0),
        ("recall@3", 2 / 4),
        ("all@5", 0.0),
        ("all(rel=3)@2", 1.0),
        ("all(rel=3)@1", 0.0),
        ("recall@5", 3 / 4),
        ("P@3", 2 / 3),
        ("P@10", 3 / 10),
        ("MRR", 1 / 2),
        ("MRR@1", 0.0),
        ("AP", (1 / 2 + 2 / 3 + 3 / 5) / 4),
        ("Judged@5", 4 / 5),
        ("Judged@10", 4 / 5),
        ("hit(rel=3)@1", 0.0),
        ("recall(rel=2)@5", 2 / 3),
        (
            "nDCG@5",
            (3 / math.log2(3) + 1 / math.log2(4) + 2 / math.log2(6))
            / (3 + 2 / math.log2(3) + 2 / math.log2(4) + 1 / math.log2(5)),
        ),
    ],
)
def test_measures_by_hand(name: str, expected: float) -> None:
    assert parse_measure(name).values(graded([RANKING], [GRADES]))[0] == pytest.approx(expected, abs=1e-12)


# LongMemEval's evaluate_retrieval (src/retrieval/eval_utils.py at 9e0b455), run on 12 documents in this order, of which these are
# relevant: recall_any and recall_all at 1, 3, 5 and 10.
LONGMEMEVAL = [
    ("b78a39462105", [9], [0, 0, 0, 1], [0, 0, 0, 1]),
    ("31904b72586a", [3], [1, 1, 1, 1], [1, 1, 1, 1]),
    ("329a68407b51", [3, 10], [1, 1, 1, 1], [0, 0, 1, 1]),
    ("6943015ab782", [3, 9], [0, 1, 1, 1], [0, 0, 1, 1]),
    ("73195b6a4028", [1, 3, 9], [0, 1, 1, 1], [0, 0, 1, 1]),
    ("69405371ab82", [1, 4, 9], [0, 1, 1, 1], [0, 0, 0, 1]),
    ("807b962a1543", [0, 7, 8, 11], [1, 1, 1, 1], [0, 0, 1, 1]),
    ("5379482ba160", [1, 2, 3, 5, 6, 9], [1, 1, 1, 1], [0, 0, 0, 0]),
]


def test_all_at_k_and_hit_at_k_are_longmemevals_recall_all_and_recall_any() -> None:
    rankings = [[f"s{int(place, 16)}" for place in order] for order, *_ in LONGMEMEVAL]
    grades = [{f"s{number}": 1 for number in relevant} | {"s99": 0} for _, relevant, *_ in LONGMEMEVAL]
    # _abs: no target, and in no mean of run_retrieval.py
    found = graded([*rankings, rankings[0]], [*grades, {"s1": 0}])
    for name, column in (("recall_any", 2), ("recall_all", 3)):
        for place, k in enumerate((1, 3, 5, 10)):
            values = parse_measure(f"{name}@{k}").values(found)
            assert values[:-1].tolist() == [row[column][place] for row in LONGMEMEVAL], (name, k)
            assert math.isnan(values[-1])


def test_a_query_without_results_counts_0_and_one_without_anything_relevant_is_left_out() -> None:
    found = graded([[], ["a"]], [{"a": 1}, {"a": 0}])
    for measure in parse_measures("hit@5 recall@5 all@5 P@3 MRR nDCG@10 AP"):
        assert measure.values(found).tolist() == pytest.approx([0.0, math.nan], nan_ok=True)
    assert parse_measure("Judged@10").values(found).tolist() == [0.0, 1.0]
    assert means(np.array([[0.0], [math.nan]])).tolist() == [0.0]


def test_no_query_at_all_has_no_mean() -> None:
    found = graded([], [])
    for measure in parse_measures("hit@5 nDCG@10 AP MRR Judged@10"):
        assert measure.values(found).shape == (0,)
    assert np.isnan(bootstrap(np.zeros((0, 2)))).all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hit@5", Measure("hit", 5)),
        ("Success@5", Measure("hit", 5)),
        ("recall_any@5", Measure("hit", 5)),
        ("recall_all@5", Measure("all", 5)),
        ("ndcg@10", Measure("nDCG", 10)),
        ("mrr", Measure("MRR")),
        ("AP(rel=2)", Measure("AP", None, 2)),
    ],
)
def test_names_of_measures(text: str, expected: Measure) -> None:
    assert parse_measure(text) == expected
    assert parse_measure(str(expected)) == expected


def test_the_lowest_relevant_grade_can_be_set_for_all() -> None:
    assert [str(measure) for measure in parse_measures("hit@5, nDCG@10 P(rel=3)@3", 2)] == [
        "hit(rel=2)@5",
        "nDCG@10",
        "P(rel=3)@3",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("R@5", "write hit@5 .* or recall@5"),
        ("hit", "needs a cut-off, such as hit@5"),
        ("hit@0", "at least 1"),
        ("hits@5", "did you mean hit"),
        ("nDCG@ten", "expected a name such as"),
        (" ", "no measure"),
    ],
)
def test_what_is_no_measure_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_measures(text)


def test_bounds_of_what_is_not_judged() -> None:
    """x is not judged: as relevant it makes the first rank a hit and adds one to all that are relevant."""
    found = graded([RANKING], [GRADES])
    low, high = bounds(found, parse_measures("hit@1 P@3 recall@3 MRR"))
    assert low.tolist() == pytest.approx([0, 2 / 3, 2 / 4, 1 / 2])
    assert high.tolist() == pytest.approx([1, 1, 3 / 5, 1])


def test_what_turns_out_relevant_further_down_can_lower_recall() -> None:
    low, high = bounds(graded([["a", "x"]], [{"a": 1}]), parse_measures("AP nDCG"))
    assert low[0] == high[0] == 1.0
    low, high = bounds(graded([["x", "n", "y"]], [{"a": 1, "n": 0}]), parse_measures("recall@3"))
    assert (low[0], high[0]) == (0.0, pytest.approx(2 / 3))


def test_the_bootstrap_is_seeded_and_holds_the_mean() -> None:
    values = np.array([[1.0], [0.0]] * 50)
    low, high = bootstrap(values, seed=1)
    assert (low, high) == pytest.approx((0.4, 0.6), abs=0.021)  # 0.5 ± 1.96 · 0.5 / 10
    assert bootstrap(values, seed=1).tolist() == bootstrap(values, seed=1).tolist()
    assert bootstrap(np.ones((5, 1))).tolist() == [[1.0], [1.0]]


def test_randomisation_by_hand() -> None:
    """Three queries that all gain: of 8 sign patterns two are as extreme. Ten: 2 of 1024."""
    assert randomisation_test(np.full((3, 1), 0.5)).tolist() == [0.25]
    assert randomisation_test(np.full((10, 1), 0.1))[0] == pytest.approx(2 / 1024)
    assert randomisation_test(np.array([[0.3, 0.0], [-0.3, 0.0]])).tolist() == [1.0, 1.0]


def test_the_drawn_test_agrees_with_the_exact_one() -> None:
    d = np.random.default_rng(5).normal(0.15, 0.5, size=(40, 1))
    found = randomisation_test(d, seed=1)[0]
    z = abs(d.sum()) / math.sqrt((d**2).sum())
    normal = math.erfc(z / math.sqrt(2))
    assert found == pytest.approx(normal, abs=0.015)
    assert randomisation_test(d, seed=1)[0] == found
    assert randomisation_test(np.full((40, 1), 1.0))[0] == pytest.approx(1 / 10_001)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def test_effect_size_by_hand() -> None:
    assert effect_size(np.array([1.0, 0.0, math.nan])) == pytest.approx(0.5 / math.sqrt(0.5))
    assert effect_size(np.zeros(4)) == 0.0
    assert effect_size(np.ones(4)) == math.inf


def test_rbo_by_hand() -> None:
    """Equal rankings 1, nothing in common 0; [1, 2] and [1, 3] share half at depth two."""
    assert rbo(np.array([[0, 1]]), np.array([[0, 1]]))[0] == pytest.approx(1.0)
    assert rbo(np.array([[0, 1]]), np.array([[2, 3]]))[0] == pytest.approx(0.0)
    p = 0.9
    expected = (1 - p) / p * (1 * p + 0.5 * p**2) + 0.5 * p**2
    assert rbo(np.array([[0, 1]]), np.array([[0, 2]]))[0] == pytest.approx(expected)
    assert rbo(np.array([[-1, -1]]), np.array([[-1, -1]]))[0] == 1.0


def test_people_go_before_models_and_judges_are_not_overruled_by_one() -> None:
    rows = [
        Judgment("q", "a", 3, "anna"),
        Judgment("q", "a", 0, "ben"),
        Judgment("q", "a", 2, "carl"),
        Judgment("q", "a", 0, "m", "model"),
        Judgment("q", "b", 1, "m", "model"),
        Judgment("q", "c", 3, "anna"),
        Judgment("q", "c", 1, "ben"),
    ]
    assert agreed_grades(rows) == {"q": {"a": 2, "b": 1, "c": 1}}
    assert agreed_grades(rows, "model") == {"q": {"a": 0, "b": 1}}
