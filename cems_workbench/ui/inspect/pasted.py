"""What a live system explained of an answer, pasted or uploaded: it replays here under the sliders, without its store, model or access.

Its evidence is the session's until another query is searched; the store of the page has no part in it.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.errors import InputError, counted
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.explained import explained, explained_config, read_explanations, said_of
from cems_workbench.records import RowError
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.html import excerpt, plain, uploaded_text
from cems_workbench.ui.kit.widgets import opened_popover

if TYPE_CHECKING:
    from cems_workbench.pipeline import Trace
    from cems_workbench.pipeline.resources import Resources

OPEN = "inspect:explanation"
"""Whether the popover is open."""
TEXT, FILE, CHOSEN, SAID = (f"{OPEN}:{name}" for name in ("text", "file", "chosen", "said"))
MOST = 200
"""Explanations of a text that are read here; `search --explained` reads any number."""
ABOUT = (
    "What mem0, QMD, Hindsight, Qdrant, Vespa, remnic, LangSmith, Langfuse or a search engine says of how it made an answer: its scores "
    "replay here, and every slider, breakpoint and fix works on them. The data stays on this machine."
)


def draw_paste(resources: Resources, **how: Any) -> None:
    """Draw the popover to paste into."""
    help = "Replay what a live system explained of an answer, without its store"
    box = opened_popover("Paste an explanation", OPEN, ":material/content_paste:", help, **how)
    if box is None:
        return
    with box:
        st.caption(ABOUT)
        hint = '{"query": "…", "results": [{"id": "…", "memory": "…", "score": 0.61, "score_details": {…}}, …]}'
        st.text_area("Explanation, as JSON", key=TEXT, height=180, placeholder=hint)
        st.file_uploader("Or a file", ("json", "jsonl", "txt"), key=FILE)
        st.button("Replay it", key=f"{OPEN}:replay", type="primary", on_click=_open, args=(resources, None))
        several: Sequence[Evidence] = st.session_state.get(CHOSEN, ())
        if len(several) > 1:
            st.caption(f"{counted(len(several), 'explanations')}; choose one:")
            for place, one in enumerate(several[:20]):
                of: Any = {"on_click": _open, "args": (resources, place), "type": "tertiary"}
                st.button(plain(excerpt(one.query, 80)), key=f"{OPEN}:{place}", **of)
        for line in st.session_state.get(SAID, ()):
            st.warning(plain(line))


def _open(resources: Resources, place: int | None) -> None:
    """Read what was pasted, and show the first explanation, or the one that was chosen."""
    if place is None:
        upload = st.session_state.get(FILE)
        errors: list[RowError] = []
        found: list[Evidence] = []
        try:
            text = uploaded_text(upload) if upload is not None else st.session_state.get(TEXT) or ""
            with closing(io.StringIO(text)) as stream:
                found = list(islice(read_explanations(stream, "pasted", errors), MOST))
            said = list(map(str, errors[:5]))
        except InputError as error:
            said = [str(error)]
        st.session_state[CHOSEN], st.session_state[SAID] = found, said
        if not found:
            return
    several: Sequence[Evidence] = st.session_state[CHOSEN]
    evidence = several[place or 0]
    # It would cover the ranking; it stays for what was not read, and to choose another.
    st.session_state[OPEN] = place is None and bool(len(several) > 1 or st.session_state[SAID])
    state.open_evidence(evidence, explained_config(evidence), resources.store)


def shown(resources: Resources) -> bool:
    """Whether the evidence of the page's request is an explanation."""
    request = state.present_request()
    evidence = None if request is None else state.evidence_for(request, resources.store)
    return evidence is not None and explained(evidence) is not None


def draw_said(trace: Trace, searchable: bool) -> None:
    """Draw what the page shows instead of a search, and the way back to it."""
    first, *rest = said_of(trace.evidence, trace.config)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="inspect:explained"):
        st.caption(f":material/content_paste: {plain(first)}", width="stretch")
        if searchable:
            st.button("Search the store instead", key="inspect:explained:search", on_click=state.forget_evidence)
    for line in rest:
        st.caption(f":material/warning: {plain(line)}")
