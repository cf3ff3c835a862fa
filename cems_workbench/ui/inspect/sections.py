"""Sections below the ranking: the followed memory, and the chosen view or tool."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from cems_workbench.ui.inspect import follow, state
from cems_workbench.ui.inspect.catalogue import View, views_in
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.html import write_script
from cems_workbench.ui.kit.widgets import switch

VIEWS, TOOLS = "cems_workbench.ui.inspect.views", "cems_workbench.ui.inspect.tools"
SECTIONS = "what-happened"
"""Anchor of the sections, linked above the results."""


def _offered(package: str, context: InspectContext) -> Mapping[str, View]:
    """The views or tools that can read the trace."""
    views = views_in(package)
    return {title: view for title, view in views.items() if view.external} if context.trace.external else views


def draw_sections(context: InspectContext) -> None:
    """Draw the choices of a memory to follow and of a view or tool, and the chosen one."""
    st.subheader("What happened, and why", anchor=SECTIONS)
    if st.session_state.pop(state.SCROLL, False):
        write_script("scroll_to_tool")
    follow.draw(context)
    if switch("Section", (state.HAPPENED, state.WHY), state.SECTION, remember=False) == state.HAPPENED:
        views = _offered(VIEWS, context)
        chosen = views[switch("View", tuple(views), state.VIEW, remember=False)]
    else:
        tools = _offered(TOOLS, context)
        first = next(iter(tools))
        if st.session_state.get(state.TOOL) not in tools:
            st.session_state[state.TOOL] = first
        name = st.pills("Tool", tuple(tools), key=state.TOOL, required=True, label_visibility="collapsed")
        chosen = tools[name or first]
    if chosen.question and not context.trace.external:  # no change is searched for there
        st.caption(chosen.question)
    chosen.draw(context)
