"""Across queries: what the judged queries of a set do with one memory."""

from __future__ import annotations

import streamlit as st

from cems_workbench.analysis.memory_use import UseRow
from cems_workbench.jobs.catalogue import PRESENT_NAME
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext, View
from cems_workbench.ui.inspect.tools import choose_memory
from cems_workbench.ui.memories import across


def draw(context: InspectContext) -> None:
    """Draw the choice of a memory, and the panel that Memories has too."""
    memory_id = choose_memory.draw(context, "across")
    if memory_id is None:
        st.caption("Follow a memory above, or search for one.")
        return
    across.draw(context.resources, memory_id, "inspect:across", _open_row, first=PRESENT_NAME)


def _open_row(counted: across.Counted, row: UseRow) -> None:
    state.show(counted.request(row), counted.asked.config, why=(row.memory_id, counted.asked.k))


VIEW = View("Across queries", 15, draw, "Which judged queries want, return or lose this memory, and at which stage?")
