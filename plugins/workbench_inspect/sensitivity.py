"""Sensitivity: how the top results change over the range of one parameter, with breakpoints; or over those of two, as a map.

The chart of one shows the intervals of the range, the ranks of the memories over it, and the metrics of the judged queries.

Weight map, of Sensitivity with two parameters: the first result, or the rank of the first relevant memory, over a grid of both.

Each pair of values is a coloured cell with a sign.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from cems_workbench.analysis.why.counterfactual import searched_specs
from cems_workbench.config import FieldSpec, PipelineConfig, field_spec
from cems_workbench.config.fields import short_value
from cems_workbench.errors import counted
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.controls import GROUPS
from cems_workbench.ui.inspect.fetch_evidence import offer_labelled
from cems_workbench.ui.kit.charts import GREY, HOVERTEXT, LEGEND, LIST_COLOURS, bold, draw_chart, hover, layout, lines
from cems_workbench.ui.kit.html import excerpt, full_label, plain, tick
from cems_workbench.ui.kit.tables import Column, draw_table, short_id
from cems_workbench.ui.kit.views import View
from cems_workbench.ui.kit.widgets import remembered, switch
from workbench_inspect import sweeps
from workbench_inspect.breakpoints import ConstantInterval
from workbench_inspect.sweeps import WeightMap, weight_map

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


WINNER, RELEVANT = "first result", "rank of the first relevant"
MAX_COLOURS = 7
"""Memories with a separate colour; the others share one."""
MAP_BANDS = ("first", "rank 2–5", "rank 6–10", "past rank 10", "–  not in the results")
BAND_COLOURS = ("#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#C3C9CF")
MAX_SIGNS_PER_SIDE = 24
"""Maximum cells per side with room for signs."""
SIZES = {12: "12 × 12", 24: "24 × 24", 40: "40 × 40"}
Cells = Sequence[Sequence[Any]]
"""A value for each pair of parameter values: (Y)(X)."""


def map_figure(grid: WeightMap, show: str, texts: Mapping[str, str]) -> Figure:
    """The cells with their signs, a legend, and a ring at the current pair. `texts` are contents by memory id, for the hover texts."""
    import plotly.graph_objects as go

    codes, signs, names, colours = _by_rank(grid) if show == RELEVANT else _by_winner(grid)
    figure, count = go.Figure(), len(colours)
    signed = max(len(grid.xs), len(grid.ys)) <= MAX_SIGNS_PER_SIDE
    figure.add_heatmap(
        z=codes,
        zmin=-0.5,
        zmax=count - 0.5,
        colorscale=[[edge / count, colour] for i, colour in enumerate(colours) for edge in (i, i + 1)],
        text=signs,
        texttemplate="%{text}" if signed else None,
        showscale=False,
        xgap=1,
        ygap=1,
        hoverinfo="skip",
    )
    unseen = {"marker": {"opacity": 0}}
    places = [(i, j) for i in range(len(grid.ys)) for j in range(len(grid.xs))]
    figure.add_scatter(  # of a heat map no cell can be clicked
        x=[j for _, j in places],
        y=[i for i, _ in places],
        mode="markers",
        marker={"size": 14, "opacity": 0},
        selected=unseen,
        unselected=unseen,
        hovertext=[_hover(grid, texts, i, j) for i, j in places],
        hovertemplate=HOVERTEXT,
        showlegend=False,
    )
    present = {code for row in codes for code in row}
    for code, (name, colour) in enumerate(zip(names, colours, strict=True)):
        marker: dict[str, Any] = {"size": 11, "symbol": "square", "color": colour}
        shown = code in present
        figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=name, showlegend=shown)
    if grid.now[0] in grid.xs and grid.now[1] in grid.ys:
        at = {"x": [grid.xs.index(grid.now[0])], "y": [grid.ys.index(grid.now[1])], "mode": "markers"}
        for size, colour in ((17, "#FFFFFF"), (21, "#000000")):  # one of the two stands out on every colour
            marker = {"symbol": "circle-open", "size": size, "color": colour, "line": {"width": 2}}
            figure.add_scatter(**at, marker=marker, showlegend=False, hoverinfo="skip")
    legend = LEGEND | {"y": -0.13, "yanchor": "top"}
    chart = layout(560, _axis(grid.x, grid.xs), _axis(grid.y, grid.ys), showlegend=True, legend=legend)
    figure.update_layout(chart | {"hoverdistance": 40, "dragmode": False, "plot_bgcolor": "rgba(0,0,0,0)"})
    return figure


def _by_winner(grid: WeightMap) -> tuple[Cells, Cells, Sequence[str], Sequence[str]]:
    """Code and sign of each cell, and name and colour of each code: the memories that come first, most frequent first."""
    top = [key for key, _ in grid.winners[:MAX_COLOURS]]
    signs = [*(chr(ord("a") + i) for i in range(len(top))), "·", "–"]
    codes = [[top.index(key) if key in top else len(top) + (key is None) for key in row] for row in grid.first]
    names = [*(f"{sign}  {tick(short_id(key))}" for sign, key in zip(signs, top, strict=False)), "·  another memory"]
    colours = [*LIST_COLOURS[: len(top)], LIST_COLOURS[MAX_COLOURS], "#3A4149"]
    return codes, [[signs[code] for code in row] for row in codes], [*names, "–  no results"], colours


def _by_rank(grid: WeightMap) -> tuple[Cells, Cells, Sequence[str], Sequence[str]]:
    """The same by the rank of the first relevant memory."""
    codes = [[int(np.searchsorted([1, 5, 10], rank)) if rank else 4 for rank in row] for row in grid.rank]
    return codes, [[str(rank) if rank else "–" for rank in row] for row in grid.rank], MAP_BANDS, BAND_COLOURS


def _hover(grid: WeightMap, texts: Mapping[str, str], i: int, j: int) -> str:
    """Both values, the first result with the start of its text, and the rank of the first relevant one."""
    first, rank = grid.first[i][j], int(grid.rank[i, j])
    winner = "no results"
    if first is not None:
        winner = f"first: {tick(short_id(first))}  {tick(excerpt(texts.get(first, ''), 60), 60)}"
    judged = [f"first relevant: {f'rank {rank}' if rank else 'none'}"] if grid.judged else []
    return lines(bold(tick(_words(grid, i, j), 90)), winner, *judged)


def _words(grid: WeightMap, i: int, j: int) -> str:
    return f"{grid.x.label} {short_value(grid.xs[j])}, {grid.y.label} {short_value(grid.ys[i])}"


def _axis(spec: FieldSpec, values: Sequence[Any]) -> dict[str, Any]:
    """Ticks at some of the cells, with their values."""
    places = list(range(0, len(values), max(1, (len(values) - 1) // 6)))
    unit = f" ({spec.unit})" if spec.unit else ""
    ticks = {"tickvals": places, "ticktext": [f"{values[i]:.3g}" for i in places]}
    return {"title": spec.label + unit, "showgrid": False, "range": [-0.5, len(values) - 0.5], **ticks}


def draw_map(context: InspectContext, x: str, y: str, size: int) -> None:
    """Draw the map of two parameters; a click offers to set both."""
    trace, relevant, off = context.trace, context.relevant, context.variants_off
    grid = context.remembered(
        "weight_map",
        lambda progress: weight_map(trace.evidence, trace.config, x, y, size, relevant, off, progress),
        x,
        y,
        size,
        tuple(sorted(relevant)),
    )
    cells, show = len(grid.xs) * len(grid.ys), WINNER
    text = f"{counted(len(grid.winners), 'memories')} came **first** somewhere in {counted(cells, 'cells')}."
    if grid.judged:
        show = switch("Colour", (WINNER, RELEVANT), "inspect:map:show", RELEVANT)
        first, five = grid.succeeds(1) / cells, grid.succeeds(5) / cells
        text += f" A relevant memory is first in {first:.0%} of them and among the first 5 in {five:.0%}."
    st.markdown(text)
    texts = {key: memory.content for key, memory in trace.evidence.memories.items()}
    picked = draw_chart(
        map_figure(grid, show, texts),
        key="inspect:map:chart",
        on_select="rerun",
        selection_mode="points",
        table=lambda: cell_rows(grid),
        alt="Heat map: ranking at each pair of values of the two parameters, by colour.",
    )
    points = picked.selection.points if picked is not None else []
    at = next(((round(point["y"]), round(point["x"])) for point in points), None)
    if at is None or not (at[0] < len(grid.ys) and at[1] < len(grid.xs)):
        st.caption("◯ marks the current values. Click a cell to set both parameters to it.")
        return
    winner = grid.first[at[0]][at[1]]
    st.button(
        f"Apply {_words(grid, *at)}",
        key="inspect:map:apply",
        type="primary",
        icon=":material/check:",
        on_click=state.apply,
        args=({grid.x.path: grid.xs[at[1]], grid.y.path: grid.ys[at[0]]},),
        help=None if winner is None else f"The first result is then {plain(short_id(winner))}.",
    )


def cell_rows(grid: WeightMap) -> list[dict[str, Any]]:
    """One row per cell: both values, the first result, and the rank of the first relevant one if any is known."""
    return [
        {grid.x.label: x, grid.y.label: y, "first": grid.first[i][j]}
        | ({"first relevant": int(grid.rank[i, j]) or None} if grid.judged else {})
        for i, y in enumerate(grid.ys)
        for j, x in enumerate(grid.xs)
    ]


NOW, ORDER, MEMBERS = "current results", "same memories, other order", "other memories"
BANDS = {NOW: ("#0072B2", ""), ORDER: ("#56B4E9", "."), MEMBERS: ("#E69F00", "/")}
"""Colour and pattern of an interval by its kind of difference."""
DASHES = ("solid", "dash", "dot", "dashdot")
BAND, RANK, METRICS_HEIGHT_PX = 44, 26, 110
"""Heights in pixels: intervals, one rank, metrics."""
DEPTHS = (1, 3, 5, 10)
MAX_LINES, MAX_NAMED = 12, 3
NEW_ORDER, NEW_MEMBER = "a new order", "a new memory"
METHODS = {
    "solved": (
        "exact",
        "Every breakpoint is solved and verified by replay on both sides; between two breakpoints the results are constant.",
    ),
    "every value": ("every value replayed", "Each value of the range was replayed."),
    "bracketed": (
        "bracketed",
        "Values on a grid were replayed, and changes located by bisection. A change that reverts between two grid points is missed.",
    ),
}


def difference(swept: sweeps.Sweep, segment: ConstantInterval) -> str:
    """The kind of difference from the current results, as in the legend."""
    now = swept.present.results
    if segment.results == now:
        return NOW
    return ORDER if set(segment.results) == set(now) else MEMBERS


def sweep_figure(
    swept: sweeps.Sweep,
    memories: Sequence[str],
    texts: Mapping[str, str],
    marked: Mapping[str, str],
    curve: sweeps.Curve | None,
) -> Figure:
    """Intervals, rank lines, and metrics if there is a curve, over a common axis. `texts` are contents by memory id,
    `marked` the signs of memories drawn bold (followed, judged)."""
    from plotly.subplots import make_subplots

    heights = [BAND, max(4, swept.k) * RANK, *([METRICS_HEIGHT_PX] if curve else [])]
    figure = make_subplots(rows=len(heights), cols=1, shared_xaxes=True, row_heights=heights, vertical_spacing=0.05)
    _bands(figure, swept)
    for i, memory_id in enumerate(memories):
        _line(figure, swept, memory_id, texts.get(memory_id, ""), marked, i)
    if curve:
        hit, ndcg = {"color": "#009E73", "dash": "solid"}, {"color": "#CC79A7", "dash": "dot"}
        for name, y, line in ((f"hit@{sweeps.HIT_DEPTH}", curve.hit, hit), ("nDCG@10", curve.ndcg, ndcg)):
            said = f"{name}, {curve.queries} judged queries"
            points: dict[str, Any] = {"x": curve.values, "y": y, "mode": "lines+markers", "name": said, "line": line}
            figure.add_scatter(**points, hovertemplate=hover(f"{name} %{{y:.3f}} at %{{x:.4g}}"), row=3, col=1)
        figure.update_yaxes(tickformat=".2f", fixedrange=True, row=3)
    low, high = _edges(swept, swept.segments[0])[0], _edges(swept, swept.segments[-1])[1]
    figure.update_xaxes(range=[low, high], showgrid=False, zeroline=False)
    unit = f" ({swept.spec.unit})" if swept.spec.unit else ""
    figure.update_xaxes(title_text=tick(swept.spec.label + unit, 40), row=len(heights))
    figure.update_yaxes(visible=False, range=[0, 1], fixedrange=True, row=1)
    ranks = {"range": [swept.k + 0.6, 0.4], "tickvals": list(range(1, swept.k + 1)), "title_text": "rank"}
    figure.update_yaxes(**ranks, showgrid=True, zeroline=False, fixedrange=True, row=2)
    if swept.now is not None:
        figure.add_vline(x=swept.now, line={"width": 1.5, "dash": "dash", "color": "#7B848D"}, row="all")
        at = {"x": swept.now, "y": 1.0, "xref": "x", "yref": "y domain", "yanchor": "bottom"}
        figure.add_annotation(text=f"now {short_value(swept.now)}", showarrow=False, font={"size": 12}, **at)
    longest = max((len(_label(key, marked)) for key in memories), default=0)
    figure.update_layout(
        height=sum(heights) + 160,
        margin={"l": 8, "r": 24 + 8 * longest, "t": 74, "b": 46},
        legend=LEGEND | {"y": 0.995, "yanchor": "top", "yref": "container"},
        hovermode="closest",
        bargap=0,
    )
    return figure


def _edges(swept: sweeps.Sweep, segment: ConstantInterval) -> tuple[float, float]:
    """Start and end of an interval's bar; an integer covers half a step on either side."""
    half = 0.5 if swept.spec.by_ones else 0.0
    return segment.first - half, segment.last + half


def _bands(figure: Figure, swept: sweeps.Sweep) -> None:
    for name, (colour, pattern) in BANDS.items():
        rows = [segment for segment in swept.segments if difference(swept, segment) == name]
        edges = [_edges(swept, segment) for segment in rows]
        texts = []
        for segment in rows:
            values = dict.fromkeys(map(short_value, (segment.first, segment.last)))
            ranking = [f"{rank}  {tick(short_id(key))}" for rank, key in enumerate(segment.results, 1)]
            texts.append(lines(f"{bold(' to '.join(values))}: {name}", *(ranking or ["no results"])))
        fill = {"shape": pattern, "size": 7, "solidity": 0.16, "fgcolor": "#FFFFFF", "fillmode": "overlay"}
        figure.add_bar(
            x=[(low + high) / 2 for low, high in edges],
            width=[high - low for low, high in edges],
            y=[1] * len(rows),
            name=name,
            hovertext=texts,
            hovertemplate=HOVERTEXT,
            marker={"color": colour, "opacity": 0.85, "line": {"width": 1, "color": GREY}, "pattern": fill},
            showlegend=bool(rows),
            row=1,
            col=1,
        )


def _label(memory_id: str, marked: Mapping[str, str]) -> str:
    return marked.get(memory_id, "") + short_id(memory_id, 12)


def _line(figure: Figure, swept: sweeps.Sweep, memory_id: str, text: str, marked: Mapping[str, str], i: int) -> None:
    """One memory's rank over the range; a gap where it is not among the first k."""
    xs: list[float | None] = []
    ys: list[int | None] = []
    for segment in swept.segments:
        rank = segment.results.index(memory_id) + 1 if memory_id in segment.results else None
        xs += _edges(swept, segment)
        ys += [rank, rank]
    colour = LIST_COLOURS[i % len(LIST_COLOURS)]
    label, front = tick(_label(memory_id, marked)), memory_id in marked
    template = hover(f"{bold(label)}, rank %{{y}} at %{{x:.4g}}", tick(excerpt(text, 90), 90))
    figure.add_scatter(
        x=xs,
        y=ys,
        mode="lines",
        name=label,
        showlegend=False,
        connectgaps=False,
        hovertemplate=template,
        row=2,
        col=1,
        line={"color": colour, "width": 3.5 if front else 2, "dash": DASHES[i // len(LIST_COLOURS) % len(DASHES)]},
    )
    if ys and ys[-1] is not None:
        place: Any = {"x": 1, "xref": "paper", "xanchor": "left", "xshift": 6, "y": ys[-1], "yref": "y2"}
        font = {"size": 12, "color": colour if front else None}
        figure.add_annotation(text=label, showarrow=False, font=font, align="left", **place)


def label_of(path: str) -> str:
    """The stage and the label of a parameter: "Fusion: RRF k"."""
    spec = field_spec(path)
    return f"{GROUPS[spec.section]}: {spec.label}"


def draw(context: InspectContext) -> None:
    """Draw the choice of a parameter, and its range."""
    if not context.trace.evidence.candidate_ids:
        st.info("No list found candidates for this query, so no parameter can change its results.")
        return
    trace = context.trace
    with st.container(horizontal=True, vertical_alignment="bottom"):
        path, second = _choose(trace.config)
        if second is None:
            k = switch("First", DEPTHS, "inspect:sensitivity:k", 5, help="Number of results compared.", labelled=True)
            what, key = (NEW_ORDER, NEW_MEMBER), "inspect:sensitivity:counted"
            help = "Any new order, or only added or removed results."
            counted = switch("Count as a change", what, key, NEW_ORDER, help=help, labelled=True)
        else:
            help = "Each cell is one replay; values between cells are not tried."
            name = SIZES.__getitem__
            size = switch("Cells", [*SIZES], "inspect:map:size", 24, format_func=name, help=help, labelled=True)
    if second is not None:
        draw_map(context, path, second, size)
        return
    swept = context.remembered(
        "sensitivity:sweep",
        lambda _: sweeps.sweep(trace.evidence, trace.config, path, k, context.variants_off),
        path,
        k,
    )
    shown = sweeps.by_members(swept) if counted == NEW_MEMBER else swept
    _draw_summary(shown)
    if swept.numeric:
        _draw_steps(shown)
        _draw_chart(context, swept, _curve(context, swept))
        _draw_table(context, shown)
    else:
        _draw_choices(context, swept)


def _choose(config: PipelineConfig) -> tuple[str, str | None]:
    specs = searched_specs()
    paths, sources = [spec.path for spec in specs], ("lexical", "ts_rank", "vector", "hybrid")
    on = next((source for source in sources if config.get(f"lists.{source}.enabled")), sources[0])
    first = paths.index(f"lists.{on}.weight")
    help = "Parameters that need no new search. For a depth, only values below the current one."
    one = remembered("inspect:sensitivity:path", help)
    path = st.selectbox("Parameter", paths, first, label_of, width=330, **one)
    numbers = [spec.path for spec in specs if sweeps.is_number(spec)]
    if path not in numbers:
        return path, None
    help = "With one, a map: which memory comes first, and does the query succeed, for each pair of values?"
    two = remembered("inspect:sensitivity:second", help)
    others = [other for other in numbers if other != path]
    second = st.selectbox("Second parameter", others, None, label_of, placeholder="none", width=260, **two)
    return path, second


def _draw_summary(swept: sweeps.Sweep) -> None:
    name, meaning = METHODS[swept.method]
    tolerance = f" Accuracy of a breakpoint: {swept.tolerance:.2g}." if swept.tolerance else ""
    count, segments = len(swept.breakpoints), swept.segments
    if not swept.numeric:
        text = f"{counted(len({segment.results for segment in segments}), 'outcomes')} with {counted(len(segments), 'values')}."
    else:
        text = (
            f"**{counted(count, 'breakpoints')} from {_number(segments[0].first)} to {_number(segments[-1].last)}**. "
        )
        now = swept.present
        same = f"no change from {_number(now.first)} to {_number(now.last)}."
        text += "It is currently off." if swept.now is None else f"Now {_number(swept.now)}: {same}"
    st.markdown(f"{text} · {name}", help=f"{meaning}{tolerance} {swept.replays} replays.")
    if swept.unscored:
        st.warning(
            f"Candidates that the reranker has not scored in parts of this range: up to {swept.unscored}. Results there may change.",
            icon=":material/help:",
        )


def _number(value: Any) -> str:
    return short_value(float(f"{value:.5g}")) if isinstance(value, float) else short_value(value)


def _draw_steps(swept: sweeps.Sweep) -> None:
    """Draw buttons that set the parameter to a neighbouring interval."""
    sides = zip(sweeps.neighbours(swept), (("below", "back"), ("above", "forward")), strict=True)
    with st.container(horizontal=True, gap="small"):
        for segment, (side, arrow) in sides:
            if segment is not None:
                value, parts = sweeps.inside(swept, segment), _changes(swept.present.results, segment.results)
                said = ", ".join([*parts[:MAX_NAMED], *(["…"] if len(parts) > MAX_NAMED else [])]) or "current results"
                st.button(
                    f"Set to {_number(value)}: {plain(said)}",
                    key=f"inspect:sensitivity:{side}",
                    icon=f":material/arrow_{arrow}:",
                    on_click=state.apply,
                    args=({swept.spec.path: value},),
                    help=f"Next interval {side}: {_number(segment.first)} to {_number(segment.last)}.",
                )


def _changes(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """["+ m378", "− m106", "m411 ▲ 1"]: added, removed and moved results."""
    parts = [f"+ {short_id(key)}" for key in after if key not in before]
    parts += [f"− {short_id(key)}" for key in before if key not in after]
    for rank, key in enumerate(after):
        rise = before.index(key) - rank if key in before else 0
        if rise:
            parts.append(f"{short_id(key)} {'▲' if rise > 0 else '▼'} {abs(rise)}")
    return parts


def _curve(context: InspectContext, swept: sweeps.Sweep) -> sweeps.Curve | None:
    """The metrics of the labelled set over the range, if requested."""
    labelled = None
    help = "Adds hit@5 (the share of judged queries with a relevant memory in the first 5) and nDCG@10 below the chart."
    if st.toggle("Judged queries over this range", **remembered("inspect:sensitivity:labelled", help)):
        labelled = offer_labelled(context, "inspect:sensitivity:gather")
    if not labelled:
        return None
    made = partial(sweeps.labelled_curve, labelled, context.trace.config, swept)
    return context.remembered("sensitivity:curve", lambda progress: made(progress=progress), labelled, swept.spec.path)


def _draw_chart(context: InspectContext, swept: sweeps.Sweep, curve: sweeps.Curve | None) -> None:
    relevant = context.relevant
    first = [*([context.followed] if context.followed else []), *sorted(relevant)]
    memories = sweeps.shown_memories(swept, first, MAX_LINES)
    texts = {key: context.trace.evidence.memories[key].content for key in memories}
    signs = {key: f"{'◆ ' if key == context.followed else ''}{'✓ ' if key in relevant else ''}" for key in memories}
    figure = sweep_figure(swept, memories, texts, {key: sign for key, sign in signs.items() if sign}, curve)
    alt = "Line chart: rank of each memory over the range of the parameter; the table below has the results of each interval."
    draw_chart(figure, key="inspect:sensitivity:chart", alt=alt, table=None)
    bold = " Bold: ◆ followed, ✓ judged relevant." if any(signs.values()) else ""
    st.caption(f"Ranks of the memories over the range; a line ends where its memory leaves the first {swept.k}.{bold}")


def _draw_table(context: InspectContext, swept: sweeps.Sweep) -> None:
    changes = [", ".join(_changes(point.before, point.after)) for point in swept.breakpoints]
    rows, relevant = list(zip(swept.segments, ["", *changes], strict=True)), context.relevant
    first = "Rank of the first memory judged relevant; –: none"
    moves = "Relative to the row above: + added, − removed, ▲ ▼ places moved"
    columns: list[Column[tuple[ConstantInterval, str]]] = [
        Column("", lambda row: "▶" if row[0] is swept.present else "", 30, help="▶ current interval"),
        Column("from", lambda row: row[0].first, 84, "%.6g", "First value of the interval replayed"),
        Column("to", lambda row: row[0].last, 84, "%.6g", "Last value of the interval replayed"),
        Column("change", lambda row: row[1], 190, help=moves),
        Column("relevant", lambda row: _first_relevant(relevant, row[0].results), 68, help=first),
        Column("first results", lambda row: _ids(row[0].results), 300, help="The results in this interval, in order"),
    ]
    shown = [column for column in columns if relevant or column.name != "relevant"]
    draw_table(rows, shown, most=12, key="inspect:sensitivity:table")


def _first_relevant(relevant: Collection[str], results: Sequence[str]) -> str:
    return next((str(rank) for rank, key in enumerate(results, 1) if key in relevant), "–")


def _ids(keys: Sequence[str]) -> str:
    return "  ".join(short_id(key) for key in keys)


def _draw_choices(context: InspectContext, swept: sweeps.Sweep) -> None:
    for segment in swept.segments:
        left, middle, right = st.columns([3, 7, 2], vertical_alignment="center")
        now = segment is swept.present
        left.markdown(f"{'▶ ' if now else ''}**{plain(short_value(segment.first))}**" + (" (now)" if now else ""))
        relevant = _first_relevant(context.relevant, segment.results)
        stands = f" · first relevant {relevant}" if context.relevant else ""
        middle.caption(plain(f"{difference(swept, segment)}: {_ids(segment.results) or 'no results'}{stands}"))
        right.button(
            full_label("Apply", f"{swept.spec.label} {short_value(segment.first)}"),
            key=f"inspect:sensitivity:value:{segment.first}",
            disabled=now,
            on_click=state.apply,
            args=({swept.spec.path: segment.first},),
            width="stretch",
        )


VIEW = View("Sensitivity", 20, draw, "Where in the range of a parameter, or of two, do the first results change?")
