"""A memory in a form: untouched fields keep their exact values, edited ones are validated like an import."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cems_workbench.errors import InputError
from cems_workbench.records import Memory
from cems_workbench.ui.kit.forms import edited_memory, form_values
from cems_workbench.ui.memories.detail import LABELS

MEMORY = Memory(
    "m1",
    "one\r\ntwo\rthree\x00",
    title="T",
    tags=("a", "a", "b, c"),
    priority=1.333,
    project="p",
    author="Ada",
    created_at=datetime(2024, 5, 8, 13, 56, 1, 123456, tzinfo=UTC),
    valid_from=datetime(2024, 5, 8, tzinfo=UTC),
    access_count=7,
    source_ref="ref",
    scope="shared",
)


def test_a_form_that_nobody_touched_gives_the_same_memory_back():
    typed = form_values(MEMORY, LABELS)
    typed["content"] = typed["content"].replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")
    assert edited_memory(MEMORY, typed, LABELS) == MEMORY


def test_an_edit_changes_only_what_was_typed():
    after = edited_memory(
        MEMORY, {**form_values(MEMORY, LABELS), "title": " ", "last_accessed": "2024-06-01", "category": "fact"}, LABELS
    )
    assert (after.title, after.category, after.last_accessed) == (None, "fact", datetime(2024, 6, 1, tzinfo=UTC))
    assert (after.content, after.tags, after.author, after.access_count) == (MEMORY.content, MEMORY.tags, "Ada", 7)


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("content", "", "Content is empty"),
        ("priority", 3.0, "Priority must be a number"),
        ("created_at", "soon", "Created must be an ISO 8601"),
        ("valid_until", "2023-01-01", "Valid until must not be before Valid from, found"),
    ],
)
def test_an_edit_is_held_to_the_rules_of_the_import(field, value, line):
    with pytest.raises(InputError, match=line):
        edited_memory(MEMORY, {**form_values(MEMORY, LABELS), field: value}, LABELS)
