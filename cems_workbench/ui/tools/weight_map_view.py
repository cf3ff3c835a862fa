"""The map over two parameters: who is first at each pair of values, or where the first relevant memory stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from cems_workbench.analysis.sensitivity import is_number
from cems_workbench.analysis.weight_map import WeightMap, weight_map
from cems_workbench.ui import state
from cems_workbench.ui.changed import shown
from cems_workbench.ui.gathering import progress_in
from cems_workbench.ui.look import Look
from cems_workbench.ui.tables import short_id
from cems_workbench.ui.tools.sensitivity_view import label_of
from cems_workbench.ui.tools.weight_map_figure import RELEVANT, WINNER, map_figure
from cems_workbench.why.values import searched_specs

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
    off = state.switched_off(look.request)
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
        f"Apply {words}", key="map:apply", type="primary", icon=":material/check:", on_click=_apply, args=(values,),
        help=None if first is None else f"First is then {short_id(first)}.",
    )  # fmt: skip


def _apply(values: Mapping[str, Any]) -> None:
    state.change(values)
    st.session_state["generation"] += 1
