"""A small share of what benchmarks/fuzz.py mutates, always the same: whatever comes in is read, or refused by one line."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fuzz import Readers, Wrong, inputs, outcome
from cems_workbench.config import import_config
from cems_workbench.errors import InputError
from cems_workbench.pipeline import evidence_from

SHARE = {"import": 12, "bundle": 20, "config": 10, "link": 6}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
FIELDS = (
    "query",
    "as_of",
    "memories",
    "variants",
    "lists",
    "model_scores",
    "embeddings",
    "chunks",
    "relations",
    "tokens",
    "notes",
)


def test_what_was_mutated_is_read_or_refused_by_one_line(tmp_path, shared, monkeypatch):
    readers = Readers(tmp_path, shared / "golden")
    ended = [
        (kind, number, *outcome(partial(readers.read, kind, name, original, raw)))
        for kind, count in SHARE.items()
        for number, name, original, raw in inputs(readers, kind, 19, 0, count)
    ]
    original = dict(readers.seeds["import"])["memories.jsonl"]
    with monkeypatch.context() as patched:
        patched.setattr("benchmarks.fuzz.formats.read_path", lambda path: [])
        with pytest.raises(Wrong, match="rows lost"):  # a reader that loses rows would be found
            readers.read("import", "memories.jsonl", original, original)
    readers.store.close()
    assert not [row for row in ended if "WRONG" in row[2]]
    assert {row[2] for row in ended} == {"read", "refused"}


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES | st.dictionaries(st.text(max_size=3), VALUES, max_size=3)))
def test_no_values_make_a_bundle_or_a_config_end_in_a_traceback(values: dict[str, Any]) -> None:
    for read in (
        lambda: evidence_from(
            {"format": "cems-workbench-evidence/1", "query": "q", "memories": {"a": {"content": "x"}}} | values
        ),
        lambda: import_config(json.dumps(values)),
    ):
        try:
            read()
        except InputError as error:
            assert "\n" not in str(error)
