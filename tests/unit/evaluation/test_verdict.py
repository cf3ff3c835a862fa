"""Verdicts: what passes, fails and cannot be told, and that every place prints the same sentence."""

from __future__ import annotations

import math
from xml.etree import ElementTree as XML

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.errors import InputError
from cems_workbench.evaluation.assertions import NoLoss, junit_xml
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.evaluation.statistics import paired_interval
from cems_workbench.evaluation.verdict import Verdict, unseen, verdict_of_values

NDCG, NOISE = parse_measure("nDCG@10"), parse_measure("noise@5")
NAMES = ("new", "old")


def verdict(differences: list[float], tolerance: float = 0.01, measure: object = NDCG) -> Verdict:
    return verdict_of_values(NAMES, measure, np.array(differences, dtype=float), None, tolerance)  # type: ignore[arg-type]


def test_student_interval_by_hand() -> None:
    low, high = paired_interval(np.array([[1.0], [2.0], [3.0], [np.nan]]))[:, 0]
    assert (low, high) == pytest.approx((2 - 4.30265 / math.sqrt(3), 2 + 4.30265 / math.sqrt(3)), abs=1e-4)
    assert np.isnan(paired_interval(np.array([[0.3]]))).all()


@pytest.mark.parametrize(
    ("differences", "kind", "said"),
    [
        ([0.2, 0.1] * 30, "pass", "Pass: new is better than old by nDCG@10: +0.150 [+0.137, +0.163], 95 % interval over 60"),
        ([0.002, -0.002] * 80, "pass", "Pass: new loses no more than 0.01 nDCG@10 against old: +0.000 [-0.000, +0.000]"),
        ([-0.3, -0.1] * 30, "fail", "Fail: new loses more than 0.01 nDCG@10 against old: -0.200 [-0.226, -0.174]"),
        ([0.5, -0.5, 0, 0] * 10, "cannot tell", "about 10,000 queries would tell (you have 40)."),
        ([0.0] * 60, "cannot tell", "60 queries, too few to show a rare query that loses all; about 150 queries would tell (you have 60)."),
        ([0.0] * 59 + [0.1], "cannot tell", "too few to show a rare query that loses all; about 160 queries would tell"),
        ([0.002, -0.002] * 30, "cannot tell", "too few to show a rare query that loses all; about 150 queries would tell"),
        ([0.0] * 150, "pass", "Pass: new loses no more than 0.01"),
        ([0.3] * 9, "cannot tell", "+0.300 over 9 queries; at least 10 are needed."),
        ([-0.9], "cannot tell", "-0.900 over 1 query; at least 10 are needed."),
        ([], "cannot tell", "no query has a value under both."),
    ],
)  # fmt: skip
def test_kind_and_sentence(differences: list[float], kind: str, said: str) -> None:
    found = verdict(differences)
    assert (found.kind, said in found.sentence) == (kind, True), found.sentence


@pytest.mark.parametrize(
    ("differences", "p", "line", "lacking"),
    [
        ([-0.15, 0.08] * 60, 0.004, "Fail: new loses nDCG@10 against old: -0.035 over 120 queries, p 0.004, below 0.05.", ()),
        ([-0.15, 0.08] * 60, 0.3,
         "Pass: new shows no significant loss of nDCG@10 against old: -0.035 over 120 queries, p 0.3, not below 0.05.", ()),
        ([0.0] * 60, 1.0, "Pass: new loses no nDCG@10 against old: +0.000 over 60 queries.", ()),
        ([0.01, 0.0] * 20, 0.0, "Pass: new loses no nDCG@10 against old: +0.005 over 40 queries.", ()),
        ([-0.15, 0.08] * 60, 0.004, "Not measured: new: 7 queries lack scores; without that nDCG@10 -0.035 [-0.056, -0.014], 95 % "
         "interval over 120 queries.", ("new: 7 queries lack scores",)),
    ],
)  # fmt: skip
def test_a_test_is_the_only_verdict_and_what_was_not_measured_comes_first(differences, p, line, lacking):
    """`ci check` said "cannot tell", then "LOSS, sure", and last what was not measured (found beside peers, 29 November 2026)."""
    guard = NoLoss(NDCG, level=0.05)
    found = verdict_of_values(NAMES, NDCG, np.array(differences), None, 0.0, False, lacking)
    outcome = guard.decided(guard.tested(found, lambda: p), "pass")
    assert outcome.line == line and outcome.verdict is not None and outcome.verdict.sentence == line
    assert outcome.holds is line.startswith("Pass") and not outcome.undecided


def test_what_was_not_measured_leaves_the_verdict_open() -> None:
    found = verdict_of_values(NAMES, NDCG, np.full(60, 0.2), lacking=("new: 7 queries lack scores",))
    assert (found.kind, found.queries_needed, found.unmeasured) == ("cannot tell", None, True)


def test_results_that_are_the_same_pass_however_few() -> None:
    found = verdict_of_values(NAMES, NDCG, np.zeros(2), None, 0.0, same_results=True)
    assert found.sentence == "Pass: new loses no more than 0 nDCG@10 against old: no query changed, of 2 queries."
    nothing = verdict_of_values(NAMES, NDCG, np.zeros(0), same_results=True)
    assert nothing.kind == "cannot tell" and "no query has a value under both" in nothing.sentence


def test_queries_needed_follow_from_the_spread() -> None:
    differences = [0.4, -0.4] * 50
    deviation = np.std(differences, ddof=1)
    assert verdict(differences).queries_needed == math.ceil(((1.959964 + 0.841621) * deviation / 0.01) ** 2)
    close = [-0.02, -0.005] * 150 + [-0.02] * 4  # at the tolerance itself a loss of 0 was excluded long ago
    assert verdict(close, 0.0125).sentence.endswith("queries would tell a loss as large as this one (you have 304).")
    assert "; more than 100,000 queries would be needed (you have 40)" in verdict([0.9, -0.9] * 20, 0.005).sentence
    assert unseen(0.01) == 299 and math.isinf(unseen(0))


@given(
    st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=10, max_size=60),
    st.sampled_from([0.0, 0.005, 0.01, 0.1]),
)
def test_harm_is_judged_the_other_way_round(differences: list[float], tolerance: float) -> None:
    gained, harmed = verdict(differences, tolerance), verdict([-one for one in differences], tolerance, NOISE)
    assert (gained.kind, gained.queries_needed) == (harmed.kind, harmed.queries_needed)
    assert gained.low == pytest.approx(-harmed.high)


@given(st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=10, max_size=60))
def test_a_larger_tolerance_never_turns_a_pass_into_a_loss(differences: list[float]) -> None:
    order = ["fail", "cannot tell", "pass"]
    kinds = [order.index(verdict(differences, tolerance).kind) for tolerance in (0.0, 0.01, 0.1, 1.0)]
    assert kinds == sorted(kinds)


@pytest.mark.parametrize("queries", [30, 129, 400])
def test_a_loss_of_a_few_queries_that_lose_all_hardly_passes(queries: int) -> None:
    drawn = np.random.default_rng(5)
    size = np.where(drawn.random((600, queries)) < 0.05, 0.3, 0.0) * drawn.choice([-1, 1], (600, queries))
    lost = np.where(drawn.random((600, queries)) < 0.02, -1.0, size)  # a true loss of 0.02, twice the tolerance
    assert [verdict_of_values(NAMES, NDCG, one).kind for one in lost].count("pass") <= 30  # 5 %


@pytest.mark.parametrize("tolerance", [-0.01, math.nan, math.inf])
def test_a_tolerance_is_a_number_of_at_least_0(tolerance: float) -> None:
    with pytest.raises(InputError, match="expected a number of at least 0, in units of the measure"):
        verdict([0.1] * 20, tolerance)


def test_junit_has_what_cannot_be_told_as_skipped() -> None:
    found, guard = verdict([0.5, -0.5] * 10), NoLoss(NDCG)
    suite = XML.fromstring(
        junit_xml([guard.decided(found), guard.decided(found, "fail"), guard.decided(found, "pass")], "x")
    )
    assert (suite.get("failures"), suite.get("skipped")) == ("1", "1")
    told = suite[0].find("skipped")
    assert told is not None and told.get("message") == found.sentence
