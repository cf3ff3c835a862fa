"""The scratch copy of a memory: a form over what the ranking reads of it, checked by the rules of the import."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import streamlit as st

from cems_workbench.errors import InputError
from cems_workbench.formats.fields import FieldError
from cems_workbench.formats.memories_jsonl import parse_memory
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Memory
from cems_workbench.ui.memories_edit import DAY_HELP
from cems_workbench.ui.memories_escape import plain

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
"""Tags and author stand in no list and no factor, so they are not here."""
DATES = ("created_at", "last_accessed")
TEXTS = ("title", "session")
TRIED = "what_if:tried"
PROBLEM = "what_if:problem"


def tried(memory_id: str) -> Memory | None:
    """The edit of a memory that was last tried, None when there is none."""
    edits: dict[str, Memory] = st.session_state.setdefault(TRIED, {})
    return edits.get(memory_id)


def draw_form(resources: Resources, stored: Memory) -> None:
    """The form, with what was last tried in it; Try and Start again happen before the page is drawn again."""
    turn = st.session_state.setdefault("what_if:turn", 0)
    keys = {name: f"what_if:{turn}:{name}:{stored.id}" for name in LABELS}
    for name, value in _shown(tried(stored.id) or stored).items():
        st.session_state.setdefault(keys[name], value)
    with st.form(f"what_if:form:{turn}"):
        _fields(resources, keys)
        problem: tuple[str, str] | None = st.session_state.get(PROBLEM)
        if problem is not None and problem[0] == stored.id:
            st.error(plain(problem[1]), icon=":material/block:")
        with st.container(horizontal=True):
            st.form_submit_button(
                "Try", type="primary", key="what_if:try", on_click=_try, args=(stored, keys),
                help="Replays the query with this copy in the memory’s place. The store is not written.",
            )  # fmt: skip
            st.form_submit_button(
                "Start again", key="what_if:again", on_click=_start_again, args=(stored.id,), icon=":material/undo:",
                help="Back to the memory as it is stored.",
            )  # fmt: skip


def _fields(resources: Resources, keys: Mapping[str, str]) -> None:
    facets = resources.store.facets()
    st.text_area(
        "Text", key=keys["content"], height=150, help="What is embedded and searched, with the title before it."
    )
    title, session = st.columns([2, 1])
    title.text_input("Title", key=keys["title"], help="Stands before the text where the text does not begin with it.")
    session.text_input(
        "Session", key=keys["session"], help="Assembly for diversity shows one memory of a session first."
    )
    category, project, scope = st.columns(3)
    with category:
        _choice(
            "Category", keys["category"], [name for name, _ in facets.categories], "Time decay can differ by category."
        )
    with project:
        _choice(
            "Project",
            keys["project"],
            [name for name, _ in facets.projects],
            "Adjust compares it with the query’s project.",
        )
    scope.selectbox("Scope", ["personal", "shared"], key=keys["scope"], help="Query → Scope can leave one of them out.")
    created, accessed, accesses = st.columns(3)
    created.text_input("Created", key=keys["created_at"], help=DAY_HELP)
    accessed.text_input("Last accessed", key=keys["last_accessed"], help=DAY_HELP)
    accesses.number_input("Accesses", 0, None, key=keys["access_count"], help="Rank in the access list.")
    priority, importance, relevant, noise = st.columns(4)
    priority.number_input("Priority", 1.0, 2.0, step=0.1, key=keys["priority"], help="A factor of the score in Adjust.")
    importance.selectbox(
        "Importance", ["low", "normal", "high"], key=keys["importance"], help="Fusion can give high a bonus."
    )
    relevant.number_input(
        "Found relevant", 0, None, key=keys["relevant_count"], help="Votes for it, for the feedback factor."
    )
    noise.number_input(
        "Found noise", 0, None, key=keys["noise_count"], help="Votes against it, for the feedback factor."
    )
    st.toggle("Pinned", key=keys["pinned"], help="Adjust multiplies the score of pinned memories.")


def _choice(label: str, key: str, values: list[str | None], help: str) -> None:
    options = dict.fromkeys(value for value in [*values, st.session_state[key]] if value is not None)
    st.selectbox(
        label, list(options), index=None, key=key, accept_new_options=True, placeholder="none", help=f"{help} Type a new one."
    )  # fmt: skip


def _shown(memory: Memory) -> dict[str, Any]:
    """The values of the form's fields."""
    values: dict[str, Any] = {name: getattr(memory, name) for name in LABELS}
    for name in DATES:
        values[name] = _iso(values[name])
    for name in TEXTS:
        values[name] = values[name] or ""
    return values


def edited(memory: Memory, typed: Mapping[str, Any]) -> Memory:
    """The memory with what was typed; raises InputError with one line that names the field.

    A field that shows what is stored keeps its value exactly: browsers change line ends.
    """
    row: dict[str, Any] = {name: getattr(memory, name) for name in memory.__slots__} | {"tags": list(memory.tags)}
    for name in DATES:
        row[name] = None if row[name] is None else row[name].isoformat()
    before = _shown(memory)
    row |= {name: typed[name] for name in LABELS if _plain_ends(typed[name]) != _plain_ends(before[name])}
    try:
        return parse_memory(row)
    except FieldError as error:
        raise InputError(f"{LABELS.get(error.field, error.field)} {error.reason}") from error


def _plain_ends(value: Any) -> Any:
    return value.replace("\r\n", "\n").replace("\r", "\n") if isinstance(value, str) else value


def _iso(moment: datetime | None) -> str:
    return "" if moment is None else moment.isoformat().replace("+00:00", "Z")


def _try(stored: Memory, keys: Mapping[str, str]) -> None:
    try:
        st.session_state[TRIED][stored.id] = edited(stored, {name: st.session_state[key] for name, key in keys.items()})
    except InputError as error:
        st.session_state[PROBLEM] = (stored.id, str(error))
        return
    st.session_state[PROBLEM] = None


def _start_again(memory_id: str) -> None:
    """Forget what was tried; the fields get new keys, and with them the stored values."""
    st.session_state[TRIED].pop(memory_id, None)
    st.session_state[PROBLEM] = None
    st.session_state["what_if:turn"] += 1
