"""Weight map, of Sensitivity with two parameters: the first result, or the rank of the first relevant memory, over a grid of both.

Each pair of values is a coloured cell with a sign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from cems_workbench.config import FieldSpec
from cems_workbench.config.fields import short_value
from cems_workbench.errors import counted
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.charts import HOVERTEXT, LEGEND, LIST_COLOURS, bold, draw_chart, layout, lines
from cems_workbench.ui.kit.html import excerpt, plain, tick
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.widgets import switch
from workbench_inspect.sweeps import WeightMap, weight_map

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

WINNER, RELEVANT = "first result", "rank of the first relevant"
MAX_COLOURS = 7
"""Memories with a separate colour; the others share one."""
BANDS = ("first", "rank 2–5", "rank 6–10", "past rank 10", "–  not in the results")
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
    return codes, [[str(rank) if rank else "–" for rank in row] for row in grid.rank], BANDS, BAND_COLOURS


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
