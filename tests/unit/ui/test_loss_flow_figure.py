"""The picture of the loss map: what leaves is drawn to scale, nothing covers anything, and every branch can be clicked."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.analysis.losses import NEVER_FOUND, Branch, in_pipeline_order
from cems_workbench.config import preset
from cems_workbench.pipeline.stages import candidate_stages
from cems_workbench.ui.evaluate.losses import BAND_HEIGHT_PX, MIN_HEIGHT_PX, Flow, flow_figure

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
    figure = flow_figure(flow, narrow=narrow)
    branches = list(flow.branches.items())
    clickable, areas = figure.data[: len(branches)], [trace for trace in figure.data if trace.fill == "toself"]
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
    for (branch, count), trace, (_, _, text) in zip(branches, clickable, placed, strict=True):
        assert trace.mode == "markers" and branch.words(10) in trace.hovertext
        assert text.startswith(f"<b>{count:,}</b>")


def test_the_labels_say_what_happened() -> None:
    flow = Flow(STAGES, 12, 3, {NEVER_FOUND: 4, Branch("adjust", "below"): 5}, 10)
    texts = [note.text for note in flow_figure(flow).layout.annotations]
    assert texts[:2] == ["<b>4</b>  never a candidate", "<b>5</b>  pushed below 10 by adjust"]
    assert texts[2:] == ["<b>3</b>  in the<br>first 10", "<b>12</b><br>relevant"]


def test_branches_are_in_pipeline_order_what_was_never_a_candidate_first() -> None:
    branches = [Branch("adjust", "below"), Branch("adjust", "dropped"), NEVER_FOUND, Branch("fusion", "below")]
    assert in_pipeline_order(branches, ("lists", "fusion", "adjust")) == [branches[i] for i in (2, 3, 1, 0)]
