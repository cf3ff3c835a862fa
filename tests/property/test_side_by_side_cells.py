"""Every number of Side by side is one of the trace's rows, whatever the evidence and the config."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from strategies import configs, evidences

from cems_workbench.analysis.ranks import lists_in_use, ranks_in
from cems_workbench.analysis.side_by_side import FINAL, Cell, SideBySide, side_by_side
from cems_workbench.config import PipelineConfig, preset, preset_names
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.pipeline.list_sources import list_label
from cems_workbench.pipeline.stages import ADJUST, ASSEMBLY, FUSION, JUDGE, LISTS, RERANK
from cems_workbench.pipeline.stages.adjust import AdjustRow
from cems_workbench.pipeline.stages.fusion import FusionRow
from cems_workbench.pipeline.stages.judge import JudgeRow
from cems_workbench.pipeline.stages.rerank import RerankRow
from cems_workbench.pipeline.stages.result import StageRow


def assert_equals_the_trace(table: SideBySide, trace: Trace) -> None:
    """Each cell has what the stage's own row says, and each row of a stage with a column has a cell."""
    keys = [column.key for column in table.columns]
    assert len(set(keys)) == len(keys)
    assert keys[-1] == FINAL
    assert [column.list for column in table.columns if column.kind == "list"] == lists_in_use(trace)
    for column in table.columns:
        cells = {row.memory_id: row.cells[column.key] for row in table.rows if column.key in row.cells}
        if column.list is not None:
            listed = {key: (cell.rank, cell.score) for key, cell in cells.items()}
            assert listed == ranks_in(trace, column.list)
            for memory_id, cell in cells.items():
                entries = trace.stage(LISTS).by_id[memory_id].lists
                assert dict(cell.parts) == {"raw": next(one.raw for one in entries if one.list == column.list)}
            continue
        rows = trace.stage(column.stage).by_id
        assert cells.keys() == rows.keys()
        for memory_id, cell in cells.items():
            _assert_cell(cell, rows[memory_id], trace, column.kind == FINAL)
    _assert_rows(table, trace)


def _assert_cell(cell: Cell, row: StageRow, trace: Trace, final: bool) -> None:
    assert cell.rank == row.rank_out
    assert cell.score == (row.raw if isinstance(row, JudgeRow) else row.score)
    expected: list[tuple[str, float | None]] = []
    if isinstance(row, FusionRow):
        given = trace.stage(FUSION).score_parts(row.memory_id) if row.kept else ()
        expected = [(f"{list_label(p.list)} {p.kind}" if p.list else p.kind, p.value) for p in given]
        assert not row.kept or math.isclose(sum(v for _, v in cell.parts), row.score or 0, rel_tol=1e-9, abs_tol=1e-12)
    elif isinstance(row, RerankRow):
        expected = [("raw", row.raw), ("normalised", row.unit)]
        if trace.config.rerank.combine == "position_bands":
            expected += [("retrieval score", row.retrieval_score), ("retrieval weight", row.retrieval_weight)]
    elif isinstance(row, AdjustRow):
        expected = [(name.replace("_", " "), factor) for name, factor in row.factors.items()]
    elif isinstance(row, JudgeRow):
        expected = [("raw", row.raw), ("sigmoid", row.sigmoid)]
    elif final:
        expected = [("MMR value", trace.stage(ASSEMBLY).by_id[row.memory_id].mmr)]
    assert cell.parts == tuple((label, value) for label, value in expected if value is not None)
    assert cell.words or isinstance(row, FusionRow)
    if not row.kept:
        assert cell.words == row.reason


def _assert_rows(table: SideBySide, trace: Trace) -> None:
    entered = {row.memory_id for stage in trace.stages for row in stage.rows}
    assert {row.memory_id for row in table.rows} == entered
    assert len(table) == len(entered)
    ranks = {result.memory_id: result.rank for result in trace.results}
    fused = trace.stage(FUSION).by_id
    names = [stage.name for stage in trace.stages]
    reached: list[int] = []
    for row in table.rows:
        last_name, last = trace.path(row.memory_id)[-1]
        assert row.final_rank == ranks.get(row.memory_id)
        assert row.dropped_by == (None if last.kept else last_name)
        assert row.dropped_words == (None if last.kept else last.reason)
        before = fused[row.memory_id].rank_out if row.memory_id in fused else None
        assert row.move == (None if before is None or row.final_rank is None else before - row.final_rank)
        reached.append(len(names) if last.kept else names.index(last_name))
    assert [row.final_rank for row in table.rows[: len(ranks)]] == list(range(1, len(ranks) + 1))
    assert reached == sorted(reached, reverse=True)


def _without_column(trace: Trace, table: SideBySide) -> Sequence[str]:
    shown = {column.stage for column in table.columns}
    return [stage.name for stage in trace.stages if stage.name not in shown]


@given(evidences(), configs())
def test_every_cell_is_that_of_the_stage_s_own_row(evidence: Evidence, config: PipelineConfig) -> None:
    trace = replay(evidence, config)
    table = side_by_side(trace)
    assert_equals_the_trace(table, trace)
    for name in _without_column(trace, table):
        for row in trace.stage(name).rows if name not in (LISTS.name, FUSION.name) else ():
            assert row.kept and row.rank_in == row.rank_out and row.score_in == row.score, name
    for stage, of in ((RERANK, "unit"), (JUDGE, "raw")):
        done = any(getattr(row, of) is not None for row in trace.stage(stage).rows)
        assert not done or stage.name not in _without_column(trace, table) or stage is RERANK
    assert ADJUST.name not in _without_column(trace, table) or all(
        row.score == row.score_in for row in trace.stage(ADJUST).rows
    )


@given(evidences(), st.sampled_from(preset_names()))
def test_every_cell_is_the_stage_s_under_every_preset(evidence: Evidence, name: str) -> None:
    trace = replay(evidence, preset(name).config)
    assert_equals_the_trace(side_by_side(trace), trace)


@given(evidences(), configs())
def test_columns_as_lists_say_what_the_rows_say(evidence: Evidence, config: PipelineConfig) -> None:
    table = side_by_side(replay(evidence, config), {"a": 2})
    by_column, by_row = json.loads(json.dumps(table.to_columns())), json.loads(json.dumps(table.to_json()))
    assert by_column["memory_id"] == [row["memory_id"] for row in by_row["rows"]]
    for name in ("title", "first_words", "grade", "final_rank", "former_rank", "move", "dropped_by", "dropped_words"):
        assert by_column[name] == [row[name] for row in by_row["rows"]], name
    for badge, row in zip(by_column["stale"], by_row["rows"], strict=True):
        assert (badge is None) == (row["stale"] is None)
        assert badge is None or row["stale"].startswith(badge)
    for column in by_column["columns"]:
        for place, row in enumerate(by_row["rows"]):
            cell = row["cells"].get(column["key"]) or {"rank": None, "score": None, "parts": {}}
            assert (column["rank"][place], column["score"][place]) == (cell["rank"], cell["score"])
            labelled = zip(column["parts"], column["values"], strict=True)
            values = {part["label"]: given[place] for part, given in labelled}
            assert {label: value for label, value in values.items() if value is not None} == cell["parts"]
