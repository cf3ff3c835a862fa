"""Which single change would explain the answers to a set of queries."""

from __future__ import annotations

from cems_workbench.analysis.fidelity.explain import SetReplays, single_changes
from tests.unit.pipeline.cases import configured, evidence

FIRST = evidence({"vector": {"a": 0.9, "b": 0.8}, "lexical": {"b": 9.0, "c": 8.0}})
SECOND = evidence({"vector": {"x": 0.9, "y": 0.8, "z": 0.7}})


def replays(*production: str, limit: int | None = None) -> SetReplays:
    return SetReplays([tuple(order) for order in production], [FIRST, SECOND], [limit, limit])


def test_agreement_counts_the_same_orders_and_the_mean_overlap() -> None:
    found = replays("bac", "xyz").agreement(configured())
    assert (found.queries, found.same_order, found.rbo) == (2, 2, 1.0)
    found = replays("bac", "xzy").agreement(configured())
    assert found.same_order == 1
    assert 0.8 < found.rbo < 1


def test_a_recorded_memory_that_is_no_candidate_and_one_more_result_are_another_order() -> None:
    assert replays("bac", "xyq").agreement(configured()).same_order == 1
    assert replays("bac", "xyzq").agreement(configured()).same_order == 1
    assert replays("bac", "xy").agreement(configured()).same_order == 1


def test_ours_may_be_cut() -> None:
    assert replays("ba", "xy", limit=2).agreement(configured()).same_order == 2


def test_the_change_that_gives_most_queries_the_recorded_order_comes_first() -> None:
    config = configured({"assembly.limit": 2})
    found = single_changes(replays("bac", "xyz"), config)
    assert found[0].changes[0][0] == "assembly.limit"
    assert found[0].agreement.same_order == 2
    assert all(one.agreement.nearness >= 1e-6 for one in found)


def test_nothing_explains_what_is_the_same_already() -> None:
    assert single_changes(replays("bac", "xyz"), configured()) == []
