"""What a change does to the rest: Kendall's tau and rank-biased overlap by hand, and the labelled queries."""

from __future__ import annotations

import math

import pytest

from cems_workbench.analysis.ranks import kendall, rbo
from cems_workbench.analysis.why import LabelledSet
from cems_workbench.analysis.why.side_effects import side_effects
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import compare
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.records import Query
from cems_workbench.tuning.holdout import gain
from tests.unit.pipeline.cases import configured, evidence


def test_equal_lists_agree_wholly() -> None:
    assert kendall("abc", "abc") == 1.0
    assert rbo("abc", "abc") == pytest.approx(1.0)
    assert (kendall("", ""), rbo("", "")) == (1.0, 1.0)


def test_a_reversed_pair() -> None:
    assert kendall("ab", "ba") == -1.0
    # agreement 0 at depth 1, 1 at depth 2: 0.1/0.9 · 0.81 + 0.81
    assert rbo("ab", "ba") == pytest.approx(0.9)


def test_lists_that_share_one_of_two() -> None:
    # of the pairs ab, ac, bc only bc is in opposite orders
    assert kendall("ab", "ac") == pytest.approx(1 / 3)
    # agreement 1 at depth 1, 1/2 at depth 2: 0.1/0.9 · (0.9 + 0.405) + 0.405
    assert rbo("ab", "ac") == pytest.approx(0.1 / 0.9 * 1.305 + 0.405)


def test_disjoint_lists() -> None:
    # ab and cd are each known to one list only; the four others are in opposite orders
    assert kendall("ab", "cd") == pytest.approx(1 - 2 * 5 / 6)
    assert rbo("ab", "cd") == 0.0


def test_making_room_for_the_memory_costs_nothing() -> None:
    moved = side_effects("abc", "abm", "m")
    assert (moved.tau, moved.rbo, moved.gone) == (1.0, pytest.approx(1.0), 0)


def test_results_that_are_gone_cost() -> None:
    assert side_effects("abcd", "m", "m").rbo < 0.5
    assert side_effects("abcd", "m", "m").gone == 3
    assert side_effects("abcm", "ma", "m").rbo < 0.9


def test_a_memory_that_only_moves_up_disturbs_nobody() -> None:
    assert side_effects("abm", "mab", "m").tau == 1.0


def test_labelled_queries_that_gain_and_lose() -> None:
    # vector alone puts a first, lexical alone b; grades want b in the first query and a in the second
    lists = {"vector": {"a": 0.9, "b": 0.8}, "lexical": {"b": 2.0, "a": 1.0}}
    labelled = LabelledSet(
        {"q1": evidence(lists), "q2": evidence(lists), "q3": evidence(lists)},
        {"q1": {"b": 3, "a": 0}, "q2": {"a": 2}, "q3": {"a": 0}},
    )
    before, after = configured({"lists.lexical.weight": 0.5}), configured({"lists.lexical.weight": 2.0})
    effect = labelled.effect(before, after, k=1)
    assert effect.queries == 2  # q3 has no answer
    assert (effect.gained, effect.lost) == (("q1",), ("q2",))
    assert effect.gain == pytest.approx(0) and effect.low < 0 < effect.high
    assert (effect.better, effect.worse) == (1, 1)
    assert effect.before == pytest.approx((1 / math.log2(3) + 1) / 2)
    assert effect.after == pytest.approx(effect.before)
    same = labelled.effect(before, before, k=1)
    assert (same.gained, same.lost, same.better, same.worse) == ((), (), 0, 0)


def test_the_interval_of_a_gain_is_that_of_the_comparison() -> None:
    lists = {"vector": {"a": 0.9, "b": 0.8}, "lexical": {"b": 2.0, "a": 1.0}}
    evidences = {f"q{i}": evidence(lists) for i in range(5)}
    grades = {"q0": {"b": 3}, "q1": {"b": 1, "a": 2}, "q2": {"a": 2}, "q3": {"b": 2}, "q4": {"b": 1}}
    before, after = configured({"lists.lexical.weight": 0.5}), configured({"lists.lexical.weight": 2.0})
    batch = LabelledBatch([Query(qid, "t") for qid in evidences], evidences, grades)
    old, new = (evaluate(batch, config, [parse_measure("nDCG@10")]) for config in (before, after))
    (compared,) = compare([old, new]).compared[0].differences
    assert compared.low < compared.difference < compared.high

    effect = LabelledSet(evidences, grades).effect(before, after, k=1)
    tuned = gain(old.values[:, 0], new.values[:, 0])
    for found in ((effect.gain, effect.low, effect.high), (tuned.difference, tuned.low, tuned.high)):
        assert found == pytest.approx((compared.difference, compared.low, compared.high))
