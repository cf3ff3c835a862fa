"""What would explain production's answer: parameters and presets that bring our results nearer to it, each with a button."""

from __future__ import annotations

import streamlit as st

from cems_workbench.analysis.fidelity import Agreement, Production
from cems_workbench.analysis.fidelity_search import Explanation, Replays, explanations, together
from cems_workbench.config import field_spec
from cems_workbench.ui import state
from cems_workbench.ui.changed import shown
from cems_workbench.ui.gathering import progress_in
from cems_workbench.ui.look import Look
from cems_workbench.ui.memories_escape import plain

SHOWN = 8
KEPT = "production:explained"


def draw_explanations(look: Look, production: Production, now: Agreement) -> None:
    """A button that searches, and what was found for exactly this trace."""
    st.markdown(
        "###### What would explain it",
        help="Every preset, and every parameter that replays, alone, at values of its slider; then up to three together.",
    )
    off = state.switched_off(look.request)
    key = (look.trace.evidence, look.trace.config, off, production.order)
    kept = st.session_state.get(KEPT)
    if kept is None or kept[0] != key:
        place = st.empty()
        if not place.button("Search parameters and presets", key="production:search", icon=":material/search:"):
            return
        report = progress_in(place)
        replays = Replays(production.order, look.trace.evidence, off)
        found = explanations(replays, look.trace.config, report)
        single = next((one for one in found if one.preset is None), None)
        joint = together(replays, look.trace.config, single, report) if single is not None else None
        place.empty()
        kept = st.session_state[KEPT] = (key, ([joint] if joint is not None else []) + found, replays.count)
    _, found, count = kept
    if not found:
        st.caption(f"None of {count} settings that were replayed comes nearer to production than the present one.")
        return
    st.caption(
        f"{count} settings replayed; {len(found)} come nearer than RBO {now.rbo:.3f}. The nearest first, "
        f"with how many of production’s {now.depth} are then in ours."
    )
    for i, one in enumerate(found[:SHOWN]):
        _row(i, one, now)


def _row(i: int, one: Explanation, now: Agreement) -> None:
    words, numbers, button = st.columns([6, 4, 1.6], vertical_alignment="center")
    words.markdown(what(one))
    numbers.caption(
        f"RBO {now.rbo:.3f} → **{one.agreement.rbo:.3f}** · {one.agreement.shared} of {now.depth}",
        help="This preset also searches otherwise; what was gathered is all that is replayed here."
        if one.gathers
        else None,
    )
    button.button(
        "Apply", key=f"production:apply:{i}", on_click=_apply, args=(one,), help="Undo brings back what is set now."
    )


def what(one: Explanation) -> str:
    """The changes in words, as Markdown."""
    if one.preset is not None:
        return f"Preset **{plain(one.preset)}**" + (" (gathers)" if one.gathers else "")
    parts = [
        f"**{plain(field_spec(path).label)}** {plain(shown(was))} → {plain(shown(now))}"
        for path, was, now in one.changes
    ]
    return ", ".join(parts)


def _apply(one: Explanation) -> None:
    if one.preset is not None:
        state.choose_preset(one.preset)
    else:
        state.apply({path: value for path, _, value in one.changes})
