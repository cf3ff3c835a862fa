"""The line above the ranking that says that the first result is superseded or has expired, with what to do about it."""

from __future__ import annotations

import streamlit as st

from cems_workbench.analysis.supersession import Staleness, first_result_stale, first_result_words
from cems_workbench.pipeline import Trace
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.templates import render

MODES = {
    "follow": (
        "Follow the successor",
        ":material/arrow_forward:",
        "Sets Supersession to follow: the memory that supersedes it takes its rank, also if no list found it.",
    ),
    "demote": (
        "Demote it",
        ":material/arrow_downward:",
        "Sets Supersession to demote: it moves right below the memory that supersedes it, if that is ranked.",
    ),
}
"""Label, icon and help of the button that sets a mode of `supersession`."""


def draw(trace: Trace) -> None:
    """Draw the sentence and its buttons; nothing if the first result is not stale."""
    found = first_result_stale(trace)
    if found is None:
        return
    with st.container(key="inspect:stale_first"):
        st.html(render("inspect/stale_first.html", words=first_result_words(found)))
        with st.container(horizontal=True, gap="small"):
            _draw_buttons(found, trace)


def _draw_buttons(found: Staleness, trace: Trace) -> None:
    if found.successor is not None:
        name = short_id(found.successor)
        st.button(
            f"Why is {name} not above it?",
            key="inspect:stale_first:why",
            icon=":material/help:",
            on_click=state.explain,
            args=(found.successor, state.WHY_TOOL),
            help="Opens the tool under What happened, and why: every stage, and the smallest config change that moves it.",
        )
        for mode, (label, icon, help) in MODES.items():
            # What no list found has no rank to be moved below.
            if mode != trace.config.supersession.mode and (mode == "follow" or found.in_a_list):
                st.button(
                    label,
                    key=f"inspect:stale_first:{mode}",
                    icon=icon,
                    on_click=state.apply,
                    args=({"supersession.mode": mode},),
                    help=help,
                )
    if found.expired is not None and trace.config.supersession.expired == "keep":
        st.button(
            "Drop what has expired",
            key="inspect:stale_first:expired",
            icon=":material/event_busy:",
            on_click=state.apply,
            args=({"supersession.expired": "drop"},),
            help="Sets Supersession to drop memories whose Valid until is not after the query’s date.",
        )
