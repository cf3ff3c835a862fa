"""Recorded answers and logs: what `cases/recordings.json` and `cases/exports.json` do not hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.errors import InputError
from cems_workbench.formats import FORMATS, log_format
from cems_workbench.records import Returned
from workbench_fidelity.recordings import parse_recording, read_recording
from workbench_tools.cems import searched


def test_a_file_that_is_not_text_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"answers": "\xff"}')
    with pytest.raises(InputError, match=r"a\.json:1: is not UTF-8"):
        read_recording(path)
    with pytest.raises(InputError, match="does not exist"):
        read_recording(tmp_path / "b.json")


KEYS = ["results", "id", "score", "content", "memory", "x"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("  \n", "it is empty"),
        ('{"answer": 42}', "has no list of results"),
        ("[1.5]", "no row of it can be used"),
        ('{"results": [', "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "no row of it can be used"),
    ],
)
def test_a_response_with_nothing_in_it_is_one_clear_line(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        parse_recording(text, "file.json")
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("file.json")


@given(
    st.text(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner),
        max_leaves=20,
    ).map(json.dumps)
)
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        recording = parse_recording(text)
    except InputError as error:
        assert "\n" not in str(error)
        return
    rows = [row for answer in recording.answers for row in answer.returned]
    assert all(isinstance(one, Returned) and (one.memory_id or one.content) for one in rows)
    assert all("\n" not in str(error) for error in recording.errors)


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("ok, so how do we deploy?", "so how do we deploy?"),
        ("see https://x.org/a why does it fail", "see why does it fail"),
        ("why does ```x = 1``` fail in the job", "why does fail in the job"),
        ("open /etc/hosts and explain the line", "open and explain the line"),
        ("what is `a_long_name_of_code` good for", "what is good for"),
        (" /etc/hosts ", "/etc/hosts"),
    ],
)
def test_the_query_is_what_the_hook_of_cems_searched(typed: str, sent: str) -> None:
    assert searched(typed) == sent


def test_what_is_no_log_is_not_taken_for_one(write) -> None:
    for row in ({"qid": "q1", "query": "x"}, {"id": "m", "content": "x"}, {"answers": []}, {"results": ["a"]}):
        assert log_format(write("a.jsonl", row)) is None
    assert log_format(write("a.jsonl", {"query": "x", "results": ["a"]})) == "query-log"
    assert log_format(Path("none.jsonl")) is None
    logs = {"cems-hook-events", "openinference-spans", "query-log"}
    assert {name for name, form in FORMATS.items() if form.answers} >= logs
