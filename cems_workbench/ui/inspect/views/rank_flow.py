"""Rank flow: a bump chart of the top, judged and followed memories over lists and stages; a click follows one.

One column per list and stage, one line per memory, a cross where a memory was lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.ranks import FlowLine, RankComparison, RankFlow, lists_in_use, rank_flow
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.list_sources import answered_lists, list_label, provenance_of
from cems_workbench.pipeline.stages import JUDGE, LISTS
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.baseline import delta_sign
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.results import GRADES
from cems_workbench.ui.kit.charts import NO_GRID, bold, draw_chart, layout, lines
from cems_workbench.ui.kit.html import excerpt, literal, plain, render, tick
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.views import View
from cems_workbench.ui.kit.widgets import switch

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

POINTS_PER_CURVE = 14
"""Points of a curve between two columns: enough to look smooth; all can be hovered and clicked."""
MIN_LINEAR_SHARE = 0.8
"""Minimum share of the points drawn to scale."""
DROP_GAP = 0.38
"""Distance, in columns, at which a dropped memory's line ends before the column that dropped it, to avoid overlap."""
COMPRESSED_SHARE = 0.4
"""Height of the compressed ranks, as a share of those drawn to scale."""
MAX_LABEL_CHARS = 16
"""Maximum characters of a column's name."""
LISTS_GAP = 0.35
RULE = {"type": "line", "line": {"color": "rgba(128,128,128,0.55)", "width": 1, "dash": "dot"}, "layer": "below"}
Point = tuple[float, float]
"""x and y of a point."""
Mark = tuple[float | None, float | None, str, int]
"""x, y, symbol and size of a marker; one of size 0 can still be hovered."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Style of the lines of one judgment: name and sign in the legend, colour, Plotly symbol, width and size."""

    name: str
    colour: str
    symbol: str
    glyph: str
    width: float
    size: int


NEUTRAL = Kind("not judged", "#7B848D", "circle-open", "○", 1.4, 6)
STYLES = (
    ("#0072B2", "circle", "●", 2.8, 10),
    ("#009E73", "square", "■", 2.6, 9),
    ("#E69F00", "diamond", "◆", 2.4, 10),
    ("#D55E00", "triangle-down-open", "▽", 2.0, 9),
)
"""From the best grade or band to the worst; symbols differ without colour."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Vertical position of a rank: linear down to `depth`, compressed below, up to `last`."""

    depth: int
    last: int

    @property
    def rows(self) -> float:
        """Total height, in ranks drawn to scale."""
        return self.depth + (self._tail if self.last > self.depth else 0.0)

    def height(self, rank: int) -> float:
        """Position of a rank, in ranks from the top; increases with the rank."""
        if rank <= self.depth:
            return float(rank)
        return self.depth + self._tail * math.log(rank / self.depth) / math.log(self.last / self.depth)

    @property
    def _tail(self) -> float:
        return max(4.0, COMPRESSED_SHARE * self.depth)

    @property
    def ticks(self) -> list[int]:
        """Labelled ranks: 1 and round numbers, and compressed ranks with enough space between them."""
        step = 1 if self.depth <= 12 else 5
        named = [1, *range(step, self.depth + 1, step)] if step > 1 else list(range(1, self.depth + 1))
        for rank in (8, 10, 15, 20, 30, 50, 80, 100, 150, 200, 300, 500, 1000):
            if self.depth < rank <= self.last and self.height(rank) - self.height(named[-1]) >= 1:
                named.append(rank)
        return named


def scale_of(flow: RankFlow, top: int) -> Scale:
    """The linear part covers the first `top` ranks, final ranks if there is room, and up to twice `top` for most points."""
    ranks = [point.rank for line in flow.lines for point in line.points]
    ranks += [line.dropped.rank for line in flow.lines if line.dropped and line.dropped.rank is not None]
    ranks.sort()
    final = max((line.final_rank or 0 for line in flow.lines), default=0)
    last = ranks[-1] if ranks else 1
    most = ranks[int(MIN_LINEAR_SHARE * (len(ranks) - 1))] if ranks else 1
    return Scale(min(max(top, min(final, 60), min(most, 2 * top)), last), last)


def flow_figure(
    flow: RankFlow,
    top: int,
    kinds: Mapping[str, Kind],
    followed: str | None,
    hover: Callable[[FlowLine], str],
    label: Callable[[FlowLine], str],
    margin: int,
) -> Figure:
    """The chart; its traces are in the order of `drawn_order`. `kinds` by memory id; others are neutral. `hover` and
    `label` return escaped texts; `margin` is the width for labels in pixels."""
    import plotly.graph_objects as go

    scale, curves, threads = scale_of(flow, top), [], []
    for line in drawn_order(flow, kinds, followed):
        kind, front, stops = kinds.get(line.memory_id, NEUTRAL), line.memory_id == followed, _stops(line, flow, scale)
        curves.append(_curve(line, kind, front, stops, _lost_index(line, flow)) | {"hovertext": hover(line)})
        threads.append(_thread(kind, front, stops))
    layout = {**_layout(flow, scale, margin), "annotations": _labels(flow, scale, label)}
    # In one call: Plotly validates all existing traces on each addition.
    return go.Figure({"data": [*curves, *threads], "layout": layout})


def drawn_order(flow: RankFlow, kinds: Mapping[str, Kind], followed: str | None) -> list[FlowLine]:
    """Lines from the back to the front: not judged, judged, followed."""
    return sorted(flow.lines, key=lambda line: (line.memory_id == followed, line.memory_id in kinds))


def column_positions(flow: RankFlow) -> dict[str, float]:
    """x position of each column; lists, which run in parallel, are set apart from the stages."""
    places = {name: float(i) for i, name in enumerate(flow.lists)}
    start = len(flow.lists) + (LISTS_GAP if flow.lists else 0.0)
    return places | {name: start + i for i, name in enumerate(flow.stages)}


def _bend(start: Point, end: Point) -> list[Mark]:
    """Points of a curve between two columns that starts and ends horizontally."""
    marks: list[Mark] = []
    for step in range(1, POINTS_PER_CURVE):
        share = step / POINTS_PER_CURVE
        rise = share * share * (3 - 2 * share)
        marks.append((start[0] + share * (end[0] - start[0]), start[1] + rise * (end[1] - start[1]), "circle", 0))
    return marks


Stops = tuple[list[Point], list[Point]]


def _stops(line: FlowLine, flow: RankFlow, scale: Scale) -> Stops:
    """Positions of the line in the lists, and in the stages including the point where it was dropped."""
    places = column_positions(flow)
    stops = [(point.column, (places[point.column], scale.height(point.rank))) for point in line.points]
    listed = [stop for column, stop in stops if column in flow.lists]
    staged = [stop for column, stop in stops if column not in flow.lists]
    if line.dropped is not None:
        staged.append((places[line.dropped.stage] - DROP_GAP, scale.height(line.dropped.rank or 1)))
    return listed, staged


def _lost_index(line: FlowLine, flow: RankFlow) -> int | None:
    """Index of the stage position with the cross: after the stage that lost it, or where that stage dropped it; of the lists the first."""
    if line.loss is None:
        return None
    staged = [point.column for point in line.points if point.column not in flow.lists]
    if line.loss.stage in staged:
        return staged.index(line.loss.stage)
    return len(staged) if line.dropped is not None and line.dropped.stage == line.loss.stage else 0


def _curve(line: FlowLine, kind: Kind, followed: bool, stops: Stops, lost: int | None) -> dict[str, Any]:
    """Only markers in the lists, which run in parallel; a line through the stages; a cross where it was lost."""
    listed, staged = stops
    size = kind.size + (3 if followed else 0)
    marks: list[Mark] = []
    for stop in listed:
        marks += [(*stop, kind.symbol, size), (None, None, "circle", 0)]
    for i, stop in enumerate(staged):
        if i:
            marks += _bend(staged[i - 1], stop)
        ended = line.dropped is not None and i == len(staged) - 1
        marks.append((*stop, "x" if i == lost else kind.symbol, max(size, 9) if i == lost else 0 if ended else size))
    x, y, symbols, sizes = zip(*marks, strict=True) if marks else ((), (), (), ())
    whole = {"marker": {"opacity": 1}}
    outline = {"width": 1.5, "color": kind.colour}
    return {
        "type": "scatter",
        "x": x,
        "y": y,
        "mode": "lines+markers",
        "hoverinfo": "text",
        "hoverlabel": {"align": "left"},
        "opacity": 1.0 if followed or kind is not NEUTRAL else 0.62,
        "line": {"color": kind.colour, "width": kind.width + (2 if followed else 0)},
        "marker": {"color": kind.colour, "symbol": symbols, "size": sizes, "opacity": 1.0, "line": outline},
        "selected": whole,
        "unselected": whole,
    }


def _thread(kind: Kind, followed: bool, stops: Stops) -> dict[str, Any]:
    """A dotted line that connects a memory's positions in the lists with the first stage."""
    listed, staged = stops
    points = [*listed, *staged[:1]]
    line = {"color": kind.colour, "width": 2 if followed else 1, "dash": "dot"}
    places = {"x": [x for x, _ in points], "y": [y for _, y in points], "opacity": 0.9 if followed else 0.4}
    return {"type": "scatter", "mode": "lines", "hoverinfo": "skip", "line": line, **places}


def _labels(flow: RankFlow, scale: Scale, label: Callable[[FlowLine], str]) -> list[dict[str, Any]]:
    """Labels of results next to their last point; for compressed ranks only if there is room."""
    at = max(column_positions(flow).values(), default=0.0)
    free = -1.0
    labels = []
    for line in flow.lines:
        if line.final_rank is None:
            continue
        height = scale.height(line.final_rank)
        if height - free >= 0.95:
            free = height
            place = {"x": at, "y": height, "xanchor": "left", "xshift": 11, "showarrow": False, "font": {"size": 11}}
            labels.append({"text": label(line), **place})
    return labels


def _layout(flow: RankFlow, scale: Scale, margin: int) -> dict[str, Any]:
    places = column_positions(flow)
    row = 22 if scale.depth <= 12 else 19 if scale.depth <= 24 else 16
    height = round(row * (scale.rows + 1))
    shapes = []
    if flow.lists:
        at = len(flow.lists) - 0.5 + LISTS_GAP / 2
        shapes.append({**RULE, "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper"})
    if scale.last > scale.depth:
        at = scale.depth + 0.5
        shapes.append({**RULE, "x0": 0, "x1": 1, "xref": "paper", "y0": at, "y1": at})
    return layout(
        height + 42,
        {
            "tickvals": list(places.values()),
            "ticktext": [tick(list_label(name), MAX_LABEL_CHARS) for name in places],
            "side": "top",
            "range": [-0.35, max(places.values(), default=0.0) + 0.15],
            "tickfont": {"size": 12},
            "showgrid": True,
        },
        {
            "tickvals": [scale.height(rank) for rank in scale.ticks],
            "ticktext": [f"{rank}  " for rank in scale.ticks],
            "range": [scale.rows + 0.7, 0.3],
            **NO_GRID,
        },
        margin={"r": margin, "t": 34},
        dragmode=False,
        clickmode="event+select",
        shapes=shapes,
    )


TOPS = (5, 10, 20, 40)
BANDS = ("highly relevant", "relevant", "weak", "irrelevant")
MAX_NAME_CHARS, PIXELS_PER_CHAR = 26, 6.2
"""Characters of an id in a label, and pixels per character."""

_HELP = (
    "From left to right: the lists, which run in parallel, then the stages in order. A rising line gained places. "
    "Shown: all memories among the first after fusion or a later stage, and judged and followed ones. "
    "Lower ranks, below the dotted line, are compressed. A cross marks where a memory was lost: the stage after which it "
    "is no longer within the first {k}. A line ends where a memory was dropped."
)
_ALT = "Bump chart: rank of each memory in all lists and after all stages, best at the top; a cross marks where one was lost."


def draw(context: InspectContext) -> None:
    """Draw the choice of how many memories, and the chart with the table of its ranks."""
    trace, k = context.trace, context.target
    if not lists_in_use(trace):
        st.caption("No enabled list has candidates, so there are no ranks to draw.")
        return
    about_top = "Show memories within this rank after fusion or a later stage."
    top = switch("First memories", TOPS, "inspect:flow_top", 10, format_func="Top {}".format, help=about_top)
    asked = [context.followed] if context.followed is not None else []
    asked += sorted(context.grades, key=lambda memory_id: (-context.grades[memory_id], memory_id))
    flow = rank_flow(trace, top, asked, k)
    kinds = line_kinds(trace, context.grades)
    st.caption(_summary(flow, trace, top, context.relevant), help=_HELP.format(k=k))
    st.html(legend_html(flow, kinds))
    label = partial(_label, names=_names(flow, trace), followed=context.followed, against=context.against)
    margin = 24 + round(PIXELS_PER_CHAR * max((len(label(line)) for line in flow.lines if line.final_rank), default=0))
    figure = flow_figure(flow, top, kinds, context.followed, partial(hover_text, trace, kinds), label, margin)
    # A new key after each selection, since a selected point cannot be selected again.
    key = f"inspect:rank_flow:{context.followed}"
    order = [line.memory_id for line in drawn_order(flow, kinds, context.followed)]
    follow = partial(follow_selected, key, order)
    rows = partial(rank_rows, flow)
    draw_chart(figure, key=key, on_select=follow, selection_mode="points", alt=_ALT, table=rows)
    if answered := answered_lists(trace.evidence.notes, flow.lists):
        st.caption(plain(answered))


def rank_rows(flow: RankFlow) -> list[dict[str, Any]]:
    """One row per line: the memory, the stage that lost it, its rank in each list and stage (None: none), and why it was lost."""
    rows = []
    for line in flow.lines:
        ranks = {point.column: point.rank for point in line.points}
        lost, why = (line.loss.stage, line.loss.reason) if line.loss else (None, None)
        columns = {list_label(name): ranks.get(name) for name in flow.columns}
        rows.append({"memory": line.memory_id, "lost at": lost, **columns, "why": why})
    return rows


def follow_selected(key: str, order: Sequence[str]) -> None:
    """Follow the memory of the clicked line; `order` lists the memories of the chart's first traces."""
    points = st.session_state[key]["selection"]["points"]
    if points and points[-1]["curve_number"] < len(order):
        state.follow(order[points[-1]["curve_number"]])


def line_kinds(trace: Trace, grades: Mapping[str, int]) -> dict[str, Kind]:
    """The style of each judged memory: by human grade if there are any, else by the judge's band; best first."""
    if grades:
        return {
            memory_id: Kind(f"grade {grade}, {GRADES.get(grade, 'judged')}", *STYLES[3 - min(max(grade, 0), 3)])
            for memory_id, grade in sorted(grades.items(), key=lambda one: -one[1])
        }
    bands = {} if trace.external else {row.memory_id: row.band for row in trace.stage(JUDGE).rows}
    return {
        memory_id: Kind(f"judge: {name}", *STYLES[i])
        for i, name in enumerate(BANDS)
        for memory_id, band in bands.items()
        if band == name
    }


def legend_html(flow: RankFlow, kinds: Mapping[str, Kind]) -> Markup:
    """Legend: the styles in use, best first, with their counts; and the cross."""
    drawn = [kinds.get(line.memory_id, NEUTRAL) for line in flow.lines]
    ordered = [kind for kind in dict.fromkeys([*kinds.values(), NEUTRAL]) if kind in drawn]
    counted = [(kind, drawn.count(kind)) for kind in ordered]
    lost = sum(line.loss is not None for line in flow.lines)
    return render("inspect/legend.html", kinds=counted, lost=lost)


def hover_text(trace: Trace, kinds: Mapping[str, Kind], line: FlowLine) -> str:
    """The memory, its judgment, ranks and scores in all columns, and where it was lost and why; escaped for Plotly."""
    kind = kinds.get(line.memory_id, NEUTRAL)
    text = excerpt(trace.evidence.memories[line.memory_id].content, 70)
    about = [f"{bold(tick(line.memory_id, 40))}  {kind.name}", tick(text, 72)]
    for point in line.points:
        score = "" if point.score is None else f", score {point.score:.4f}"
        whose = provenance_of(trace.evidence.notes, point.column)
        whose = f", {literal(whose)}" if whose else ""
        about.append(f"{tick(list_label(point.column), 24)}: rank {point.rank}{score}{whose}")
    if line.loss is not None:
        about.append(f"✕ lost at {line.loss.stage}: {tick(line.loss.reason, 90)}")
    return lines(*about)


def _names(flow: RankFlow, trace: Trace) -> dict[str, str]:
    """Label of each result: its first words."""
    memories, results = trace.evidence.memories, [line.memory_id for line in flow.lines if line.final_rank is not None]
    return {key: literal(excerpt(memories[key].title or memories[key].content, MAX_NAME_CHARS)) for key in results}


def _label(line: FlowLine, names: Mapping[str, str], followed: str | None, against: RankComparison | None) -> str:
    mark = "◆ " if line.memory_id == followed else ""
    delta = "" if against is None else f"{delta_sign(against.delta(line.memory_id))}  "
    return f"{line.final_rank}  {delta}{mark}{names.get(line.memory_id, '')}"


def _summary(flow: RankFlow, trace: Trace, top: int, relevant: Collection[str]) -> str:
    """The number of lines, what is folded or left out, and relevant memories in no list."""
    count = len(trace.stage(LISTS).rows)
    parts = [f"{len(flow.lines)} of {count} candidates: the first {top} of any stage, and judged ones"]
    if flow.folded:
        parts.append(f"no change in {', '.join(flow.folded)}")
    if flow.lists_left_out or flow.lines_left_out:
        parts.append(f"not shown: lists {flow.lists_left_out}, memories {flow.lines_left_out}")
    if missing := [plain(short_id(memory_id)) for memory_id in flow.unranked if memory_id in relevant]:
        parts.append(f"judged relevant, but in no list: {', '.join(missing[:3])}{' …' if len(missing) > 3 else ''}")
    return "; ".join(parts) + ". Click a line to follow that memory."


VIEW = View("Rank flow", 50, draw, external=True)
