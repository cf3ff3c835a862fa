"""The rank flow of small queries whose ranks are worked out by hand; rrf with k = 60 and weights 1."""

from __future__ import annotations

from typing import Any

import pytest

from cems_workbench.analysis import ranks as module
from cems_workbench.analysis.ranks import FlowLine, FlowPoint, RankFlow, rank_flow
from cems_workbench.pipeline import Evidence
from tests.unit.pipeline.cases import evidence, falling, trace

LISTS = {"vector": {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6}, "lexical": {"c": 9.0, "a": 5.0, "e": 3.0}}
"""a 1/61 + 1/62, c 1/63 + 1/61, b 1/62, e 1/63, d 1/64: fused in the order a c b e d."""
LIFTED = {"c": {"priority": 2.0}}
ADJUSTED: dict[str, Any] = {"adjust.priority": True, "assembly.limit": 2}
"""c's priority doubles its score, which puts it before a; the limit leaves c and a."""


def subject() -> Evidence:
    return evidence(LISTS, memories=LIFTED)


def line(flow: RankFlow, memory_id: str) -> FlowLine:
    return next(line for line in flow.lines if line.memory_id == memory_id)


def places(line: FlowLine) -> list[tuple[str, int]]:
    return [(point.column, point.rank) for point in line.points]


def test_ranks_are_those_of_each_list_and_stage() -> None:
    flow = rank_flow(trace(subject(), ADJUSTED), 5)
    assert flow.columns == ("vector", "lexical", "fusion", "adjust", "assembly")
    assert places(line(flow, "a")) == [("vector", 1), ("lexical", 2), ("fusion", 1), ("adjust", 2), ("assembly", 2)]
    assert places(line(flow, "c")) == [("vector", 3), ("lexical", 1), ("fusion", 2), ("adjust", 1), ("assembly", 1)]
    assert places(line(flow, "e")) == [("lexical", 3), ("fusion", 4), ("adjust", 4)]


def test_a_point_has_the_score_of_its_column() -> None:
    flow = rank_flow(trace(subject(), ADJUSTED), 5)
    scores = [point.score for point in line(flow, "c").points]
    fused = 1 / 63 + 1 / 61
    assert scores == pytest.approx(
        [0.7, 1.0, fused, 2 * fused, 2 * fused]
    )  # the lexical list is divided by its largest


def test_stages_that_drop_nobody_and_move_nobody_are_folded() -> None:
    assert rank_flow(trace(subject(), ADJUSTED), 5).folded == (
        "filter",
        "rerank",
        "supersession",
        "gap",
        "dedup",
        "abstain",
    )
    bare = rank_flow(trace(subject()), 5)
    assert bare.folded == ("filter", "rerank", "adjust", "supersession", "gap", "dedup", "abstain")
    assert bare.stages == ("fusion", "assembly")


def test_a_dropped_memory_ends_where_it_was_dropped_and_was_lost_where_its_rank_was() -> None:
    lost = line(rank_flow(trace(subject(), ADJUSTED), 5), "b")
    assert lost.final_rank is None and lost.dropped is not None and lost.loss is not None
    assert (lost.dropped.stage, lost.dropped.rank, lost.dropped.reason) == (
        "assembly",
        3,
        "past the result limit of 2",
    )
    assert (lost.loss.stage, lost.loss.rank) == ("fusion", 3)
    assert lost.loss.reason.endswith("; assembly dropped it: past the result limit of 2")
    assert lost.points[-1] == FlowPoint("adjust", 3, pytest.approx(1 / 62))  # type: ignore[arg-type]


def test_a_memory_lost_before_fusion_has_a_column_where_it_ends() -> None:
    flow = rank_flow(trace(subject(), {"threshold.mode": "fixed", "threshold.fixed": 0.65}), 5, ["d"])
    assert flow.columns == ("vector", "lexical", "threshold", "fusion", "assembly")
    lost = line(flow, "d")
    assert places(lost) == [("vector", 4)]
    assert lost.loss is not None and (lost.loss.stage, lost.loss.rank) == ("threshold", 4)


def test_a_memory_past_the_depth_is_lost_at_the_lists_at_its_rank_there() -> None:
    flow = rank_flow(trace(evidence({"vector": falling(9)}), {"lists.vector.depth": 5}), 3, ["m07"])
    assert line(flow, "m07").points == ()
    lost = line(flow, "m07").loss
    assert lost is not None and (lost.stage, lost.rank) == ("lists", 7)


def test_drawn_is_who_stands_among_the_first_after_any_stage() -> None:
    """With the first one alone: a leads after fusion, c after adjust; b, d and e never do."""
    flow = rank_flow(trace(subject(), ADJUSTED), 1)
    assert [line.memory_id for line in flow.lines] == ["c", "a"]


def test_who_is_asked_for_is_drawn_however_far_down_and_said_when_in_no_list() -> None:
    flow = rank_flow(trace(subject(), ADJUSTED), 1, ["d", "nowhere", "d"])
    assert [line.memory_id for line in flow.lines] == ["c", "a", "d"]
    assert flow.unranked == ("nowhere",)


def test_lines_stand_in_the_order_of_the_results_then_of_how_far_they_came() -> None:
    changes = {**ADJUSTED, "threshold.mode": "fixed", "threshold.fixed": 0.65, "threshold.applies_to": ["vector"]}
    flow = rank_flow(trace(subject(), changes), 5, ["d"])
    assert [line.memory_id for line in flow.lines] == ["c", "a", "b", "e", "d"]


def test_past_the_most_lines_who_was_asked_for_stays_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINES", 3)
    flow = rank_flow(trace(evidence({"vector": falling(9)})), 9, ["m08"])
    assert {line.memory_id for line in flow.lines} == {"m08", "m01", "m02"}
    assert flow.lines_left_out == 6


def test_past_the_most_lists_the_fullest_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LISTS", 1)
    flow = rank_flow(trace(subject(), ADJUSTED), 5)
    assert flow.lists == ("vector",) and flow.lists_left_out == 1


def test_no_candidate_gives_no_line() -> None:
    flow = rank_flow(trace(evidence({})), 10, ["a"])
    assert flow.lines == () and flow.unranked == ("a",)
