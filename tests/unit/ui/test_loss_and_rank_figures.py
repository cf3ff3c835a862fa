"""The loss map and the rank flow as pictures: lines to scale, signs beside colours, hostile text literal; every chart names its table."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cems_workbench.ui
from cems_workbench.analysis.ranks import NEVER_FOUND, Branch, RankComparison, RankFlow, in_pipeline_order, rank_flow
from cems_workbench.config import preset
from cems_workbench.pipeline import ModelScore, Trace, replay
from cems_workbench.pipeline.stages import candidate_stages
from cems_workbench.records import Memory
from cems_workbench.ui.evaluate.losses import BAND_HEIGHT_PX, MIN_HEIGHT_PX, Flow
from cems_workbench.ui.evaluate.losses import flow_figure as loss_figure
from cems_workbench.ui.inspect.baseline import lost_results_html
from cems_workbench.ui.inspect.results import results_html
from cems_workbench.ui.inspect.views import rank_flow as view
from cems_workbench.ui.inspect.views.rank_flow import (
    DROP_GAP,
    NEUTRAL,
    STYLES,
    Scale,
    column_positions,
    drawn_order,
    flow_figure,
)
from tests.unit.pipeline.cases import configured, evidence, falling, trace

STAGES = [stage.name for stage in candidate_stages(preset("cems").config)]
BRANCHES = [
    NEVER_FOUND,
    Branch("lists", "depth"),
    *(Branch(name, manner) for name in STAGES[1:] for manner in ("dropped", "below")),
]


@st.composite
def flows(draw: st.DrawFn) -> Flow:
    """Some branches in pipeline order, and some memories that are returned."""
    counts = draw(st.lists(st.integers(0, 900), min_size=len(BRANCHES), max_size=len(BRANCHES)))
    branches = {branch: count for branch, count in zip(BRANCHES, counts, strict=True) if count}
    returned = draw(st.integers(0 if branches else 1, 900))
    return Flow(STAGES, returned + sum(branches.values()), returned, branches, 10)


def labels(layout: Any, count: int) -> list[tuple[float, float, str]]:
    """Place and text of the label of each branch."""
    return [(note.x, note.y, note.text) for note in layout.annotations[:count]]


@given(flows(), st.booleans())
def test_heights_are_to_scale_and_labels_stand_apart(flow: Flow, narrow: bool) -> None:
    figure = loss_figure(flow, narrow=narrow)
    branches = list(flow.branches.items())
    clickable, areas = figure.data[: len(branches)], [one for one in figure.data if one.fill == "toself"]
    scale = BAND_HEIGHT_PX / flow.relevant
    band, ribbons = areas[0], areas[1:]
    assert max(band.y) == BAND_HEIGHT_PX or abs(max(band.y) - BAND_HEIGHT_PX) < 1e-6
    assert abs(band.y[-3] - flow.returned * scale) < 1e-6
    for (_, count), ribbon in zip(branches, ribbons, strict=True):
        half = len(ribbon.y) // 2
        height = ribbon.y[half] - ribbon.y[half - 1]
        assert abs(height - max(count * scale, MIN_HEIGHT_PX)) < 1e-6
    placed = labels(figure.layout, len(branches))
    for (x, y, _), (later_x, later_y, _) in pairwise(placed):
        assert later_x > x and later_y < y - 10, "a later branch ends above and to the right of an earlier one"
    bottom, top = figure.layout.yaxis.range
    margin = figure.layout.margin
    assert abs(figure.layout.height - margin.t - margin.b - (bottom - top)) <= 1, "a unit of the axis is a pixel"
    assert all(top < y < bottom for _, y, _ in placed)
    for (branch, count), marker, (_, _, text) in zip(branches, clickable, placed, strict=True):
        assert marker.mode == "markers" and branch.words(10) in marker.hovertext
        assert text.startswith(f"<b>{count:,}</b>")


def test_the_labels_say_what_happened() -> None:
    flow = Flow(STAGES, 12, 3, {NEVER_FOUND: 4, Branch("adjust", "below"): 5}, 10)
    texts = [note.text for note in loss_figure(flow).layout.annotations]
    assert texts[:2] == ["<b>4</b>  never a candidate", "<b>5</b>  pushed below 10 by adjust"]
    assert texts[2:] == ["<b>3</b>  in the<br>first 10", "<b>12</b><br>relevant"]


def test_branches_are_in_pipeline_order_what_was_never_a_candidate_first() -> None:
    branches = [Branch("adjust", "below"), Branch("adjust", "dropped"), NEVER_FOUND, Branch("fusion", "below")]
    assert in_pipeline_order(branches, ("lists", "fusion", "adjust")) == [branches[i] for i in (2, 3, 1, 0)]


ATTACK = '<img src=x onerror=alert(1)>"&'
LIMITED: dict[str, Any] = {"assembly.limit": 3}


def drawn(subject: Trace, top: int = 5, grades: dict[str, int] | None = None, followed: str | None = None) -> Any:
    flow = rank_flow(subject, top, [*(grades or {})])
    kinds = view.line_kinds(subject, grades or {})
    figure = flow_figure(
        flow,
        top,
        kinds,
        followed,
        lambda line: view.hover_text(subject, kinds, line),
        lambda line: str(line.memory_id),
        90,
    )
    return flow, kinds, figure


def test_a_line_runs_through_its_ranks_and_ends_with_a_cross_where_it_was_lost() -> None:
    flow, kinds, figure = drawn(trace(evidence({"vector": falling(6)}), LIMITED))
    at = [line.memory_id for line in drawn_order(flow, kinds, None)].index("m05")
    curve, places = figure.data[at], column_positions(flow)
    marked = [
        (x, y, symbol)
        for x, y, symbol, size in zip(curve.x, curve.y, curve.marker.symbol, curve.marker.size, strict=True)
        if size
    ]
    assert marked == [
        (places["vector"], 5, NEUTRAL.symbol),
        (places["fusion"], 5, "x"),
    ]
    assert curve.x[-1] == places["assembly"] - DROP_GAP  # where it was dropped


def test_each_grade_has_a_symbol_and_a_sign_of_its_own_beside_its_colour() -> None:
    for column in (0, 1, 2):
        assert len({style[column] for style in STYLES} | {(NEUTRAL.colour, NEUTRAL.symbol, NEUTRAL.glyph)[column]}) == 5


def test_grades_come_before_the_judge_and_the_judge_before_neutral() -> None:
    scores = {"j": {"m01": ModelScore(5.0), "m02": ModelScore(-20.0)}}
    subject = evidence({"vector": falling(3)}, judge_scores=scores)
    judged = trace(subject, {"judge.backend": "auto"})
    assert {key: kind.name for key, kind in view.line_kinds(judged, {"m03": 2, "m01": 0}).items()} == {
        "m03": "grade 2, helps",
        "m01": "grade 0, not relevant",
    }
    bands = view.line_kinds(judged, {})
    assert {key: (kind.name, kind.colour) for key, kind in bands.items()} == {
        "m01": ("judge: highly relevant", STYLES[0][0]),
        "m02": ("judge: irrelevant", STYLES[3][0]),
    }
    assert view.line_kinds(trace(subject), {}) == {}


@pytest.mark.parametrize("grade", [-1, 4, 7])
def test_a_grade_outside_the_scale_is_drawn_as_the_nearest(grade: int) -> None:
    kinds = view.line_kinds(trace(evidence({"vector": falling(2)})), {"m01": grade})
    assert kinds["m01"].colour == STYLES[0 if grade > 0 else 3][0] and str(grade) in kinds["m01"].name


@pytest.mark.parametrize(("depth", "last"), [(5, 5), (10, 11), (10, 160), (20, 25), (1, 900)])
def test_a_lower_rank_is_always_drawn_lower_and_inside(depth: int, last: int) -> None:
    scale = Scale(depth, last)
    heights = [scale.height(rank) for rank in range(1, last + 1)]
    assert heights == sorted(set(heights)) and heights[-1] <= scale.rows + 1e-9
    assert heights[:depth] == list(range(1, depth + 1))
    ticks = [scale.height(rank) for rank in scale.ticks]
    assert all(below - above >= 0.99 for above, below in pairwise(ticks))


def test_the_hover_has_rank_and_score_of_every_column_and_why_it_was_lost() -> None:
    flow, kinds, _ = drawn(trace(evidence({"vector": falling(6)}), LIMITED), grades={"m05": 1})
    line = next(line for line in flow.lines if line.memory_id == "m05")
    assert view.hover_text(trace(evidence({"vector": falling(6)}), LIMITED), kinds, line).split("<br>") == [
        "<b>m05</b>  grade 1, related",
        "text m05",
        "vector: rank 5, score 0.9500",
        f"fusion: rank 5, score {1 / 65:.4f}",
        "✕ lost at lists: below 3 in every list (best: 5th in vector); …embly dropped it: past the result limit of 3",
    ]


def hostile() -> tuple[Trace, RankComparison, RankFlow]:
    ids = [f"{i}{ATTACK}" for i in range(4)]
    lists = {"vector": {key: 0.9 - 0.1 * i for i, key in enumerate(ids)}, "lexical": {ids[3]: 2.0}}
    subject = evidence(lists)
    memories = {key: Memory(key, f"content {ATTACK}") for key in ids}
    subject = type(subject)(
        query=ATTACK, memories=memories, lists=subject.lists, variants=subject.variants, as_of=subject.as_of
    )
    now = replay(subject, configured({"assembly.limit": 2}))
    before = replay(subject, configured({"assembly.limit": 2, "lists.lexical.enabled": False}))
    return now, RankComparison(ATTACK, now, before), rank_flow(now, 5, ids)


def test_hostile_ids_texts_and_names_are_shown_literally() -> None:
    now, against, flow = hostile()
    kinds = view.line_kinds(now, {line.memory_id: 2 for line in flow.lines})
    texts = [lost_results_html(against), results_html(now, {}, None, against), view.legend_html(flow, kinds)]
    assert against.gone() and all("<img" not in text for text in texts)
    assert all("&lt;img" in text for text in texts[:2])
    hovers = [view.hover_text(now, kinds, line) for line in flow.lines]
    assert all("<img" not in hover and "&lt;img" in hover for hover in hovers)
    assert all("<img" not in name and "&lt;" in name for name in view._names(flow, now).values())


def test_every_chart_names_the_table_of_its_figures() -> None:
    """`kit/charts.py:draw_chart` cannot be called without one, and nothing else draws a chart."""
    folder = Path(cems_workbench.ui.__file__).parent
    drawing = [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if "plotly_chart(" in path.read_text("utf-8")
    ]
    assert drawing == ["kit/charts.py"]
