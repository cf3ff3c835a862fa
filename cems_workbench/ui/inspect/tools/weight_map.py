"""Weight map, of Sensitivity with two parameters: the first result, or the rank of the first relevant memory, over a grid of both.

Each pair of values is a coloured cell with a sign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from cems_workbench.analysis.sensitivity.scan import WeightMap, weight_map
from cems_workbench.config import FieldSpec
from cems_workbench.config.fields import short_value
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.charts import HOVERTEXT, LEGEND, LIST_COLOURS, bold, draw_chart, layout, lines
from cems_workbench.ui.kit.html import excerpt, plain, tick
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.widgets import switch

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

WINNER, RELEVANT = "first result", "rank of the first relevant"
MAX_COLOURS = 7
"""Memories with a separate colour; the others share one."""
BANDS = ("first", "rank 2–5", "rank 6–10", "past rank 10")
BAND_COLOURS = ("#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#C3C9CF")
DARK_COLOURS = frozenset({"#0072B2", "#8C6D31", "#7B848D", "#3A4149"})
"""Colours that need white text; the others need dark text."""
MAX_SIGNS_PER_SIDE = 24
"""Maximum cells per side with room for signs."""


@dataclass(frozen=True)
class Colouring:
    """(Y)(X) code and sign of each cell; name and colour by code."""

    codes: Sequence[Sequence[int]]
    signs: Sequence[Sequence[str]]
    names: Sequence[str]
    colours: Sequence[str]


def map_figure(grid: WeightMap, show: str, texts: Mapping[str, str]) -> Figure:
    """The cells, a legend, and a ring at the current pair. `texts` are contents by memory id, for the hover texts."""
    import plotly.graph_objects as go

    colouring = _by_rank(grid) if show == RELEVANT else _by_winner(grid)
    figure, count = go.Figure(), len(colouring.colours)
    figure.add_heatmap(
        x=list(range(len(grid.xs))),
        y=list(range(len(grid.ys))),
        z=colouring.codes,
        zmin=-0.5,
        zmax=count - 0.5,
        colorscale=[[edge / count, colour] for i, colour in enumerate(colouring.colours) for edge in (i, i + 1)],
        showscale=False,
        xgap=1,
        ygap=1,
        hoverinfo="skip",
    )
    figure.add_scatter(**_points(grid, colouring, texts))
    for name, colour in zip(colouring.names, colouring.colours, strict=True):
        marker = {"size": 11, "symbol": "square", "color": colour}
        figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=name, hoverinfo="skip")
    for ring in _rings(grid):
        figure.add_scatter(**ring)
    legend = LEGEND | {"y": -0.13, "yanchor": "top"}
    chart = layout(
        560, _axis(grid.x, grid.xs), _axis(grid.y, grid.ys), showlegend=True, legend=legend, margin={"r": 8, "b": 10}
    )
    figure.update_layout(chart | {"hoverdistance": 40, "dragmode": False, "plot_bgcolor": "rgba(0,0,0,0)"})
    return figure


def _points(grid: WeightMap, colouring: Colouring, texts: Mapping[str, str]) -> dict[str, Any]:
    """A point per cell with sign and hover text, which can be selected by a click."""
    signed = max(len(grid.xs), len(grid.ys)) <= MAX_SIGNS_PER_SIDE
    unseen = {"marker": {"opacity": 0}}
    shade = [
        "#FFFFFF" if colouring.colours[code] in DARK_COLOURS else "#12181F" for row in colouring.codes for code in row
    ]
    return {
        "x": [j for _ in grid.ys for j in range(len(grid.xs))],
        "y": [i for i in range(len(grid.ys)) for _ in grid.xs],
        "mode": "markers+text" if signed else "markers",
        "text": [sign for row in colouring.signs for sign in row] if signed else None,
        "textfont": {"size": 11, "color": shade},
        "marker": {"size": 14, "opacity": 0, "color": "#7B848D"},
        "selected": unseen,
        "unselected": unseen,
        "hovertext": [_hover(grid, texts, i, j) for i in range(len(grid.ys)) for j in range(len(grid.xs))],
        "hovertemplate": HOVERTEXT,
        "showlegend": False,
    }


def _rings(grid: WeightMap) -> list[dict[str, Any]]:
    """A white ring within a black one at the current pair, visible on every colour."""
    if grid.now[0] not in grid.xs or grid.now[1] not in grid.ys:
        return []
    at = {"x": [grid.xs.index(grid.now[0])], "y": [grid.ys.index(grid.now[1])]}
    unseen = {"mode": "markers", "showlegend": False, "hoverinfo": "skip"}
    rings = (
        {"size": 17, "color": "#FFFFFF", "line": {"width": 3}},
        {"size": 21, "color": "#000000", "line": {"width": 1.5}},
    )
    return [{**at, **unseen, "marker": {"symbol": "circle-open", **ring}} for ring in rings]


def _by_winner(grid: WeightMap) -> Colouring:
    """The memories that come first, most frequent first, with a letter each."""
    top = [key for key, _ in grid.winners[:MAX_COLOURS]]
    letters = [chr(ord("a") + i) for i in range(len(top))]
    codes = [[top.index(key) if key in top else len(top) + (key is None) for key in row] for row in grid.first]
    names = [f"{letter}  {tick(short_id(key))}" for letter, key in zip(letters, top, strict=True)]
    return _used(
        codes,
        [*names, "·  another memory", "–  no results"],
        [*letters, "·", "–"],
        [*LIST_COLOURS[: len(top)], LIST_COLOURS[MAX_COLOURS], "#3A4149"],
    )


def _used(codes: list[list[int]], names: list[str], signs: list[str], colours: list[str]) -> Colouring:
    """Drop unused codes, but keep at least one."""
    present = sorted({code for row in codes for code in row})
    return Colouring(
        codes=[[present.index(code) for code in row] for row in codes],
        signs=[[signs[code] for code in row] for row in codes],
        names=[names[code] for code in present],
        colours=[colours[code] for code in present],
    )


def _by_rank(grid: WeightMap) -> Colouring:
    """The rank of the first relevant memory as the sign, and its band as the colour."""
    return Colouring(
        codes=[[int(np.searchsorted([1, 5, 10], rank)) if rank else len(BANDS) for rank in row] for row in grid.rank],
        signs=[[str(rank) if rank else "–" for rank in row] for row in grid.rank],
        names=[*BANDS, "–  not in the results"],
        colours=BAND_COLOURS,
    )


def _hover(grid: WeightMap, texts: Mapping[str, str], i: int, j: int) -> str:
    """Both values, the first result with the start of its text, and the rank of the first relevant one."""
    first, rank = grid.first[i][j], int(grid.rank[i, j])
    where = bold(f"{grid.x.label} {short_value(grid.xs[j])}, {grid.y.label} {short_value(grid.ys[i])}")
    winner = "no results"
    if first is not None:
        winner = f"first: {tick(short_id(first))}  {tick(excerpt(texts.get(first, ''), 60), 60)}"
    judged = [f"first relevant: {f'rank {rank}' if rank else 'none'}"] if grid.judged else []
    return lines(where, winner, *judged)


def _axis(spec: FieldSpec, values: Sequence[Any]) -> dict[str, Any]:
    """Ticks at some of the cells, with their values."""
    every = max(1, (len(values) - 1) // 6)
    places = list(range(0, len(values), every))
    unit = f" ({spec.unit})" if spec.unit else ""
    return {
        "title": spec.label + unit,
        "tickvals": places,
        "ticktext": [f"{values[i]:.3g}" for i in places],
        "showgrid": False,
        "range": [-0.5, len(values) - 0.5],
    }


SIZES = {12: "12 × 12", 24: "24 × 24", 40: "40 × 40"}


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
    cells, winners, show = len(grid.xs) * len(grid.ys), len(grid.winners), WINNER
    text = f"**{winners} {'memories are' if winners != 1 else 'memory is'} first** somewhere among {cells} cells."
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
    _offer(grid, picked)


def cell_rows(grid: WeightMap) -> list[dict[str, Any]]:
    """One row per cell: both values, the first result, and the rank of the first relevant one if any is known."""
    return [
        {grid.x.label: x, grid.y.label: y, "first": grid.first[i][j]}
        | ({"first relevant": int(grid.rank[i, j]) or None} if grid.judged else {})
        for i, y in enumerate(grid.ys)
        for j, x in enumerate(grid.xs)
    ]


def _offer(grid: WeightMap, picked: Any) -> None:
    points = picked.selection.points if picked is not None else []
    cell = next(((round(point["x"]), round(point["y"])) for point in points), None)
    if cell is None or not (cell[0] < len(grid.xs) and cell[1] < len(grid.ys)):
        st.caption("◯ marks the current values. Click a cell to set both parameters to it.")
        return
    values = {grid.x.path: grid.xs[cell[0]], grid.y.path: grid.ys[cell[1]]}
    first = grid.first[cell[1]][cell[0]]
    words = f"{grid.x.label} {short_value(grid.xs[cell[0]])}, {grid.y.label} {short_value(grid.ys[cell[1]])}"
    st.button(
        f"Apply {words}",
        key="inspect:map:apply",
        type="primary",
        icon=":material/check:",
        on_click=state.apply,
        args=(values,),
        help=None if first is None else f"The first result is then {plain(short_id(first))}.",
    )
