"""Blame and Across queries: the memories behind what the agent said, and what the judged queries do with one memory.

Blame says which of them the query returns, which is stale, and which says otherwise.
"""

from __future__ import annotations

from typing import Any

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.blame import BlamedMemory
from cems_workbench.analysis.memory_names import memory_name
from cems_workbench.analysis.support import Span, marked_pieces
from cems_workbench.jobs.catalogue import PRESENT_NAME
from cems_workbench.jobs.memory_use import blame_answer
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.tools import choose_memory
from cems_workbench.ui.kit.html import capital, plain, render, write_stylesheet
from cems_workbench.ui.kit.html import draw as draw_template
from cems_workbench.ui.kit.views import View
from cems_workbench.ui.kit.widgets import remembered
from cems_workbench.ui.memories import across
from cems_workbench.ui.memories.state import open_in_memories

TEXT, ASKED = "inspect:blame:text", "inspect:blame:asked"
HELP = (
    "What the agent said, one sentence or more. It is split into claims, and each is compared with every memory of the store. A language "
    "model splits it if one is set (CEMS_WORKBENCH_LLM_MODEL); otherwise rules do."
)


def draw_blame(context: InspectContext) -> None:
    """Draw the box, and of each claim the memories that support it, with what became of them and the next step."""
    write_stylesheet("why", "blame")
    with st.form("inspect:blame:form", border=False):
        hint = "You are moving in November."
        st.text_area("What the agent said", height=90, placeholder=hint, **remembered(TEXT, HELP))
        if st.form_submit_button("Find the memories behind it", icon=":material/search:"):
            st.session_state[ASKED] = st.session_state[TEXT]
    text, trace, request = st.session_state.get(ASKED), context.trace, context.request
    if text is None:
        st.caption(
            "Paste the agent’s answer to this query, or only the part that is wrong. The data stays on this machine."
        )
        return
    found = context.remembered(
        "blame:found",
        lambda progress: blame_answer(text, context.resources, trace.config, request, trace=trace, progress=progress),
        text,
        request,
        context.grades,
    )
    if len(found.claims) > 1:
        st.markdown(plain(found.sentence) + ".")
    for number, blamed in enumerate(found.claims):
        best = blamed.memories[0].support.overlap.claim if blamed.memories else ()
        claim = _marked(blamed.claim.text, best, "in the memory that supports it best")
        supported = blamed.supporting is not None
        draw_template("inspect/blame/claim.html", claim=claim, about=blamed.about, supported=supported)
        for rank, memory in enumerate(blamed.memories):
            draw_template("inspect/blame/memory.html", blamed=memory, support=memory.support, marked=_marked)
            _draw_buttons(f"inspect:blame:{number}:{rank}", memory, first=rank == 0)
    for note in found.notes:
        st.caption(plain(capital(note).removesuffix(".")) + ".")
    st.caption(f"Claims split by {plain(found.split_by)}.")


def _draw_buttons(key: str, memory: BlamedMemory, first: bool) -> None:
    with st.container(horizontal=True, gap="xsmall"):
        if memory.next is not None:
            act: Any = {"on_click": state.explain, "args": (memory.next.memory_id,), "icon": ":material/help:"}
            kind: Any = "primary" if first else "secondary"
            help = "Opens “Why is it missing?” for this memory."
            st.button(plain(capital(memory.next.words)), f"{key}:why", help, type=kind, **act)
        if memory.fix is not None:
            values = ", ".join(f"{path} to {value}" for path, value in memory.fix.changes.items())
            act = {"on_click": state.apply, "args": (memory.fix.changes,), "icon": ":material/update:"}
            st.button(plain(capital(memory.fix.words)), f"{key}:apply", f"Sets {values}. Alt+Z undoes it.", **act)
        found = {one.id: one for one in (memory.support.memory, *(other.memory for other in memory.otherwise))}
        for memory_id, one in found.items():
            label = f"{plain(memory_name(one))} in Memories"
            help = f"{plain(memory_id)}: the whole memory, and how other queries use it."
            more: Any = {"type": "tertiary", "icon": ":material/database:"}
            if st.button(label, f"{key}:memories:{memory_id}", help, **more):
                open_in_memories(memory_id)


def _marked(text: str, spans: tuple[Span, ...], title: str) -> Markup:
    return render("inspect/blame/pieces.html", pieces=marked_pieces(text, spans), title=title)


def draw_across(context: InspectContext) -> None:
    """Draw the choice of a memory, and the panel that Memories has too."""
    memory_id = choose_memory.draw(context, "across")
    if memory_id is None:
        st.caption("Follow a memory above, or search for one.")
        return
    across.draw(
        context.resources,
        memory_id,
        "inspect:across",
        lambda request, config, why: state.show(request, config, why=why),
        first=PRESENT_NAME,
    )


VIEW = (
    View("Blame", 12, draw_blame, "Which memories does the agent’s answer rest on, and what became of them?"),
    View(
        "Across queries", 16, draw_across, "Which judged queries want, return or lose this memory, and at which stage?"
    ),
)
