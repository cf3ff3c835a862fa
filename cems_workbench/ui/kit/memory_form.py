"""Form fields of a memory: initial values, and the edited memory.

Input is validated by the rules of the import, so a form accepts exactly what a file may contain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import streamlit as st

from cems_workbench.errors import InputError
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.memories import parse_memory
from cems_workbench.records import Memory
from cems_workbench.ui.kit.html import excerpt

DATES = ("created_at", "last_accessed", "valid_from", "valid_until")
TEXTS = ("title", "session")
"""Optional text fields; a missing value is shown as an empty box."""
DAY_HELP = "UTC, as 2024-05-08 or 2024-05-08T13:56:00Z; empty when unknown."


def form_values(memory: Memory, labels: Mapping[str, str]) -> dict[str, Any]:
    """The initial values of a form's fields; `labels` maps field names to their labels."""
    values: dict[str, Any] = {name: getattr(memory, name) for name in labels}
    for name in labels:
        if name in DATES:
            values[name] = _typed_moment(values[name])
        elif name in TEXTS:
            values[name] = values[name] or ""
        elif name == "tags":
            values[name] = list(dict.fromkeys(memory.tags))
    return values


def edited_memory(memory: Memory, typed: Mapping[str, Any], labels: Mapping[str, str]) -> Memory:
    """The memory with the edited fields; raises InputError with one line that names the field.

    An untouched field keeps its exact value: browsers change line ends and drop characters they cannot show.
    """
    before = form_values(memory, labels)
    row: dict[str, Any] = {name: getattr(memory, name) for name in memory.__slots__}
    row["tags"] = list(memory.tags)
    for name in DATES:
        row[name] = None if row[name] is None else row[name].isoformat()
    for name in labels:
        if not _unedited(before[name], typed[name]):
            row[name] = typed[name]
    try:
        return parse_memory(row)
    except FieldError as error:
        raise InputError(f"{labels.get(error.field, error.field)} {_named(error.reason, labels)}") from error


def _named(reason: str, labels: Mapping[str, str]) -> str:
    """A reason that names another field, as the form calls it."""
    return reason.replace("valid_from", labels.get("valid_from", "valid_from"))


def optional_choice(label: str, key: str, values: Iterable[tuple[str | None, int]], help: str) -> None:
    """A select box of existing values (each with its count) that also accepts a new value or none."""
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


def _unedited(before: Any, typed: Any) -> bool:
    """Whether a browser that received `before` may return `typed` without an edit by the user."""
    if isinstance(before, str) and isinstance(typed, str):
        return _browser_text(before) == _browser_text(typed)
    return bool(before == typed)


def _browser_text(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")


def _typed_moment(moment: datetime | None) -> str:
    return "" if moment is None else moment.isoformat().replace("+00:00", "Z")


FIELDS = {
    "id": "Id of the memory in its store; select the row to see it in full.",
    "memory": "Title and first words of the content.",
    "category": "Kind of memory, such as preference or decision.",
    "project": "Project of the memory; empty: none.",
    "session": "Conversation it was written in.",
    "author": "Who said or wrote it.",
    "tags": "Keywords for this page.",
    "scope": "Who may find it: personal: only its owner; shared: everybody.",
    "created": "When it was written, UTC.",
    "last accessed": "When it was last returned to an agent, UTC.",
    "out of date": "By which memory it is superseded, and when it expired.",
    "valid from": "From when on it holds, UTC; empty: not known.",
    "valid until": "From this moment on it is expired, UTC; empty: not known to end.",
    "accesses": "How often it was returned to an agent.",
    "feedback": "How often it was marked relevant, and how often noise, after it was returned to an agent.",
    "priority": "1 to 2: a factor of the search score.",
    "importance": "How much it matters: low, normal or high.",
    "pinned": "A pinned memory is never dropped because of its age.",
    "source": "Where it was imported from, according to the file.",
    "length": "Characters of the content.",
}
"""Help text by field label."""


def title_and_text(memory: Memory) -> str:
    """Title and first words of the content, on one line."""
    return excerpt(f"{memory.title}: {memory.content}" if memory.title else memory.content)
