"""Applying a rescue to the page, and taking it back in one click."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline.gather import Request
from cems_workbench.ui import state
from cems_workbench.ui.memories_escape import plain
from cems_workbench.ui.tables import short_id
from cems_workbench.ui.tools.why_html import what
from cems_workbench.why import Rescue
from cems_workbench.why.words import ordinal

APPLIED = "why:applied"


@dataclass(frozen=True)
class Applied:
    """What was applied, and the page as it was: config, typed variants and the project filter."""

    words: str
    before: PipelineConfig
    after: PipelineConfig
    manual: str
    only_project: bool


def apply(rescue: Rescue, request: Request, memory_id: str, stood: str) -> None:
    """Set the page to what the rescue says; a value the config refuses is said beside the controls and changes nothing."""
    before = state.config()
    kept = st.session_state.get("manual") or "", bool(st.session_state.get("only_project"))
    state.apply(rescue.values)
    if st.session_state["config_error"]:
        return
    if rescue.terms:
        st.session_state["manual"] = "\n".join(rescue.request(request).manual)
    if rescue.everywhere:
        st.session_state["only_project"] = False
    now = "not placed" if rescue.rank is None else ordinal(rescue.rank)
    words = f"{what(rescue)}. {short_id(memory_id)}: {stood} → {now}"
    st.session_state[APPLIED] = Applied(words, before, state.config(), *kept)


def take_back() -> None:
    """Put the page back to what it was before the last rescue."""
    applied: Applied = st.session_state.pop(APPLIED)
    state.take(applied.before)
    st.session_state["manual"] = applied.manual
    st.session_state["only_project"] = applied.only_project


def draw_applied() -> None:
    """What was applied, with a button that takes it back; gone once another parameter has been moved."""
    applied: Applied | None = st.session_state.get(APPLIED)
    if applied is None or applied.after != state.config():
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f":material/check: **Applied** {plain(applied.words)}")
        st.button(
            "Take back", key="why:back", icon=":material/undo:", on_click=take_back,
            help="Every parameter as it was before this change.",
        )  # fmt: skip
