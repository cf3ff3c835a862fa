"""The edit form. What is typed is checked by the rules of the import, so that no form lets in what a file could not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import streamlit as st

from cems_workbench.errors import InputError
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.memories_jsonl import parse_memory
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Memory
from cems_workbench.ui.kit.escape import plain
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
}
DAY_HELP = "UTC, as 2024-05-08 or 2024-05-08T13:56:00Z; empty when unknown."


def shown(memory: Memory) -> dict[str, Any]:
    """The values of the form's fields."""
    values: dict[str, Any] = {name: getattr(memory, name) for name in LABELS}
    values["tags"] = list(dict.fromkeys(memory.tags))
    for name in ("created_at", "last_accessed"):
        values[name] = _iso(values[name])
    for name in ("title", "session"):
        values[name] = values[name] or ""
    return values


def edited(memory: Memory, typed: Mapping[str, Any]) -> Memory:
    """The memory with what was typed; raises InputError with one line that names the field.

    A field that nobody touched keeps its value exactly: browsers change line ends and drop what they cannot show.
    """
    before = shown(memory)
    row: dict[str, Any] = {name: getattr(memory, name) for name in memory.__slots__}
    row["tags"] = list(memory.tags)
    for name in ("created_at", "last_accessed"):
        row[name] = None if row[name] is None else row[name].isoformat()
    for name in LABELS:
        if not _same(before[name], typed[name]):
            row[name] = typed[name]
    try:
        return parse_memory(row)
    except FieldError as error:
        raise InputError(f"{LABELS.get(error.field, error.field)} {error.reason}") from error


def _same(before: Any, typed: Any) -> bool:
    """Whether a browser that was given `before` may give back `typed` without anybody's doing."""
    if isinstance(before, str) and isinstance(typed, str):
        return _as_browsers_have_it(before) == _as_browsers_have_it(typed)
    return bool(before == typed)


def _as_browsers_have_it(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")


def _iso(moment: datetime | None) -> str:
    return "" if moment is None else moment.isoformat().replace("+00:00", "Z")


def draw(resources: Resources, memory: Memory) -> None:
    """The form; saving and cancelling happen before the page is drawn again."""
    facets = resources.store.memories.facets()
    values, generation = shown(memory), state.present().generation
    keys = {name: f"memories:{generation}:{name}" for name in LABELS}
    for name, value in values.items():
        st.session_state.setdefault(keys[name], value)
    with st.form(f"memories:form:{generation}"):
        st.text_area(
            "Content", key=keys["content"], height=180, help="The text that is searched and given to the agent."
        )
        st.text_input("Title", key=keys["title"], help="A few words; searched together with the content.")
        left, right = st.columns(2)
        with left:
            _choice("Category", keys["category"], facets.categories, "What kind of memory it is, such as preference.")
        with right:
            _choice("Project", keys["project"], facets.projects, "The project it belongs to; empty for none.")
        left, right = st.columns(2)
        left.text_input("Session", key=keys["session"], help="The conversation it was written in.")
        right.selectbox("Scope", ["personal", "shared"], key=keys["scope"], help="Who may find it.")
        st.multiselect(
            "Tags", values["tags"], key=keys["tags"], accept_new_options=True, placeholder="type a tag",
            help="Words to find it by in this page. Type one and press Enter.",
        )  # fmt: skip
        left, right = st.columns(2)
        left.number_input(
            "Priority", 1.0, 2.0, step=0.1, key=keys["priority"], help="1 to 2: a factor of the score in searches."
        )
        right.selectbox("Importance", ["low", "normal", "high"], key=keys["importance"], help="How much it matters.")
        left, right = st.columns(2)
        left.text_input("Created", key=keys["created_at"], help=DAY_HELP)
        right.text_input("Last accessed", key=keys["last_accessed"], help=DAY_HELP)
        st.toggle("Pinned", key=keys["pinned"], help="A pinned memory is never dropped for its age.")
        if problem := state.present().problem:
            st.error(plain(problem), icon=":material/block:")
        with st.container(horizontal=True):
            st.form_submit_button(
                "Save", type="primary", key="memories:save", on_click=_save, args=(resources, memory, keys),
                help="Keep the changes; the search indexes follow.",
            )  # fmt: skip
            st.form_submit_button(
                "Cancel",
                key="memories:edit:cancel",
                on_click=state.edit,
                args=(False,),
                help="Leave the memory as it was.",
            )


def _choice(label: str, key: str, values: Sequence[tuple[str | None, int]], help: str) -> None:
    options = dict.fromkeys(value for value, _ in values if value is not None)
    present = st.session_state[key]
    if present is not None:
        options[present] = None
    st.selectbox(
        label,
        list(options),
        index=None,
        key=key,
        accept_new_options=True,
        placeholder="none",
        help=f"{help} Type a new one.",
    )


def _save(resources: Resources, memory: Memory, keys: Mapping[str, str]) -> None:
    try:
        after = edited(memory, {name: st.session_state[key] for name, key in keys.items()})
    except InputError as error:
        state.update(problem=str(error))
        return
    if state.save(resources, after, memory):
        st.toast("Saved", icon=":material/check:")
