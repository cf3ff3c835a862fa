"""Edit form of a memory."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from cems_workbench.errors import InputError
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import IMPORTANCE, Memory
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.memory_form import DAY_HELP, edited_memory, form_values, optional_choice
from cems_workbench.ui.memories import state

LABELS = {
    "content": "Content",
    "title": "Title",
    "category": "Category",
    "project": "Project",
    "session": "Session",
    "tags": "Tags",
    "priority": "Priority",
    "pinned": "Pinned",
    "importance": "Importance",
    "scope": "Scope",
    "created_at": "Created",
    "last_accessed": "Last accessed",
    "valid_from": "Valid from",
    "valid_until": "Valid until",
}


def draw(resources: Resources, memory: Memory) -> None:
    """Draw the form; its callbacks save or cancel before the rerun."""
    facets = resources.store.memories.facets()
    values, generation = form_values(memory, LABELS), state.present().generation
    keys = {name: f"memories:{generation}:{name}" for name in LABELS}
    for name, value in values.items():
        st.session_state.setdefault(keys[name], value)
    with st.form(f"memories:form:{generation}"):
        st.text_area(
            "Content", key=keys["content"], height=180, help="The text that is searched and passed to the agent."
        )
        st.text_input("Title", key=keys["title"], help="A few words; searched with the content.")
        left, right = st.columns(2)
        with left:
            optional_choice("Category", keys["category"], facets.categories, "Kind of memory, such as preference.")
        with right:
            optional_choice("Project", keys["project"], facets.projects, "Project of the memory; empty for none.")
        left, right = st.columns(2)
        left.text_input("Session", key=keys["session"], help="Conversation it was written in.")
        right.selectbox("Scope", ["personal", "shared"], key=keys["scope"], help="Who may find it.")
        st.multiselect(
            "Tags",
            values["tags"],
            key=keys["tags"],
            accept_new_options=True,
            placeholder="type a tag",
            help="Keywords for this page. Type one and press Enter.",
        )
        left, right = st.columns(2)
        left.number_input(
            "Priority", 1.0, 2.0, step=0.1, key=keys["priority"], help="1 to 2: a factor of the search score."
        )
        right.selectbox("Importance", IMPORTANCE, key=keys["importance"], help="How much it matters.")
        left, right = st.columns(2)
        left.text_input("Created", key=keys["created_at"], help=DAY_HELP)
        right.text_input("Last accessed", key=keys["last_accessed"], help=DAY_HELP)
        left, right = st.columns(2)
        left.text_input("Valid from", key=keys["valid_from"], help=f"From when on it holds. {DAY_HELP}")
        right.text_input("Valid until", key=keys["valid_until"], help=f"Expired from this moment on. {DAY_HELP}")
        st.toggle("Pinned", key=keys["pinned"], help="A pinned memory is never dropped because of its age.")
        if problem := state.present().problem:
            st.error(plain(problem), icon=":material/block:")
        with st.container(horizontal=True):
            st.form_submit_button(
                "Save",
                type="primary",
                key="memories:save",
                on_click=_save,
                args=(resources, memory, keys),
                help="Save the changes and refresh the search indexes.",
            )
            st.form_submit_button(
                "Cancel",
                key="memories:edit:cancel",
                on_click=state.edit,
                args=(False,),
                help="Discard the changes.",
            )


def _save(resources: Resources, memory: Memory, keys: Mapping[str, str]) -> None:
    try:
        typed = {name: st.session_state[key] for name, key in keys.items()}
        after = edited_memory(memory, typed, LABELS)
    except InputError as error:
        state.update(problem=str(error))
        return
    if state.save(resources, after, memory):
        st.toast("Saved", icon=":material/check:")
