"""The map over two parameters: who is first at each pair of values, or where the first relevant memory stands.

The figure of a map over two parameters: a coloured cell per pair of values, with a sign in it that says the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.analysis.sensitivity.scan import is_number
from cems_workbench.analysis.weight_map import WeightMap, weight_map
from cems_workbench.analysis.why.rescue import searched_specs
from cems_workbench.config import FieldSpec
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.controls import shown
from cems_workbench.ui.inspect.look import Look
from cems_workbench.ui.inspect.tools.sensitivity import label_of
from cems_workbench.ui.kit.escape import excerpt, tick
from cems_workbench.ui.kit.progress import progress_in
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.theme import LIST_COLOURS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

WINNER, RELEVANT = "who is first", "rank of the first relevant"
WINNERS = 7
"""Memories with a colour of their own; the others share one."""
BANDS = ((1, "first"), (5, "rank 2–5"), (10, "rank 6–10"), (None, "past rank 10"))
BAND_COLOURS = ("#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#C3C9CF")
DARK = frozenset({"#0072B2", "#8C6D31", "#7B848D", "#3A4149"})
"""Colours on which white text stands out; on the others dark text does."""
WITH_SIGNS = 24
"""Up to so many cells a side have room for a sign."""


@dataclass(frozen=True)
class Colouring:
    """(Y)(X) the code and the sign of each cell; name and colour by code."""

    codes: Sequence[Sequence[int]]
    signs: Sequence[Sequence[str]]
    names: Sequence[str]
    colours: Sequence[str]


def map_figure(found: WeightMap, show: str, texts: Mapping[str, str]) -> Figure:
    """The cells, a legend, and a ring at the present pair. `texts` are contents by memory id, for the hovers."""
    import plotly.graph_objects as go

    colouring = _by_rank(found) if show == RELEVANT else _by_winner(found)
    figure = go.Figure()
    figure.add_heatmap(
        x=list(range(len(found.xs))), y=list(range(len(found.ys))), z=colouring.codes, zmin=-0.5,
        zmax=len(colouring.names) - 0.5, colorscale=_steps(colouring.colours), showscale=False, xgap=1, ygap=1,
        hoverinfo="skip",
    )  # fmt: skip
    figure.add_scatter(**_points(found, colouring, texts))
    for name, colour in zip(colouring.names, colouring.colours, strict=True):
        marker = {"size": 11, "symbol": "square", "color": colour}
        figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=name, hoverinfo="skip")
    for ring in _rings(found):
        figure.add_scatter(**ring)
    figure.update_layout(
        height=560, margin={"l": 8, "r": 8, "t": 10, "b": 10}, hovermode="closest", hoverdistance=40, dragmode=False,
        plot_bgcolor="rgba(0,0,0,0)", xaxis=_axis(found.x, found.xs), yaxis=_axis(found.y, found.ys),
        legend={"orientation": "h", "y": -0.13, "yanchor": "top", "x": 0, "font": {"size": 12}},
    )  # fmt: skip
    return figure


def _points(found: WeightMap, colouring: Colouring, texts: Mapping[str, str]) -> dict[str, Any]:
    """A point on each cell: it carries the sign and the hover, and is what a click selects."""
    signed = max(len(found.xs), len(found.ys)) <= WITH_SIGNS
    unseen = {"marker": {"opacity": 0}}
    shade = ["#FFFFFF" if colouring.colours[code] in DARK else "#12181F" for row in colouring.codes for code in row]
    return {
        "x": [j for _ in found.ys for j in range(len(found.xs))],
        "y": [i for i in range(len(found.ys)) for _ in found.xs],
        "mode": "markers+text" if signed else "markers",
        "text": [sign for row in colouring.signs for sign in row] if signed else None,
        "textfont": {"size": 11, "color": shade},
        "marker": {"size": 14, "opacity": 0, "color": "#7B848D"},
        "selected": unseen,
        "unselected": unseen,
        "hovertext": [cell for row in hovers(found, texts) for cell in row],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "showlegend": False,
    }


def _rings(found: WeightMap) -> list[dict[str, Any]]:
    """A white ring within a black one at the present pair: seen on every colour."""
    if found.now[0] not in found.xs or found.now[1] not in found.ys:
        return []
    at = {"x": [found.xs.index(found.now[0])], "y": [found.ys.index(found.now[1])]}
    plain = {"mode": "markers", "showlegend": False, "hoverinfo": "skip"}
    rings = ({"size": 17, "color": "#FFFFFF", "line": {"width": 3}}, {"size": 21, "color": "#000000", "line": {"width": 1.5}})  # fmt: skip
    return [{**at, **plain, "marker": {"symbol": "circle-open", **ring}} for ring in rings]


def _by_winner(found: WeightMap) -> Colouring:
    """The memories that are first, the commonest first; a letter each."""
    top = [key for key, _ in found.winners[:WINNERS]]
    letters = [chr(ord("a") + i) for i in range(len(top))]
    codes = [[top.index(key) if key in top else len(top) + (key is None) for key in row] for row in found.first]
    names = [f"{letter}  {tick(short_id(key))}" for letter, key in zip(letters, top, strict=True)]
    return _used(codes, [*names, "·  another memory", "–  no results"], [*letters, "·", "–"],
                 [*LIST_COLOURS[: len(top)], LIST_COLOURS[WINNERS], "#3A4149"])  # fmt: skip


def _used(codes: list[list[int]], names: list[str], signs: list[str], colours: list[str]) -> Colouring:
    """Without the codes that no cell has, but at least one."""
    present = sorted({code for row in codes for code in row})
    return Colouring(
        codes=[[present.index(code) for code in row] for row in codes],
        signs=[[signs[code] for code in row] for row in codes],
        names=[names[code] for code in present],
        colours=[colours[code] for code in present],
    )


def _by_rank(found: WeightMap) -> Colouring:
    """The rank of the first relevant memory, which is the sign, in bands."""
    return Colouring(
        codes=[[_band(int(rank)) for rank in row] for row in found.rank],
        signs=[[str(rank) if rank else "–" for rank in row] for row in found.rank],
        names=[*(name for _, name in BANDS), "–  not in the results"],
        colours=BAND_COLOURS,
    )


def _band(rank: int) -> int:
    if not rank:
        return len(BANDS)
    return next(i for i, (last, _) in enumerate(BANDS) if last is None or rank <= last)


def _steps(colours: Sequence[str]) -> list[list[Any]]:
    """A colour scale of plain steps, one for each code."""
    count = len(colours)
    return [[edge / count, colour] for i, colour in enumerate(colours) for edge in (i, i + 1)]


def hovers(found: WeightMap, texts: Mapping[str, str]) -> list[list[str]]:
    """(Y)(X) both values, who is first with the beginning of its text, and the rank of the first relevant one."""
    return [[_hover(found, texts, i, j) for j in range(len(found.xs))] for i in range(len(found.ys))]


def _hover(found: WeightMap, texts: Mapping[str, str], i: int, j: int) -> str:
    first, rank = found.first[i][j], int(found.rank[i, j])
    where = f"<b>{found.x.label} {shown(found.xs[j])}, {found.y.label} {shown(found.ys[i])}</b>"
    winner = "no results"
    if first is not None:
        winner = f"first: {tick(short_id(first))}  {tick(excerpt(texts.get(first, ''), 60), 60)}"
    judged = f"<br>first relevant: {f'rank {rank}' if rank else 'not there'}" if found.judged else ""
    return f"{where}<br>{winner}{judged}"


def _axis(spec: FieldSpec, values: Sequence[Any]) -> dict[str, Any]:
    """Ticks at some of the cells, with the values they stand for."""
    every = max(1, (len(values) - 1) // 6)
    places = list(range(0, len(values), every))
    unit = f" ({spec.unit})" if spec.unit else ""
    return {
        "title": {"text": spec.label + unit}, "tickvals": places, "ticktext": [f"{values[i]:.3g}" for i in places],
        "showgrid": False, "zeroline": False, "fixedrange": True, "range": [-0.5, len(values) - 0.5],
    }  # fmt: skip


FIRST_X, FIRST_Y = "lists.lexical.weight", "fusion.k"
SIZES = {12: "12 × 12", 24: "24 × 24", 40: "40 × 40"}


def draw(look: Look) -> None:
    """Choose two parameters, see the map, and set both by a click."""
    if not look.trace.evidence.candidate_ids:
        st.info("No list found a candidate for this query, so every cell of a map would be empty.")
        return
    x, y, size = _choose()
    if x == y:
        st.info("Choose two different parameters.")
        return
    found = _kept(look, x, y, size)
    show = WINNER
    if found.judged:
        show = st.segmented_control(
            "Colour", (WINNER, RELEVANT), default=RELEVANT, required=True, key="map:show", persist_state="session",
            label_visibility="collapsed",
        ) or WINNER  # fmt: skip
    st.markdown(_sentence(found))
    texts = {key: memory.content for key, memory in look.trace.evidence.memories.items()}
    picked = st.plotly_chart(
        map_figure(found, show, texts), key="map:chart", on_select="rerun", selection_mode="points",
        config={"displayModeBar": False},
    )  # fmt: skip
    _offer(found, picked)


def _choose() -> tuple[str, str, int]:
    paths = [spec.path for spec in searched_specs() if is_number(spec)]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        x = st.selectbox(
            "Across", paths, paths.index(FIRST_X), format_func=label_of, key="map:x", persist_state="session", width=260
        )
        y = st.selectbox(
            "Up", paths, paths.index(FIRST_Y), format_func=label_of, key="map:y", persist_state="session", width=260
        )
        size = st.segmented_control(
            "Cells", list(SIZES), default=24, format_func=SIZES.__getitem__, required=True, key="map:size",
            persist_state="session", help="Each cell is one replay; what happens between two cells is not known.",
        )  # fmt: skip
    return x, y, size or 24


def _kept(look: Look, x: str, y: str, size: int) -> WeightMap:
    off = state.variants_off(look.request)
    key = (id(look.trace.evidence), look.trace.config, x, y, size, tuple(sorted(look.grades.items())), off)
    kept: tuple[object, WeightMap] | None = st.session_state.get("map:kept")
    if kept is None or kept[0] != key:
        place = st.empty()
        made = weight_map(
            look.trace.evidence, look.trace.config, x, y, size, look.grades, off, progress_in(place)
        )  # fmt: skip
        place.empty()
        kept = (key, made)
        st.session_state["map:kept"] = kept
    return kept[1]


def _sentence(found: WeightMap) -> str:
    cells = len(found.xs) * len(found.ys)
    winners = len(found.winners)
    text = f"**{winners} {'memories are' if winners != 1 else 'memory is'} first** somewhere among {cells} cells."
    if found.judged:
        first, five = found.succeeds(1) / cells, found.succeeds(5) / cells
        text += f" A relevant memory is first in {first:.0%} of them and among the first 5 in {five:.0%}."
    return text


def _offer(found: WeightMap, picked: Any) -> None:
    """A button that sets both parameters to the cell that was clicked."""
    points = picked.selection.points if picked is not None else []
    cell = next(((round(point["x"]), round(point["y"])) for point in points), None)
    if cell is None or not (cell[0] < len(found.xs) and cell[1] < len(found.ys)):
        st.caption("◯ is where both stand now. Click a cell to set both parameters to it.")
        return
    values = {found.x.path: found.xs[cell[0]], found.y.path: found.ys[cell[1]]}
    first = found.first[cell[1]][cell[0]]
    words = f"{found.x.label} {shown(found.xs[cell[0]])}, {found.y.label} {shown(found.ys[cell[1]])}"
    st.button(
        f"Apply {words}", key="map:apply", type="primary", icon=":material/check:", on_click=state.apply, args=(values,),
        help=None if first is None else f"First is then {short_id(first)}.",
    )  # fmt: skip
