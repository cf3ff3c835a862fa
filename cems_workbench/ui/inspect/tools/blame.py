"""Blame: from what the agent said to the memories that say so: which the query returns, which is stale, and which says otherwise."""

from __future__ import annotations

from typing import Literal

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.blame import Blame, BlamedClaim, BlamedMemory, Next
from cems_workbench.analysis.support import Span, marked_pieces
from cems_workbench.jobs.memory_use import blame_answer
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext, View
from cems_workbench.ui.kit.html import plain, render, write_stylesheet
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.widgets import working
from cems_workbench.ui.memories.state import open_in_memories

TEXT, ASKED = "inspect:blame:text", "inspect:blame:asked"
MAX_CACHED = 4
"""Maximum results cached, so that another config or text needs no new comparison when it is chosen again."""
HELP = (
    "What the agent said, one sentence or more. It is split into claims, and each is compared with every memory of the store. A language "
    "model splits it if one is set (CEMS_WORKBENCH_LLM_MODEL); otherwise rules do."
)


def draw(context: InspectContext) -> None:
    """Draw the box, and what became of the memories that support its text."""
    write_stylesheet("why", "blame")
    with st.form("inspect:blame:form", border=False):
        st.text_area(
            "What the agent said",
            key=TEXT,
            height=90,
            placeholder="You are moving in November.",
            persist_state="session",
            help=HELP,
        )
        asked = st.form_submit_button("Find the memories behind it", icon=":material/search:")
    if asked:
        st.session_state[ASKED] = st.session_state[TEXT]
    text = st.session_state.get(ASKED)
    if text is None:
        st.caption(
            "Paste the agent’s answer to this query, or only the part that is wrong. The data stays on this machine."
        )
        return
    found = _blame(context, text)
    if found is not None:
        _draw_blame(found)


def _blame(context: InspectContext, text: str) -> Blame | None:
    """The result for the current query and config, cached; None after an error."""
    trace = context.trace
    with working() as progress:

        def make() -> Blame:
            return blame_answer(text, context.resources, trace.config, context.request, trace=trace, progress=progress)

        return context.remembered("blame:found", make, text, context.request, context.grades, most=MAX_CACHED)
    return None


def _draw_blame(found: Blame) -> None:
    if len(found.claims) > 1:
        st.markdown(plain(found.sentence) + ".")
    for number, blamed in enumerate(found.claims):
        st.html(claim_html(blamed))
        for rank, memory in enumerate(blamed.memories):
            st.html(memory_html(memory))
            _draw_buttons(f"inspect:blame:{number}:{rank}", memory, "secondary" if rank else "primary")
    for note in found.notes:
        st.caption(plain(_capital(note).removesuffix(".")) + ".")
    st.caption(f"Claims split by {plain(found.split_by)}.")


def _draw_buttons(key: str, memory: BlamedMemory, kind: Literal["primary", "secondary"]) -> None:
    """Draw the next step, and the way to the memories."""
    with st.container(horizontal=True, gap="xsmall"):
        if memory.next is not None:
            _draw_next(key, memory.next, kind)
        if memory.fix is not None:
            _draw_fix(key, memory.fix)
        for memory_id in dict.fromkeys([memory.id, *(other.memory.id for other in memory.otherwise)]):
            if st.button(
                f"{plain(short_id(memory_id))} in Memories",
                key=f"{key}:memories:{memory_id}",
                type="tertiary",
                icon=":material/database:",
                help="Shows the whole memory, and how other queries use it.",
            ):
                open_in_memories(memory_id)


def _draw_next(key: str, following: Next, kind: Literal["primary", "secondary"]) -> None:
    st.button(
        plain(_capital(following.words)),
        key=f"{key}:why",
        icon=":material/help:",
        on_click=state.explain,
        args=(following.memory_id, state.WHY_TOOL),
        type=kind,
        help="Opens “Why is it missing?” for this memory.",
    )


def _draw_fix(key: str, fix: Next) -> None:
    values = ", ".join(f"{path} to {value}" for path, value in fix.changes.items())
    st.button(
        plain(_capital(fix.words)),
        key=f"{key}:apply",
        icon=":material/update:",
        on_click=state.apply,
        args=(fix.changes,),
        help=f"Sets {values}. Alt+Z undoes it.",
    )


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def claim_html(blamed: BlamedClaim) -> Markup:
    """The claim, marked if no memory supports it for sure."""
    best = blamed.memories[0].support.overlap.claim if blamed.memories else ()
    return render(
        "inspect/blame/claim.html",
        claim=_marked(blamed.claim.text, best, "in the memory that supports it best"),
        about=blamed.about,
        supported=blamed.supporting is not None,
    )


def memory_html(memory: BlamedMemory) -> Markup:
    """A memory that supports a claim: what became of it, its text with the common words marked, and what says otherwise.

    The clauses that explain a wrong answer are warnings.
    """
    return render("inspect/blame/memory.html", blamed=memory, support=memory.support, marked=_marked)


def _marked(text: str, spans: tuple[Span, ...], title: str) -> Markup:
    return render("inspect/blame/pieces.html", pieces=marked_pieces(text, spans), title=title)


VIEW = View("Blame", 17, draw, "Which memories does the agent’s answer rest on, and what became of them?")
