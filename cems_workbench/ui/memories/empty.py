"""An empty store: the four ways to fill it, on Inspect and Memories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.sources.address import importable
from cems_workbench.ui.kit.address import go
from cems_workbench.ui.kit.widgets import empty
from cems_workbench.ui.memories import sources
from cems_workbench.ui.memories.state import VIEW

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

    from cems_workbench.pipeline.resources import Resources


def draw_empty(resources: Resources, place: DeltaGenerator) -> None:
    """Draw the ways to fill an empty store. Progress is drawn in `place`."""
    empty(
        "See why your agent recalls the wrong memory, and fix it",
        "This store is empty. Fill it in one of four ways:",
    )
    systems = ", ".join(kind.title for kind in importable())
    ways = (
        (
            "Import files",
            "Import",
            "",
            "JSON Lines, CSV, Markdown notes, and exports of mem0, LangGraph, Zep, LangChain and others.",
        ),
        (
            "Connect a live system",
            "Sources",
            "",
            f"Where mem0, CEMS, LangGraph and others keep memories: {systems}. Read-only.",
        ),
        (
            "Import a trace",
            "Import",
            "openinference-traces",
            "Spans of your own pipeline, by OpenInference, OpenTelemetry or our decorators: which stage lost what.",
        ),
    )
    boxes = st.columns(2, gap="small") + st.columns(2, gap="small")
    with boxes[0].container(border=True, height="stretch"):
        st.markdown("**Look around with the sample**")
        if SAMPLE_DATA.is_dir():
            memories, queries = (
                len((SAMPLE_DATA / f"{name}.jsonl").read_bytes().splitlines()) for name in ("memories", "queries")
            )
            about = f"{memories} memories of a software team and {queries} judged queries"
            st.caption(f"{about}; it takes about half a minute.")
            sources.offer_sample(resources, place, "start", type="primary")
    for box, (title, view, form, text) in zip(boxes[1:], ways, strict=True):
        with box.container(border=True, height="stretch"):
            st.markdown(f"**{title}**")
            st.caption(text)
            more: Any = {"on_click": _open, "args": (view, form)}
            if st.button(title, key=f"inspect:start:{title}", **more):
                go("pages/memories.py")


def _open(view: str, form: str) -> None:
    """Have the Memories page open a view, with a format of files chosen if one is named."""
    st.session_state[VIEW] = view
    if form:
        st.session_state["memories:format"] = form
