"""The Memories page: import, sources, browse, edit, statistics, index health, and opening another store."""

from __future__ import annotations

import streamlit as st

from cems_workbench.errors import WorkbenchError
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.kit import html, session
from cems_workbench.ui.kit.html import begin_page, plain
from cems_workbench.ui.kit.widgets import switch
from cems_workbench.ui.memories import browse, detail, sources, state, store

VIEWS = {
    "Browse": browse.draw_browse,
    "Import": sources.draw_importing,
    "Sources": sources.draw,
    "Statistics": store.draw_statistics,
    "Deleted": browse.draw_deleted,
    "Store": store.draw,
}

READ_ONLY_VIEWS = ("Browse", "Statistics")
"""Read-only views."""


def header(resources: Resources) -> None:
    """Draw the number of memories and the store's folder."""
    count = resources.store.memories.count()
    words = f"{count:,} {'memory' if count == 1 else 'memories'}"
    html.draw("memories/head.html", count=words, path=resources.store.path)


@session.show_errors
def main() -> None:
    """Draw the page."""
    begin_page("Memories", "memories")
    resources = session.open_or_explain()
    if resources is None:
        store.folder(None)
        return
    state.reset_for(str(resources.store.path))
    header(resources)
    view = switch("View", [name for name in VIEWS if name in READ_ONLY_VIEWS or session.may("operator")], state.VIEW)
    # Permanent placeholders, so that their content does not move the page below.
    progress, messages = st.empty(), st.container()
    with messages:
        detail.problem_line()
        detail.undo_bar(resources)
    try:
        VIEWS[view](resources, progress)
        state.refresh_indexes(resources, progress)
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")
    session.warm_up(resources)
