"""Pools and their orders: the union of the top k, and which pair is worth a label first."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.errors import InputError
from cems_workbench.evaluation.labelling import queue as decisive
from cems_workbench.evaluation.labelling.pooling import (
    PooledPair,
    pool,
    query_by_query,
    shuffled,
    top_first,
    uncertain_first,
    without_judged,
)
from cems_workbench.records import Judgment

RANKINGS = {"a": {"q": ["m", "n", "o"], "r": ["m"]}, "b": {"q": ["n", "m", "p"], "r": ["m"]}}


def ids(pairs):
    return [(one.qid, one.memory_id) for one in pairs]


def test_a_pool_is_what_any_config_has_within_the_depth_with_each_rank():
    pairs = pool(RANKINGS, 2)
    assert pairs == [
        PooledPair("q", "m", {"a": 1, "b": 2}),
        PooledPair("q", "n", {"a": 2, "b": 1}),
        PooledPair("r", "m", {"a": 1, "b": 1}),
    ]
    assert len(pool(RANKINGS, 3)) == 5
    with pytest.raises(InputError, match="at least 1"):
        pool(RANKINGS, 0)


def test_top_first_goes_down_the_ranks_shared_ones_before_others():
    assert ids(top_first(pool(RANKINGS, 3))) == [("q", "m"), ("q", "n"), ("r", "m"), ("q", "o"), ("q", "p")]


@given(
    st.lists(
        st.tuples(st.sampled_from("qrs"), st.sampled_from("mnopx"), st.integers(1, 9)), unique_by=lambda one: one[:2]
    ),
    st.integers(),
)
def test_query_by_query_keeps_the_cards_of_a_query_together_and_their_order_depends_on_no_rank(drawn, seed):
    pairs = [PooledPair(qid, key, {"a": rank}) for qid, key, rank in drawn]
    ordered = query_by_query(pairs, seed)
    assert [one.qid for one in ordered] == sorted(one.qid for one in pairs)
    assert sorted(ids(ordered)) == sorted(ids(pairs))
    assert ids(ordered) == ids(query_by_query([PooledPair(*one.pair, {"a": 1}) for one in pairs[::-1]], seed))


def test_a_shuffle_depends_on_the_seed_and_not_on_the_order_it_gets():
    pairs = pool(RANKINGS, 3)
    assert ids(shuffled(pairs, 1)) == ids(shuffled(pairs[::-1], 1))
    assert {tuple(ids(shuffled(pairs, seed))) for seed in range(20)} != {tuple(ids(shuffled(pairs, 1)))}
    assert sorted(ids(shuffled(pairs, 7))) == ids(pairs)


def test_uncertain_first_is_nearest_to_the_threshold_and_unscored_last():
    scores = {("q", "m"): 0.9, ("q", "n"): 0.45, ("q", "o"): math.nan, ("q", "p"): 0.3}
    assert ids(uncertain_first(pool(RANKINGS, 3), scores, 0.5)) == [
        ("q", "n"),
        ("q", "p"),
        ("q", "m"),
        ("r", "m"),
        ("q", "o"),
    ]


def test_what_people_judged_leaves_the_pool_and_what_a_model_judged_stays():
    judged = [Judgment("q", "m", 0, "Ann"), Judgment("q", "n", 3, "net", "model")]
    assert ids(without_judged(pool(RANKINGS, 2), judged)) == [("q", "n"), ("r", "m")]
    assert ids(without_judged(pool(RANKINGS, 2), judged, people_only=False)) == [("r", "m")]


def test_a_swing_is_the_difference_of_both_discounts():
    assert decisive.swing(PooledPair("q", "m", {"a": 1, "b": 2}), "a", "b") == pytest.approx(1 - 1 / math.log2(3))
    assert decisive.swing(PooledPair("q", "m", {"b": 3}), "a", "b") == pytest.approx(-0.5)
    assert decisive.swing(PooledPair("q", "m", {"a": 11, "b": 12}), "a", "b") == 0


def test_what_both_configs_rank_alike_cannot_decide_and_is_left_out():
    found = decisive.decisive_first(pool(RANKINGS, 3), "a", "b")
    assert ("r", "m") not in ids(found)
    assert set(ids(found)) == {("q", "m"), ("q", "n"), ("q", "o"), ("q", "p")}


def test_a_likelier_memory_is_worth_more_and_a_query_with_relevant_ones_less():
    pairs = pool({"a": {"q": ["m", "n"], "r": ["x", "y"]}, "b": {"q": ["n", "m"], "r": ["y", "x"]}}, 2)
    assert ids(decisive.decisive_first(pairs, "a", "b", chances={("r", "y"): 0.9}))[0] == ("r", "y")
    known = {("q", "m"): 2}
    assert ids(decisive.decisive_first(pairs, "a", "b", known)) == [("r", "x"), ("r", "y"), ("q", "n")]


def ndcg_gap(rankings, grades, k=10):
    """Mean nDCG@k of config a less that of b, by the formula."""
    total = 0.0
    for qid in rankings["a"]:
        gains = {memory_id: grade for (q, memory_id), grade in grades.items() if q == qid}
        ideal = sum(
            gain * decisive.discount(rank)
            for rank, gain in enumerate(sorted(gains.values(), reverse=True), 1)
            if rank <= k
        )
        for sign, name in ((1, "a"), (-1, "b")):
            reached = sum(gains.get(m, 0) * decisive.discount(rank, k) for rank, m in enumerate(rankings[name][qid], 1))
            total += sign * reached / ideal if ideal else 0.0
    return total / len(rankings["a"])


LISTS = st.permutations([f"m{n}" for n in range(12)]).map(lambda order: list(order)[:9])


@given(first=LISTS, second=LISTS, data=st.data())
def test_what_is_left_out_indeed_cannot_decide_which_config_is_better_on_a_query(first, second, data):
    """Whatever the other grades are, grading a pair that is left out never turns the sign of the query's difference."""
    rankings = {"a": {"q": first}, "b": {"q": second}}
    pairs = pool(rankings, 10)
    kept = set(ids(decisive.decisive_first(pairs, "a", "b")))
    grades = {one.pair: data.draw(st.integers(0, 3)) for one in pairs}
    without = {pair: grade for pair, grade in grades.items() if pair in kept}
    whole, part = ndcg_gap(rankings, grades), ndcg_gap(rankings, without)
    if abs(whole) < 1e-9 or abs(part) < 1e-9:
        assert abs(part) < 1e-9 and abs(whole) < 1e-9
    else:
        assert math.copysign(1, part) == math.copysign(1, whole)
