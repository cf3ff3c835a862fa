"""Ranks beside a baseline's, through lists and stages, and two traces side by side.

What a search of Chroma's graph misses of the exact lists, in the lists and in why.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from cems_workbench.analysis import ranks as module
from cems_workbench.analysis.graph_lists import GraphPlace, graph_lists, graph_places
from cems_workbench.analysis.ranks import (
    FlowLine,
    FlowPoint,
    Move,
    RankComparison,
    RankDelta,
    RankFlow,
    loss,
    rank_deltas,
    rank_flow,
    ranks_in,
)
from cems_workbench.analysis.side_by_side import side_by_side
from cems_workbench.analysis.why.report import explain
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.pipeline.evidence import Hit, ModelScore, RankedList, Variant
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.recorded import RECORDED
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.records import Memory, RecordedList, RecordedStage, RecordedStages
from cems_workbench.store import Store
from cems_workbench.store.search.vector_index import VectorIndex
from cems_workbench.ui.inspect.results import message
from tests.planted_source import Counting
from tests.small_store import empty_store, parsed, store
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


TWO_LISTS = {"vector": {"a": 0.9, "b": 0.8, "c": 0.7}, "lexical": {"c": 9.0, "d": 5.0}}
SUBJECT = evidence(TWO_LISTS, memories={"d": {"priority": 2.5}})
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


def test_who_left_the_results_is_named_in_the_baselines_order() -> None:
    against = RankComparison("wide", now(**{"assembly.limit": 1}), before())
    assert against.gone() == ["c", "a", "b"]
    assert against.delta("nobody").move == "absent"


def test_ranks_in_a_list_have_normalised_scores_and_of_an_unknown_one_nothing() -> None:
    assert ranks_in(now(), "lexical") == {"c": (1, 1.0), "d": (2, pytest.approx(5 / 9))}
    assert ranks_in(now(), "nothing") == {}


def test_the_rank_of_who_was_lost_before_fusion_is_that_of_a_list_that_takes_part() -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.3}, "lexical": {"b": 9.0, "c": 5.0}})
    off = {"lists.lexical.enabled": False, "threshold.mode": "fixed", "threshold.fixed": 0.5}
    cut, never = loss(trace(subject, off), "b"), loss(trace(subject, off), "c")
    assert cut is not None and (cut.stage, cut.rank, cut.score) == ("threshold", 2, 0.3)
    assert never is not None and (never.stage, never.rank, never.score) == ("lists", 2, 5.0)


NOW = datetime(2026, 3, 1, tzinfo=UTC)
SCORES = {"a": 1.0, "b": 6.0, "c": 9.0, "d": 2.0}
OFF = {"fusion.normalize": "none", "fusion.score_blend": 0.0, "fusion.multi_list_boost": 0.0, "filter.min_score": None}
RRF = OFF | {
    "fusion.method": "rrf",
    "fusion.k": 60,
    "variants.original_weight": 1.0,
    "lists.vector.weight": 1.0,
    "lists.lexical.weight": 1.0,
    "assembly.limit": 3,
    "adjust.time_decay.mode": "none",
}
RERANKED = RRF | {"rerank.backend": "cross_encoder", "rerank.raw_scale": "divide_by_10", "rerank.combine": "replace"}


def three_found(**more: object) -> Evidence:
    def ranked(name: str, source: str, *hits: tuple[str, float]) -> RankedList:
        return RankedList(name, source, 0, tuple(Hit(*hit) for hit in hits))  # type: ignore[arg-type]

    memories = {key: Memory(key, f"Text of\n  {key}", title=f"title {key}", created_at=NOW) for key in "abcd"}
    return Evidence(
        "how",
        memories,
        variants=(Variant("how", "original"),),
        lists=(
            ranked("vector:0", "vector", ("a", 0.9), ("b", 0.8), ("c", 0.7)),
            ranked("lexical:0", "lexical", ("b", 4.0), ("a", 4.0), ("d", 1.0)),
        ),
        as_of=NOW,
        model_scores={"cross_encoder": {key: ModelScore(raw) for key, raw in SCORES.items()}},
        **more,  # type: ignore[arg-type]
    )


def beside(changes: dict[str, object], **more: object) -> Trace:
    return replay(three_found(**more), with_values(PipelineConfig(), changes))


@pytest.mark.parametrize(("ties", "counted"), [("ordinal", 62), ("dense", 61)])
def test_equal_scores_have_the_ranks_of_their_list_and_the_parts_of_the_ties(ties: str, counted: int) -> None:
    row = side_by_side(beside(RRF | {"lists.lexical.ties": ties})).row("b")
    assert row is not None
    assert row.cells["lexical:0"].rank == 2
    assert dict(row.cells["fusion"].parts)["lexical:0 base"] == pytest.approx(1 / counted)


def test_a_move_is_from_fusion_to_the_results_and_the_last_row_is_the_dropped_one() -> None:
    table = side_by_side(beside(RERANKED), {"c": 3})
    assert [column.key for column in table.columns] == ["vector:0", "lexical:0", "fusion", "rerank", "rank"]
    rows = {row.memory_id: row for row in table.rows}
    assert list(rows) == ["c", "b", "d", "a"]
    assert {key: (row.former_rank, row.final_rank, row.move) for key, row in rows.items()} == {
        "c": (3, 1, 2),
        "b": (2, 2, 0),
        "d": (4, 3, 1),
        "a": (1, None, None),
    }
    assert (rows["a"].dropped_by, rows["a"].dropped_words) == ("assembly", "past the result limit of 3")
    assert rows["c"].grade == 3
    assert rows["c"].cells["rerank"].parts == (("raw", 9.0), ("normalised", 0.9))
    assert "lexical:0" not in rows["c"].cells
    assert table.moved_from == "after fusion"


def test_a_move_is_from_the_results_of_the_trace_before() -> None:
    before, now = beside(RRF), beside(RERANKED)
    table = side_by_side(now, previous=before)
    assert [(row.memory_id, row.move) for row in table.rows] == [("c", 2), ("b", 0), ("d", None), ("a", None)]
    assert table.compared_with == before.config.name


def test_a_stage_that_is_off_or_changes_nothing_has_no_column() -> None:
    idle = {"filter.min_score": 0.0, "threshold.mode": "fixed", "threshold.fixed": 0.1}
    assert {column.stage for column in side_by_side(beside(RRF | idle)).columns} == {
        "lists",
        "fusion",
        "assembly",
    }
    cutting = {"threshold.mode": "fixed", "threshold.fixed": 0.75, "threshold.applies_to": ["vector"]}
    table = side_by_side(beside(RRF | cutting))
    cut = table.row("c")
    assert cut is not None
    assert (cut.dropped_by, cut.cells["threshold"].words) == ("threshold", cut.dropped_words)


def test_a_reranker_of_what_is_returned_comes_after_dedup() -> None:
    table = side_by_side(beside(RERANKED | {"rerank.position": "returned"}))
    rows = {row.memory_id: row for row in table.rows}
    assert list(rows) == ["c", "b", "a", "d"]
    assert (rows["d"].dropped_by, rows["d"].cells["rerank"].rank) == ("rerank", None)


def test_a_successor_that_no_list_found_has_a_row_without_a_former_rank() -> None:
    new = Memory("new", "Text", created_at=NOW)
    given = three_found(
        notes={"superseded": {"a": [{"id": "new", "created_at": NOW.isoformat(), "kind": "supersedes"}]}}
    )
    given = replace(given, memories={**given.memories, "new": new})
    table = side_by_side(replay(given, with_values(PipelineConfig(), RRF | {"supersession.mode": "follow"})))
    row = table.row("new")
    assert row is not None
    assert (row.final_rank, row.former_rank, row.move) == (1, None, None)
    assert table.column("supersession").kind == "stage"


def hits(*ids: str, score: float | None = None) -> tuple[tuple[str, float | None], ...]:
    return tuple((key, None if score is None else score - i) for i, key in enumerate(ids))


def test_recorded_stages_are_columns_with_ranks_and_scores() -> None:
    recorded = RecordedStages(
        (RecordedList("rank", hits("a", "b", "c", score=9.0)), RecordedList("faiss", hits("d", "a"))),
        (
            RecordedStage("faiss", "fusion", hits("a", "d", "b", "c")),
            RecordedStage("cohere", "rerank", hits("b", "a", score=0.9), input=hits("a", "d", "b")),
        ),
    )
    memories = {key: Memory(key, key) for key in recorded.ids}
    traced = replay(Evidence("q", memories, notes={RECORDED: recorded.to_json()}), PipelineConfig())
    table = side_by_side(traced)
    assert [(column.key, column.kind) for column in table.columns] == [
        ("rank (list)", "list"),
        ("faiss", "list"),
        ("faiss (stage)", "fusion"),
        ("cohere", "rerank"),
        ("rank", "rank"),
    ]
    for column in table.columns:
        if column.list is None:
            rows = traced.stage(column.stage).by_id
            found = {row.memory_id: row.cells[column.key] for row in table.rows if column.key in row.cells}
            assert {key: (cell.rank, cell.score) for key, cell in found.items()} == {
                key: (row.rank_out, row.score) for key, row in rows.items()
            }
    assert [(row.memory_id, row.former_rank, row.final_rank, row.dropped_by) for row in table.rows] == [
        ("b", 3, 1, None),
        ("a", 1, 2, None),
        ("d", 2, None, "cohere"),
        ("c", 4, None, "cohere"),
    ]
    assert (table.rows[0].cells["rank (list)"].rank, table.rows[0].cells["rank (list)"].score) == (2, 8.0)
    drawn = message(traced, {}, None)
    assert (drawn["compared"], drawn["stages"]["cohere"]) == ("after faiss", "cohere")
    assert drawn["help"]["cohere"].endswith("Orders candidates again, as traced.")


__all__ = ["empty_store", "store"]
CONFIG = with_values(
    preset("cems").config, {"rerank.backend": "none", "judge.backend": "none", "lists.vector.depth": 3}
)
ASKED = Request("a red cache")


@pytest.fixture
def resources(store: Store) -> Resources:
    texts = ("a red cache", "a blue door", "a green hat", "a red hat", "a blue hat")
    store.add(parsed([Memory(f"m{i}", text) for i, text in enumerate(texts)]))
    return Resources(store, Counting(), Servers("", "", "", None, None, None))


def cut(monkeypatch: pytest.MonkeyPatch, without: str) -> list[tuple[Any, ...]]:
    """Have the graph itself lose one memory on the way; returns what it is asked."""
    whole, asked = VectorIndex.approximate, list[tuple[Any, ...]]()

    def approximate(*given: Any) -> Any:
        asked.append(given[2:])
        return [hit for hit in whole(*given) if hit[0] != without]

    monkeypatch.setattr(VectorIndex, "approximate", approximate)
    return asked


def test_why_says_what_a_search_of_the_open_graph_would_have_missed(
    resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = gather_lists(ASKED, CONFIG, resources)
    exact = list(dict.fromkeys(hit.memory_id for hit in evidence.lists[0].hits))
    missed, found = exact[1], exact[2]
    asked = cut(monkeypatch, missed)
    assert graph_places(missed, evidence, CONFIG, ASKED, resources) == () and not asked, "Chroma is not opened unasked"
    resources.graph()
    assert graph_places(missed, evidence, CONFIG, ASKED, resources) == (GraphPlace("vector:0", 2, None, 100),)
    assert graph_places(found, evidence, CONFIG, ASKED, resources) == (GraphPlace("vector:0", 3, 2, 100),)
    assert [ef for *_, ef in asked] == [100, 100], "as many as Chroma keeps where nothing is set"
    why = explain(missed, evidence, CONFIG, k=1, request=ASKED, resources=resources)
    line = "vector:0: found exactly at 2; a system that searches the graph with ef 100 would have missed it."
    assert line in why.lines and ("its graph", None, None, line[10:-1]) in why.in_lists.rows
    assert why.to_json()["graph"] == [{"list": "vector:0", "exact": 2, "rank": None, "ef": 100}]
    assert not explain(found, evidence, CONFIG, k=1, request=ASKED, resources=resources).graph_line
    wider = with_values(CONFIG, {"lists.vector.ef_search": 7})
    assert graph_places(missed, evidence, wider, ASKED, resources)[0].ef == 12, "rows enough to reach it"


def test_a_list_has_its_ranks_in_the_graph_and_a_line_on_what_is_missed(
    resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = gather_lists(ASKED, CONFIG, resources)
    exact = list(dict.fromkeys(hit.memory_id for hit in evidence.lists[0].hits))
    (whole,) = graph_lists(evidence, CONFIG, ASKED, resources)
    assert (whole.line, list(whole.ranks)) == ("graph: 3 of the 3 nearest", exact)
    cut(monkeypatch, exact[0])
    (found,) = graph_lists(evidence, CONFIG, ASKED, resources)
    assert found.line == f"graph: 2 of the 3 nearest; {exact[0]} missed"
    for other in ({"lists.vector.index": "graph"}, {"lists.candidate_set.mode": "newest_created"}):
        assert not list(graph_lists(evidence, with_values(CONFIG, other), ASKED, resources)), "not an exact list"
