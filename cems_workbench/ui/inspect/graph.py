"""The vector lists as Chroma's graph gives them, for the views of a query: only where this process has the collection open."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from cems_workbench.analysis.graph_lists import GraphList, compared_lists, graph_lists
from cems_workbench.errors import WorkbenchError
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import plain

HELP = (
    "Rank in the answer of Chroma’s graph (HNSW) to the same query; empty: missed. The list itself compares all vectors and misses none; a "
    "system that searches a graph gets the other answer."
)
NOT_HERE = "How far an answer of Chroma’s graph is from this list is shown once the collection is open."


def compared(context: InspectContext) -> dict[str, GraphList]:
    """The graph's answers for the vector lists, by list; empty while the collection is not open, or where the lists are not exact."""
    trace, resources = context.trace, context.resources
    if not compared_lists(trace.evidence, trace.config) or not resources.graph_open:
        return {}
    vector, version = trace.config.lists.vector, resources.store.content_version
    key = (context.request, trace.evidence, vector, trace.config.query.scope, version)
    return session.kept("inspect:graph", key, lambda: _searched(context))


def _searched(context: InspectContext) -> dict[str, GraphList]:
    trace = context.trace
    try:
        found = graph_lists(trace.evidence, trace.config, context.request, context.resources)
        return {one.list: one for one in found}
    except WorkbenchError as error:  # the page goes on: its lists need no graph
        st.toast(plain(f"Chroma’s graph cannot be searched: {error}"), icon=":material/warning:")
        return {}


def draw_line(context: InspectContext, name: str, found: Mapping[str, GraphList]) -> None:
    """Draw below a list what the graph missed of it, or why that is not known yet; nothing below a list that is not exact."""
    if name in found:
        st.caption(plain(found[name].line), help=HELP)
        return
    exact = name in compared_lists(context.trace.evidence, context.trace.config)
    if exact and (line := session.chroma_line(context.resources)):
        st.caption(f"{plain(line)}.", help=NOT_HERE)
