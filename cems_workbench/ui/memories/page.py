"""Memories: what is in the store. Import, browse, edit, count; the health of the indexes; another store."""

from __future__ import annotations

from html import escape

import streamlit as st

from cems_workbench.errors import WorkbenchError
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.kit import handles
from cems_workbench.ui.kit.assets import write_stylesheet
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.memories import browse as memories_browse
from cems_workbench.ui.memories import deleted as memories_deleted
from cems_workbench.ui.memories import detail as memories_detail
from cems_workbench.ui.memories import importing as memories_import_view
from cems_workbench.ui.memories import state
from cems_workbench.ui.memories import statistics as memories_statistics
from cems_workbench.ui.memories import store as memories_store

DRAWERS = {
    "Browse": memories_browse.draw,
    "Import": memories_import_view.draw,
    "Statistics": memories_statistics.draw,
    "Deleted": memories_deleted.draw,
    "Store": memories_store.draw,
}


def header(resources: Resources) -> None:
    """How many memories, in which folder."""
    count = resources.store.memories.count()
    st.html(
        f'<div class="wb-mem-head"><b>{count:,} {"memory" if count == 1 else "memories"}</b>'
        f"<span>{escape(str(resources.store.path))}</span></div>"
    )


def main() -> None:
    """Draw the page."""
    write_stylesheet("workbench", "memories")
    try:
        resources = handles.resources()
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/lock:")
        memories_store.folder(None)
        return
    state.prepare(resources)
    header(resources)
    chosen = st.segmented_control(
        "View", state.VIEWS, default="Browse", required=True, key="mem:view", label_visibility="collapsed",
        persist_state="session",
    )  # fmt: skip
    # Always there, so that what comes and goes in them moves nothing below.
    progress, messages = st.empty(), st.container()
    with messages:
        memories_detail.problem_line()
        memories_detail.undo_bar(resources)
    try:
        DRAWERS[chosen or "Browse"](resources, progress)
        state.bring_up_to_date(resources, progress)
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")
    handles.warm_up(resources)
