"""Drawing of the loss map: the pipeline from left to right as a band of relevant memories, with a branch where some leave.

Heights are numbers of memories, drawn to one scale for all figures of the page. A click on a branch chooses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from cems_workbench.analysis.losses import Branch
from cems_workbench.ui.kit.charts import BREAK, GRID, HOVERTEXT, LIST_COLOURS, bold, lines
from cems_workbench.ui.kit.html import tick

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BAND_HEIGHT_PX = 170
"""Height of the band where it is widest."""
ROW_PX, LINE_PX, GAP_PX = 18, 14, 10
"""Minimum height of a branch's end, the height of a line of its label, and the space between two ends."""
MIN_HEIGHT_PX = 1.5
"""Minimum height of a branch."""
POINTS = 24
"""Points of a curve: enough to look smooth."""
FIRST_END, NEXT_END = 0.55, 0.2
"""Columns from the stage at which memories leave to the end of the branch; added for the next one at the same stage."""
DROP_PX = 16
"""By how much a branch sinks below the band."""
PIXELS_PER_CHAR = 6.6
NARROW_CHARS = 17
"""Characters of a line of a label in a figure that shares its row with another."""
BAND = LIST_COLOURS[0]
COLOURS = {"never": LIST_COLOURS[7], "depth": LIST_COLOURS[2], "dropped": LIST_COLOURS[1], "below": LIST_COLOURS[3]}
"""By the manner of a branch; its label and its place say the same."""
WITHIN, BRANCH, CHOSEN = 0.38, 0.6, 0.95
"""Opacity of the band, of a branch, and of the chosen one."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Numbers of a figure: relevant memories, those within the first k, and those that leave at each branch, in pipeline order."""

    stages: Sequence[str]
    """Names of the columns, in the order of the config."""
    relevant: int
    returned: int
    branches: Mapping[Branch, int]
    k: int


@dataclass(frozen=True, slots=True)
class _Leaving:
    """A branch: columns where it leaves and where it ends, and in pixels its middle where it leaves, thickness, and middle of its label."""

    branch: Branch
    count: int
    column: int
    end: float
    leaves: float
    thickness: float
    label: float

    @property
    def curve(self) -> tuple[list[float], list[float]]:
        """Its middle line, level at both ends."""
        shares = [i / POINTS for i in range(POINTS + 1)]
        x = [self.column + (self.end - self.column) * at for at in shares]
        return x, [self.leaves + at * at * (3 - 2 * at) * DROP_PX for at in shares]

    @property
    def leader(self) -> tuple[float, float]:
        """Upper and lower end of the line that leads to its label."""
        return self.leaves + DROP_PX, max(self.label, self.leaves + DROP_PX)


def flow_figure(flow: Flow, chosen: Branch | None = None, *, widest: int | None = None, narrow: bool = False) -> Figure:
    """The figure; curve i of `clickable` is branch i. `widest` is the number of memories that is drawn at full height.

    A `narrow` one has no names of stages, and labels of several lines.
    """
    import plotly.graph_objects as go

    scale = BAND_HEIGHT_PX / max(widest or flow.relevant, 1)
    labels = {branch: _label(branch, count, flow.k, narrow) for branch, count in flow.branches.items()}
    leaving = _leaving(flow, scale, labels)
    ends = [_hit(one, flow) for one in leaving]
    drawn = [
        _band(flow, scale),
        *(part for one in leaving for part in _ribbon(one, one.branch == chosen)),
        _within(flow, scale),
    ]
    # Points that are clicked come first, so that a curve's number is that of its branch.
    return go.Figure({"data": [*ends, *drawn], "layout": _layout(flow, leaving, labels, scale, narrow)})


def _label(branch: Branch, count: int, k: int, narrow: bool) -> list[str]:
    words = branch.words(k)
    first, *rest = wrap(words, NARROW_CHARS) if narrow else [words]
    return [f"{count:,}  {tick(first, 60)}", *(tick(line, 60) for line in rest)]


def _leaving(flow: Flow, scale: float, labels: Mapping[Branch, list[str]]) -> list[_Leaving]:
    """The label of the first to leave is lowest, so that no branch crosses another or its label."""
    heights = [max(ROW_PX, LINE_PX * len(labels[branch])) for branch in flow.branches]
    top = flow.relevant * scale + DROP_PX + GAP_PX + sum(heights) + GAP_PX * len(heights)
    columns = [_column(branch, flow) for branch in flow.branches]
    within, found = flow.relevant, []
    for i, ((branch, count), height, column) in enumerate(zip(flow.branches.items(), heights, columns, strict=True)):
        within -= count
        top -= height + GAP_PX
        # Of two that leave at the same stage the upper one ends further right, so that its line passes the other.
        end = column + FIRST_END + NEXT_END * columns[:i].count(column)
        leaves = (within + count / 2) * scale
        found.append(_Leaving(branch, count, column, end, leaves, count * scale, top + height / 2))
    return found


def _column(branch: Branch, flow: Flow) -> int:
    """Where it leaves: 0 is before the first stage."""
    return flow.stages.index(branch.stage) + 1 if branch.stage in flow.stages else 0


def _band(flow: Flow, scale: float) -> dict[str, Any]:
    """What is still within reach, from left to right; its lower edge steps up where memories leave."""
    within, x, y = flow.relevant, [0.0], [flow.relevant * scale]
    for branch, count in flow.branches.items():
        column = _column(branch, flow)
        x += [column, column]
        y += [within * scale, (within - count) * scale]
        within -= count
    end = len(flow.stages) + 1
    return {
        "type": "scatter",
        "x": [*x, end, end, 0.0],
        "y": [*y, within * scale, 0.0, 0.0],
        "mode": "lines",
        "fill": "toself",
        "fillcolor": _clear(BAND, WITHIN),
        "line": {"width": 0},
        "hoverinfo": "skip",
    }


def _ribbon(one: _Leaving, chosen: bool) -> list[dict[str, Any]]:
    """The branch as an area, and a line from its end to its label."""
    x, y = one.curve
    colour, half = COLOURS[one.branch.manner], max(one.thickness, MIN_HEIGHT_PX) / 2
    area = {
        "x": [*x, *x[::-1]],
        "y": [middle - half for middle in y] + [middle + half for middle in y[::-1]],
        "fill": "toself",
        "fillcolor": _clear(colour, CHOSEN if chosen else BRANCH),
        "line": {"width": 0},
    }
    line = {"width": 3 if chosen else 1.5, "color": colour}
    leader = {"x": [one.end] * 3, "y": [one.leader[0] - half, *one.leader], "line": line}
    drawn = {"type": "scatter", "mode": "lines", "hoverinfo": "skip"}
    return [drawn | area, drawn | leader]


def _hit(one: _Leaving, flow: Flow) -> dict[str, Any]:
    """Invisible points along a branch that answer to the pointer, wherever it is on the branch."""
    x, y = one.curve
    top, bottom = one.leader
    down = [top + (bottom - top) * i / POINTS for i in range(1, POINTS + 1)]
    of = f"{one.count:,} of {flow.relevant:,} relevant memories ({one.count / max(flow.relevant, 1):.0%})"
    return {
        "type": "scatter",
        "x": [*x, *[one.end] * len(down)],
        "y": [*y, *down],
        "mode": "markers",
        "marker": {
            "size": [max(one.thickness, ROW_PX)] * len(x) + [ROW_PX] * len(down),
            "opacity": 0,
            "color": COLOURS[one.branch.manner],
        },
        "selected": {"marker": {"opacity": 0}},
        "unselected": {"marker": {"opacity": 0}},
        "hovertext": lines(tick(one.branch.words(flow.k), 80), of, "Click to list them"),
        "hovertemplate": HOVERTEXT,
    }


def _within(flow: Flow, scale: float) -> dict[str, Any]:
    """Points at each stage that say how many are still within reach after it."""
    left, x, y, texts = flow.relevant, [], [], []
    lost: dict[str, int] = {}
    for branch, count in flow.branches.items():
        lost[branch.stage] = lost.get(branch.stage, 0) + count
    left -= lost.get("", 0)
    for column, stage in enumerate(flow.stages, 1):
        left -= lost.get(stage, 0)
        x.append(column + 0.25)
        y.append(left * scale / 2)
        texts.append(lines(f"after {tick(stage)}", f"{left:,} of {flow.relevant:,} still within reach"))
    marker = {"size": 16, "opacity": 0}
    unseen = {"marker": {"opacity": 0}}
    return {
        "type": "scatter",
        "x": x,
        "y": y,
        "mode": "markers",
        "marker": marker,
        "selected": unseen,
        "unselected": unseen,
        "hovertext": texts,
        "hovertemplate": HOVERTEXT,
    }


def _layout(
    flow: Flow, leaving: Sequence[_Leaving], labels: Mapping[Branch, list[str]], scale: float, narrow: bool
) -> dict[str, Any]:
    end = len(flow.stages) + 1
    bottom = max([flow.relevant * scale, *(one.label + ROW_PX / 2 for one in leaving)])
    texts = [_text(one.end, one.label, _count_bold(one.count, labels[one.branch]), "left", 6) for one in leaving]
    kept = [f"{bold(f'{flow.returned:,}')}  in the", f"first {flow.k}"]
    texts.append(_text(end, flow.returned * scale / 2, kept, "left", 8))
    texts.append(_text(0, flow.relevant * scale / 2, [bold(f"{flow.relevant:,}"), "relevant"], "left", 6))
    margin = _margin(leaving, labels, end, narrow)
    names = ["", *(tick(name, 14) for name in flow.stages)]
    above, below = 8 if narrow else 34, 8
    return {
        "height": round(bottom + 20 + above + below),  # so that a unit of the axis is a pixel
        "margin": {"l": 4, "r": margin, "t": above, "b": below},
        "hovermode": "closest",
        "dragmode": False,
        "clickmode": "event+select",
        "showlegend": False,
        "annotations": texts,
        "xaxis": {
            "range": [0, end],
            "tickvals": [] if narrow else list(range(len(names))),
            "ticktext": names,
            "side": "top",
            "fixedrange": True,
            "showgrid": not narrow,
            "gridcolor": GRID,
            "zeroline": False,
            "tickfont": {"size": 12},
            "tickangle": 0,
        },
        "yaxis": {"range": [bottom + 14, -6], "visible": False, "fixedrange": True},
    }


def _margin(leaving: Sequence[_Leaving], labels: Mapping[Branch, list[str]], end: int, narrow: bool) -> int:
    """Pixels for the labels right of the last column, on the narrowest page that is supported."""
    column = (300 if narrow else 620) / end
    needed = [90.0]
    for one in leaving:
        length = max(len(line) for line in labels[one.branch]) * PIXELS_PER_CHAR + 14
        needed.append(length - (end - one.end) * column)
    return round(max(needed))


def _count_bold(count: int, label: Sequence[str]) -> list[str]:
    first, *rest = label
    return [bold(f"{count:,}") + first.removeprefix(f"{count:,}"), *rest]


def _text(x: float, y: float, texts: Sequence[str], anchor: str, shift: int) -> dict[str, Any]:
    return {
        "x": x,
        "y": y,
        "text": BREAK.join(texts),
        "showarrow": False,
        "xanchor": anchor,
        "xshift": shift,
        "align": "left",
        "font": {"size": 12},
        "captureevents": False,
    }


def _clear(colour: str, opacity: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
