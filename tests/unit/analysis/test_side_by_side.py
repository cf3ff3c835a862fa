"""Side by side of small traces, by hand: columns, cells, moves and where rows were dropped; recorded stages too."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cems_workbench.analysis.side_by_side import side_by_side
from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.pipeline.evidence import Hit, ModelScore, RankedList, Variant
from cems_workbench.pipeline.recorded import RECORDED, RecordedList, RecordedStage, RecordedStages
from cems_workbench.records import Memory
from cems_workbench.ui.inspect.results import message

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


def evidence(**more: object) -> Evidence:
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


def trace(changes: dict[str, object], **more: object) -> Trace:
    return replay(evidence(**more), with_values(PipelineConfig(), changes))


def test_a_cell_has_the_parts_of_the_score_with_base_and_bonus_separate() -> None:
    bonus = {"fusion.top_rank_bonus.rank1": 0.05, "fusion.top_rank_bonus.rank2_3": 0.0}
    row = side_by_side(trace(RRF | bonus)).rows[0]
    assert (row.memory_id, row.title, row.first_words) == ("a", "title a", "Text of a")
    parts = dict(row.cells["fusion"].parts)
    assert parts["vector:0 base"] == pytest.approx(1 / 61)
    assert parts["vector:0 top-rank bonus"] == pytest.approx(0.05)
    assert parts["lexical:0 base"] == pytest.approx(1 / 61)
    assert row.cells["fusion"].score == pytest.approx(sum(parts.values()))
    assert (row.cells["vector:0"].rank, row.cells["lexical:0"].rank) == (1, 1)
    assert dict(row.cells["vector:0"].parts) == {"raw": 0.9}


@pytest.mark.parametrize(("ties", "counted"), [("ordinal", 62), ("dense", 61)])
def test_equal_scores_have_the_ranks_of_their_list_and_the_parts_of_the_ties(ties: str, counted: int) -> None:
    row = side_by_side(trace(RRF | {"lists.lexical.ties": ties})).row("b")
    assert row is not None
    assert row.cells["lexical:0"].rank == 2
    assert dict(row.cells["fusion"].parts)["lexical:0 base"] == pytest.approx(1 / counted)


def test_a_move_is_from_fusion_to_the_results_and_the_last_row_is_the_dropped_one() -> None:
    table = side_by_side(trace(RERANKED), {"c": 3})
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
    before, now = trace(RRF), trace(RERANKED)
    table = side_by_side(now, previous=before)
    assert [(row.memory_id, row.move) for row in table.rows] == [("c", 2), ("b", 0), ("d", None), ("a", None)]
    assert table.compared_with == before.config.name


def test_a_stage_that_is_off_or_changes_nothing_has_no_column() -> None:
    idle = {"filter.min_score": 0.0, "threshold.mode": "fixed", "threshold.fixed": 0.1}
    assert {column.stage for column in side_by_side(trace(RRF | idle)).columns} == {"lists", "fusion", "assembly"}
    cutting = {"threshold.mode": "fixed", "threshold.fixed": 0.75, "threshold.applies_to": ["vector"]}
    table = side_by_side(trace(RRF | cutting))
    cut = table.row("c")
    assert cut is not None
    assert (cut.dropped_by, cut.cells["threshold"].words) == ("threshold", cut.dropped_words)


def test_a_reranker_of_what_is_returned_comes_after_dedup() -> None:
    table = side_by_side(trace(RERANKED | {"rerank.position": "returned"}))
    rows = {row.memory_id: row for row in table.rows}
    assert list(rows) == ["c", "b", "a", "d"]
    assert (rows["d"].dropped_by, rows["d"].cells["rerank"].rank) == ("rerank", None)


def test_a_successor_that_no_list_found_has_a_row_without_a_former_rank() -> None:
    new = Memory("new", "Text", created_at=NOW)
    given = evidence(notes={"superseded": {"a": [{"id": "new", "created_at": NOW.isoformat(), "kind": "supersedes"}]}})
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
