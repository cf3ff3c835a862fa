"""What if it were different? Replay with a memory edited, absent, or one that does not exist yet; the store is not changed.

The form has the fields that affect ranking, validated like the import. The outcome is drawn as the result of the operation; a button tries
the same on all judged queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from cems_workbench.analysis.edited_evidence import Edit
from cems_workbench.analysis.what_if import applied, new_memory
from cems_workbench.errors import InputError
from cems_workbench.jobs.memory_use import effect_on_queries
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import IMPORTANCE, Memory
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.fetch_evidence import evidence_memory
from cems_workbench.ui.inspect.tools import choose_memory
from cems_workbench.ui.kit.forms import DAY_HELP, edited_memory, form_values, optional_choice
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.views import View
from cems_workbench.ui.kit.widgets import show, switch

EDITED, ABSENT, NEW = MODES = ("Other values", "Without it", "A new memory")
LABELS = {
    "content": "Text",
    "title": "Title",
    "category": "Category",
    "project": "Project",
    "session": "Session",
    "scope": "Scope",
    "created_at": "Created",
    "last_accessed": "Last accessed",
    "access_count": "Accesses",
    "priority": "Priority",
    "importance": "Importance",
    "pinned": "Pinned",
    "relevant_count": "Found relevant",
    "noise_count": "Found noise",
}
"""Without tags and author, which affect no list or factor, and without the dates of validity."""
COLUMNS = {
    "rank before": "Rank with the stored memory; ✕: dropped there",
    "score before": "Score with the stored memory",
    "rank": "Rank with the change; ✕: dropped there",
    "score": "Score with the change",
    "what happened": "Effect of the stage on the changed memory",
    "came": "Other memories that enter the first results",
    "left": "Other memories that leave them",
    "difference": "Mean of the paired differences",
}
TRIED, PROBLEM, GENERATION = "inspect:what_if:tried", "inspect:what_if:problem", "inspect:what_if:turn"
OF_NEW = "inspect:what_if:new"


def draw(context: InspectContext) -> None:
    """Draw what is tried, the choice of a memory, the form of its copy, and the outcome."""
    help = "Another text or other values of a memory; the store without it; or a memory that is not stored yet."
    mode = switch("What if", MODES, "inspect:what_if:mode", EDITED, help=help)
    if mode == NEW:
        _draw_new(context)
        return
    memory_id = choose_memory.draw(context, "what_if", missing_first=True)
    if memory_id is None:
        tried = "leave it out" if mode == ABSENT else "try another text, date or priority"
        st.caption(f"Search for a memory, or follow one above, to {tried}.")
        return
    if (stored := choose_memory.stored(context, memory_id)) is None:
        return
    if mode == ABSENT:
        st.markdown(f"## Without {plain(short_id(memory_id))}")
        _draw_edit(context, Edit(stored, None, context.resources))
        return
    st.markdown(f"## Scratch copy of {plain(short_id(memory_id))}")
    _draw_form(context.resources, stored)
    copy = _tried().get(memory_id)
    if copy is None or copy == stored:
        st.caption("Change a field and press Try. Nothing is saved.")
        return
    _draw_edit(context, Edit(stored, copy, context.resources))


def _draw_edit(context: InspectContext, edit: Edit) -> None:
    """Draw the outcome of an edit, and what it does to the judged queries once that was asked for."""
    trace, off, key = context.trace, context.variants_off, (edit.stored, edit.edited)
    of = edit, trace.evidence, trace.config, context.request
    outcome = context.remembered(
        "what_if:outcomes", lambda progress: applied(*of, switched_off=off, progress=progress), *key, context.request
    )
    show(outcome.lines, outcome.tables, [outcome.certainty], COLUMNS)
    st.markdown("## In all judged queries")
    help = "Measures before and after, and the queries that change. Missing evidence is gathered first; nothing else is stored."
    asked = st.button("Try it on all judged queries", "inspect:what_if:set", help, icon=":material/rule:")
    if asked or context.is_remembered("what_if:effects", *key):
        effect = context.remembered(
            "what_if:effects",
            lambda progress: effect_on_queries(edit, trace.config, memory=evidence_memory(), progress=progress),
            *key,
        )
        show([effect.sentence], effect.tables, effect.notes, COLUMNS)


def _draw_new(context: InspectContext) -> None:
    """Draw the form of a memory that does not exist yet, and its outcome: would this note have been found?"""
    facets, state = context.resources.store.memories.facets(), st.session_state
    state.setdefault(f"{OF_NEW}:project", None)
    with st.form(OF_NEW):
        st.text_area(
            "Text",
            key=f"{OF_NEW}:text",
            height=150,
            placeholder="What the memory would say",
            help="Embedded and searched as the store does it; a long text is cut into chunks.",
        )
        title, project, scope = st.columns(3)
        title.text_input("Title", key=f"{OF_NEW}:title", help=TITLE_HELP)
        with project:
            optional_choice("Project", f"{OF_NEW}:project", facets.projects, PROJECT_HELP)
        scope.selectbox("Scope", SCOPES, key=f"{OF_NEW}:scope", help=SCOPE_HELP)
        help = "Ranks the text for this query as if it were stored. The store is not changed."
        tried = st.form_submit_button("Try", help, type="primary", key=f"{OF_NEW}:try")
    if tried:
        names = ("text", "title", "project", "scope")
        state[f"{OF_NEW}:tried"] = {name: state[f"{OF_NEW}:{name}"] or None for name in names}
    if f"{OF_NEW}:tried" not in state:
        st.caption("Would this note be found? Write it and press Try. Nothing is saved.")
        return
    given = dict(state[f"{OF_NEW}:tried"])
    new = new_memory(given.pop("text") or "", context.resources, **given)
    _draw_edit(context, Edit(None, new, context.resources))


TITLE_HELP = "Added before the text unless the text starts with it."
PROJECT_HELP = "Adjust compares it with the query’s project."
SCOPES, SCOPE_HELP = ["personal", "shared"], "Query → Scope can exclude one of them."


def _tried() -> dict[str, Memory]:
    edits: dict[str, Memory] = st.session_state.setdefault(TRIED, {})
    return edits


def _draw_form(resources: Resources, stored: Memory) -> None:
    """Draw the form, filled with the last tried edit; Try and Start again are handled before the rerun."""
    turn = st.session_state.setdefault(GENERATION, 0)

    def start_again() -> None:
        """Forget the tried edit; new widget keys reset the fields to the stored values."""
        _tried().pop(stored.id, None)
        st.session_state.update({PROBLEM: None, GENERATION: turn + 1})

    keys = {name: f"inspect:what_if:{turn}:{name}:{stored.id}" for name in LABELS}
    for name, value in form_values(_tried().get(stored.id, stored), LABELS).items():
        st.session_state.setdefault(keys[name], value)
    with st.form(f"inspect:what_if:form:{turn}"):
        _draw_fields(resources, keys)
        problem: tuple[str, str] | None = st.session_state.get(PROBLEM)
        if problem is not None and problem[0] == stored.id:
            st.error(plain(problem[1]), icon=":material/block:")
        with st.container(horizontal=True):
            begin: Any = {"type": "primary", "on_click": _try, "args": (stored, keys)}
            st.form_submit_button("Try", "Replays the query with this copy.", key="inspect:what_if:try", **begin)
            again: Any = {"icon": ":material/undo:", "on_click": start_again}
            st.form_submit_button("Start again", "Restores the stored values.", key="inspect:what_if:again", **again)


def _draw_fields(resources: Resources, keys: Mapping[str, str]) -> None:
    facets = resources.store.memories.facets()
    help = "The text that is embedded and searched, after the title."
    st.text_area("Text", key=keys["content"], height=150, help=help)
    title, session = st.columns([2, 1])
    title.text_input("Title", key=keys["title"], help=TITLE_HELP)
    session.text_input("Session", key=keys["session"], help="Assembly for diversity prefers one memory per session.")
    category, project, scope = st.columns(3)
    with category:
        optional_choice("Category", keys["category"], facets.categories, "Time decay can differ by category.")
    with project:
        optional_choice("Project", keys["project"], facets.projects, PROJECT_HELP)
    scope.selectbox("Scope", SCOPES, key=keys["scope"], help=SCOPE_HELP)
    created, accessed, accesses = st.columns(3)
    created.text_input("Created", key=keys["created_at"], help=DAY_HELP)
    accessed.text_input("Last accessed", key=keys["last_accessed"], help=DAY_HELP)
    accesses.number_input("Accesses", 0, None, key=keys["access_count"], help="Determines the rank in the access list.")
    priority, importance, *votes = st.columns(4)
    priority.number_input("Priority", 1.0, 2.0, step=0.1, key=keys["priority"], help="A factor in Adjust.")
    importance.selectbox("Importance", IMPORTANCE, key=keys["importance"], help="Fusion can add a bonus for high.")
    for box, name, sign in zip(votes, ("relevant", "noise"), ("Positive", "Negative"), strict=True):
        help = f"{sign} votes, for the feedback factor."
        box.number_input(f"Found {name}", 0, None, key=keys[f"{name}_count"], help=help)
    st.toggle("Pinned", key=keys["pinned"], help="Adjust multiplies the score of pinned memories.")


def _try(stored: Memory, keys: Mapping[str, str]) -> None:
    st.session_state[PROBLEM] = None
    try:
        typed = {name: st.session_state[key] for name, key in keys.items()}
        _tried()[stored.id] = edited_memory(stored, typed, LABELS)
    except InputError as error:
        st.session_state[PROBLEM] = (stored.id, str(error))


VIEW = View(
    "What if it were different?",
    14,
    draw,
    "What would another text, date or priority of one memory change, its absence, or a new memory?",
)
