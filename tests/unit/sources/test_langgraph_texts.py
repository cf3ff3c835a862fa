"""Which text of a value LangGraph embedded under a field_name, as langgraph-checkpoint 4.3.2 returned it for these values."""

from __future__ import annotations

import pytest

from workbench_stores.mapping import embedded_text

VALUE = {
    "b": "two",
    "a": 1,
    "flag": True,
    "none": None,
    "notes": [{"text": "x"}, {"text": "y"}],
    "one": [{"text": "z"}],
    "o": {"k": "v"},
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("b", "two"),
        ("a", "1"),
        ("flag", "True"),
        ("none", None),
        ("o", '{"k": "v"}'),
        ("o.k", "v"),
        ("notes[*].text.1", "y"),
        ("notes[*].text.2", None),
        ("notes[-1].text", "y"),
        ("one[*].text", "z"),
        ("one[*].text.0", None),
        ("{b,o.k}.1", "v"),
        ("o.*", "v"),
        ("missing", None),
        (
            "$",
            '{"a": 1, "b": "two", "flag": true, "none": null, "notes": [{"text": "x"}, {"text": "y"}], "o": {"k": "v"}, '
            '"one": [{"text": "z"}]}',
        ),
    ],
)
def test_text_at_a_field_name(name: str, text: str | None) -> None:
    assert embedded_text(VALUE, name) == text
