"""Measures of fidelity, worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cems_workbench.analysis.fidelity.measures import QueryFidelity, SetFidelity


def query(recorded, ours, recorded_scores=(), our_scores=()):
    """A letter a memory."""
    theirs, own = dict(zip(recorded, recorded_scores, strict=False)), dict(zip(ours, our_scores, strict=False))
    return QueryFidelity("q", "what?", tuple(recorded), tuple(ours), theirs, own)


def test_order_set_and_first_are_told_apart() -> None:
    rows = [query("abc", "abc"), query("abc", "acb"), query("abc", "bca"), query("abc", "abd"), query("abc", "xyz")]
    assert [row.same_order for row in rows] == [True, False, False, False, False]
    assert [row.same_set for row in rows] == [True, True, True, False, False]
    assert [row.same_first for row in rows] == [True, True, False, True, False]


def test_a_longer_answer_is_another_order() -> None:
    assert not query("ab", "abc").same_order
    assert not query("abc", "ab").same_order


def test_two_empty_answers_are_the_same_and_an_empty_one_shares_nothing() -> None:
    both = query("", "")
    assert both.same_order
    assert both.same_first
    assert (both.overlap, both.rbo) == (1.0, 1.0)
    one = query("", "a")
    assert not one.same_first
    assert (one.overlap, one.rbo) == (0.0, 0.0)


def test_overlap_is_that_of_the_first_ten() -> None:
    assert query("abc", "bcd").overlap == 2 / 4
    assert query("abcdefghijK", "abcdefghijL").overlap == 1.0
    assert query("abcdefghij", "abcdefghixj").overlap == 9 / 11


def test_scores_are_compared_where_the_order_is_the_same() -> None:
    assert query("ab", "ab", [0.5, 0.25], [0.5, 0.2500004]).score_difference == pytest.approx(4e-7)
    assert query("ab", "ba", [0.5, 0.25], [0.5, 0.25]).score_difference is None
    assert query("ab", "ab", [], [0.5, 0.25]).score_difference is None


def test_a_set_has_counts_means_and_intervals() -> None:
    rows = [query("ab", "ab", [0.5, 0.2], [0.5, 0.3]), query("ab", "ba"), query("ab", "ac"), query("c", "c", [1], [1])]
    fidelity = SetFidelity(tuple(rows))
    order = fidelity.estimates["same_order"]
    assert (order.count, order.mean) == (2, 0.5)
    assert 0 <= order.low < 0.5 < order.high <= 1
    assert fidelity.estimates["same_set"].count == 3
    assert fidelity.estimates["same_first"].count == 3
    assert fidelity.estimates["overlap"].mean == pytest.approx((1 + 1 + 1 / 3 + 1) / 4)
    assert fidelity.estimates["overlap"].count is None
    assert fidelity.score_difference == pytest.approx(0.1)
    assert fidelity.precise == (1, 2)
    assert fidelity.value("same_order") == 0.5


def test_nothing_measured_is_not_a_number() -> None:
    empty = SetFidelity(())
    assert math.isnan(empty.value("same_order"))
    assert math.isnan(empty.value("score_difference"))


def test_equal_recorded_scores_may_stand_in_any_order_and_others_may_not() -> None:
    scores = [3.0, 2.0, 2.0, 1.0]
    assert query("abcd", "acbd", scores).up_to_ties
    assert not query("abcd", "bacd", scores).up_to_ties
    assert not query("abcd", "acb", scores).up_to_ties
    assert not query("abcd", "acbd").up_to_ties  # without scores nothing is tied


def test_which_of_two_equals_got_in_is_chance_if_both_had_one_score_before_the_cut() -> None:
    cut = query("ab", "ax", [3.0, 2.0], [3.0, 2.0])
    tied = replace(cut, ours_before_cut={"a": 3.0, "b": 2.0, "x": 2.0})
    assert tied.up_to_ties
    assert tied.same_scores == 1.0
    # A score of ours that equals a recorded one is no tie: every list gives its second the same share.
    below = replace(cut, ours_before_cut={"a": 3.0, "b": 1.5, "x": 2.0})
    assert (below.up_to_ties, below.same_scores) == (False, 0.0)
    # Reordered after the cut by a reranker, whose scores say nothing about it: the recorded ones before the cut do.
    reranked = query("ba", "xa", [9.0, 1.0], [8.0, 1.0])
    assert not reranked.up_to_ties
    assert replace(reranked, before_cut={"a": 0.5, "b": 0.2, "x": 0.2}).up_to_ties


def test_scores_are_compared_memory_by_memory_whatever_the_order() -> None:
    assert query("ab", "ba", [0.5, 0.5], [0.5, 0.5]).same_scores == 1.0
    assert query("ab", "ba", [0.5, 0.4], [0.5, 0.4]).same_scores == 0.0
    assert query("ab", "ab", [0.5, 0.4], [0.5, 0.3]).equal_scores == (1, 2)
    assert math.isnan(query("ab", "ab").same_scores)


def test_results_with_the_ties_of_lists_settled_as_recorded_count_for_both() -> None:
    other = query("ab", "ba", [0.5, 0.4], [0.45, 0.41])
    assert (other.up_to_ties, other.same_scores) == (False, 0.0)
    settled = replace(other, settled={"a": 0.5, "b": 0.4})
    assert (settled.same_order, settled.up_to_ties, settled.same_scores) == (False, True, 1.0)


def test_the_depth_of_the_overlap_can_be_chosen() -> None:
    assert replace(query("abc", "acb"), depth=2).overlap == 1 / 3
