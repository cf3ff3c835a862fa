"""Ranks beside those of a baseline on the same evidence, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from cems_workbench.analysis.ranks import Move, RankComparison, RankDelta, dropped, loss, rank_deltas, ranks_in
from cems_workbench.pipeline import Trace
from tests.unit.pipeline.cases import evidence, trace

LISTS = {"vector": {"a": 0.9, "b": 0.8, "c": 0.7}, "lexical": {"c": 9.0, "d": 5.0}}
SUBJECT = evidence(LISTS, memories={"d": {"priority": 2.5}})
"""Fused: c 1/63 + 1/61, a 1/61, then b and d 1/62 each; ties go by id. Adjusted by priority: d 2.5/62 leads, then c, a, b."""


def now(**changes: Any) -> Trace:
    return trace(SUBJECT, {"adjust.priority": True, "assembly.limit": 3, **changes})


def before(**changes: Any) -> Trace:
    return trace(SUBJECT, {"assembly.limit": 3, **changes})


@pytest.mark.parametrize(
    ("delta", "move", "places"),
    [
        (RankDelta(2, 5), "up", 3),
        (RankDelta(5, 2), "down", -3),
        (RankDelta(2, 2), "same", 0),
        (RankDelta(2, None), "new", 0),
        (RankDelta(None, 2), "gone", 0),
        (RankDelta(None, None), "absent", 0),
    ],
)
def test_a_delta_says_which_way_and_how_far(delta: RankDelta, move: Move, places: int) -> None:
    assert (delta.move, delta.places) == (move, places)


def test_the_results_beside_the_baselines() -> None:
    assert [row.memory_id for row in before().results] == ["c", "a", "b"]
    assert [row.memory_id for row in now().results] == ["d", "c", "a"]
    assert rank_deltas(now(), before(), "assembly") == {
        "d": RankDelta(1, None),
        "c": RankDelta(2, 1),
        "a": RankDelta(3, 2),
        "b": RankDelta(None, 3),
    }


def test_each_stage_is_compared_with_the_same_stage() -> None:
    against = RankComparison("plain", now(), before())
    assert {key: delta.move for key, delta in against.deltas("fusion").items()} == dict.fromkeys("cabd", "same")
    assert against.delta("d", "adjust") == RankDelta(1, 4)
    assert against.delta("b", "adjust") == RankDelta(4, 3)


def test_a_list_that_the_baseline_switches_off_is_new() -> None:
    deltas = rank_deltas(now(), before(**{"lists.lexical.enabled": False}), "lexical")
    assert deltas == {"c": RankDelta(1, None), "d": RankDelta(2, None)}


def test_who_left_the_results_is_named_in_the_baselines_order() -> None:
    against = RankComparison("wide", now(**{"assembly.limit": 1}), before())
    assert against.gone() == ["c", "a", "b"]
    assert against.delta("nobody").move == "absent"


def test_a_config_beside_itself_moves_nobody() -> None:
    against = RankComparison("itself", now(), now())
    assert {delta.move for delta in against.deltas().values()} == {"same"} and against.gone() == []


def test_ranks_in_a_list_have_normalised_scores_and_of_an_unknown_one_nothing() -> None:
    assert ranks_in(now(), "lexical") == {"c": (1, 1.0), "d": (2, pytest.approx(5 / 9))}
    assert ranks_in(now(), "nothing") == {}


def test_the_rank_of_who_was_lost_before_fusion_is_that_of_a_list_that_takes_part() -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.3}, "lexical": {"b": 9.0, "c": 5.0}})
    off = {"lists.lexical.enabled": False, "threshold.mode": "fixed", "threshold.fixed": 0.5}
    cut, never = loss(trace(subject, off), "b"), loss(trace(subject, off), "c")
    assert cut is not None and (cut.stage, cut.rank, cut.score) == ("threshold", 2, 0.3)
    assert never is not None and (never.stage, never.rank, never.score) == ("lists", 2, 5.0)


def test_who_is_in_the_results_or_in_no_list_is_not_lost() -> None:
    assert loss(now(), "d") is None and loss(now(), "nobody") is None
    end, lost = dropped(now(), "b"), loss(now(), "b")
    assert end is not None and (end.stage, end.rank, end.reason) == ("assembly", 4, "past the result limit of 3")
    assert lost is not None and (lost.stage, lost.rank) == ("adjust", 4)
