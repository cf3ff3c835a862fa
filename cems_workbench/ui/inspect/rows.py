"""Action bar for the followed memory: explain, open, grade; always visible.

A result is chosen in the bar or in any table of memories. A grade is stored as the user's label, as on the Label page; a new query is
added to a query set with its first grade.
"""

from __future__ import annotations

import streamlit as st

from cems_workbench.errors import WorkbenchError
from cems_workbench.jobs.labelling import TYPED_SET, add_to_set, give_grade, own_grade
from cems_workbench.jobs.query_grades import stored_query
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.memories.state import open_in_memories

CHOSEN, SET, PROBLEM = "inspect:row", "inspect:add_to_set", "inspect:row_problem"


def draw(context: InspectContext) -> None:
    """Draw the bar: results to choose by rank, and the actions for the followed one."""
    results = [result.memory_id for result in context.trace.results]
    if not results and context.followed is None:
        return
    with st.container(key="inspect:row_actions"):
        if problem := st.session_state.pop(PROBLEM, None):
            st.error(plain(problem))
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            _choose(results, context.followed)
            if context.followed is not None:
                _draw_actions(context, context.followed)


def _choose(results: list[str], followed: str | None) -> None:
    ranks = {memory_id: str(rank) for rank, memory_id in enumerate(results, 1)}
    st.session_state[CHOSEN] = followed if followed in ranks else None
    st.caption("Result", width="content")
    st.pills(
        "Choose a result to follow, explain, grade or open",
        results,
        key=CHOSEN,
        format_func=ranks.__getitem__,
        label_visibility="collapsed",
        on_change=lambda: state.follow(st.session_state[CHOSEN]),
        width="content",
    )


def _draw_actions(context: InspectContext, memory_id: str) -> None:
    st.code(memory_id, language=None, width="content")
    st.button(
        "Why is it here?",
        key="inspect:row_why",
        icon=":material/help:",
        on_click=state.explain,
        args=(memory_id, state.WHY_TOOL),
        help="Opens the tool under What happened, and why: every stage, and the smallest config change that moves it.",
    )
    _draw_grades(context, memory_id)
    if st.button("Open in Memories", key="inspect:row_open", icon=":material/open_in_new:"):
        open_in_memories(memory_id)


def _draw_grades(context: InspectContext, memory_id: str) -> None:
    """Draw the grades of the query's scale, with this reviewer's marked; or a box for the reviewer's name."""
    who, store = session.reviewer(), context.resources.store
    if who is None:
        with st.popover("Grade", icon=":material/grade:", help="Asks for your name once; Label uses the same."):
            session.ask()
        return
    query = stored_query(context.request, store)
    scale = store.query_sets.scale_of("" if query is None else query.qid)
    own = None if query is None else own_grade(store, query.qid, memory_id, who)
    new = f" The query is not stored yet: its first grade adds it to the set “{TYPED_SET}”." if query is None else ""
    for grade, meaning in scale.grades:
        st.button(
            f"Grade {grade}",
            key=f"inspect:row_grade:{grade}",
            type="primary" if grade == own else "secondary",
            on_click=_grade,
            args=(context.request, memory_id, grade, who, context.resources),
            help=plain(f"{meaning}. Saved as a label of {who}, as on the Label page.{new}"),
        )


def _grade(request: Request, memory_id: str, grade: int, who: str, resources: Resources) -> None:
    try:
        session.require("reviewer")
        query = stored_query(request, resources.store) or add_to_set(request, TYPED_SET, resources.store)
        give_grade(resources.store, query.qid, memory_id, grade, who)
    except WorkbenchError as error:
        st.session_state[PROBLEM] = str(error)
        return
    st.toast(f"Graded {grade}.", icon=":material/check:")


def draw_add_to_set(request: Request, resources: Resources) -> None:
    """Draw a popover that adds the query to an existing or new query set."""
    popover = st.popover(
        "Add to a set",
        icon=":material/playlist_add:",
        key="inspect:add_to_set_popover",
        type="tertiary",
        on_change="rerun",
        help="Saves this query, with its project and date, in a query set, to be labelled and measured.",
    )
    if not popover.open:
        return
    with popover:
        sets = [each.name for each in resources.store.query_sets.latest()]
        query = stored_query(request, resources.store)
        held = [] if query is None else resources.store.query_sets.holding(query.qid)
        if held:
            st.caption(plain(f"Already in: {', '.join(held)}."))
        name = st.selectbox(
            "Query set",
            sets,
            index=None,
            key=SET,
            accept_new_options=True,
            placeholder="choose one, or type a new name",
        )
        if st.button("Add this query", key="inspect:add_to_set_button", disabled=not name) and name:
            try:
                session.require("reviewer")
                add_to_set(request, name.strip(), resources.store)
            except WorkbenchError as error:
                st.error(plain(str(error)))
                return
            st.success(plain(f"Added to {name.strip()}."))
