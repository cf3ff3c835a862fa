"""Judged@k by query and config, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.errors import InputError
from cems_workbench.evaluation.labelling.pooling import coverage, mean_judged

RANKINGS = {"a": {"q": ("m1", "m2", "m3"), "r": ("m1",)}, "b": {"q": ("m3", "m4")}}


def test_each_config_has_the_share_of_its_first_k_that_is_judged() -> None:
    q, r = coverage(RANKINGS, {("q", "m1"), ("r", "m1")}, k=2)
    assert (q.qid, q.judged, q.unjudged) == ("q", {"a": 0.5, "b": 0.0}, ("m3", "m2", "m4"))
    assert (r.qid, r.judged, r.unjudged) == ("r", {"a": 1.0}, ())


def test_fewer_results_than_k_are_all_there_is_to_judge() -> None:
    (_, r) = coverage(RANKINGS, {("r", "m1")}, k=10)
    assert r.judged == {"a": 1.0}


def test_the_mean_of_a_config_is_over_the_queries_it_has_results_for() -> None:
    assert mean_judged(coverage(RANKINGS, {("q", "m1"), ("r", "m1")}, k=2)) == {"a": 0.75, "b": 0.0}
    assert mean_judged([]) == {}


def test_k_is_at_least_one() -> None:
    with pytest.raises(InputError, match="k: must be at least 1"):
        coverage(RANKINGS, set(), 0)


results = st.lists(st.sampled_from("abcdef"), unique=True).map(tuple)


@given(st.dictionaries(st.sampled_from("AB"), st.dictionaries(st.sampled_from("qr"), results)), st.integers(1, 7))
def test_a_judgment_of_what_was_unjudged_makes_everything_judged(rankings, k) -> None:
    first = coverage(rankings, set(), k)
    then = coverage(rankings, {(one.qid, memory_id) for one in first for memory_id in one.unjudged}, k)
    assert all(share == 1.0 for one in then for share in one.judged.values())
    assert not [one for one in then if one.unjudged]
