"""Memories in every form: JSON lines, CSV, facts, messages, documents of CEMS, payloads of stores; a bad row costs itself alone.

Recorded answers and logs: what `cases/recordings.json` and `cases/exports.json` do not hold.
"""

from __future__ import annotations

import csv
import io
import json
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.errors import InputError
from cems_workbench.formats import FORMATS, log_format, read
from cems_workbench.formats.base.csv_table import guarded, restored
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.memory_fields import OPTIONAL_FIELDS, SCOPES, SHARED_WORDS, memory_of
from cems_workbench.formats.base.payload import (
    canonical,
    chunk_key,
    found_values,
    names_of,
    text_of,
    unread,
    unread_note,
    used_names,
)
from cems_workbench.formats.base.payload import memory_of as memory_of_payload
from cems_workbench.records import Memory, Returned
from workbench_fidelity.recordings import parse_recording, read_recording
from workbench_tools.cems import searched

PAYLOADS = json.loads(Path(__file__).with_name("payloads.json").read_text("utf-8"))
"""By test: what systems write, and what is made of it."""
GOOD_ROW = {"id": "good", "content": "kept"}


def problems(parsed):
    return [(error.row, error.field, error.reason) for error in parsed.errors]


def test_lines_that_are_no_json_object_are_reported_where_they_stand(write):
    rows = ['{"id": "x", ', "[1]", '"text"', "null", "", GOOD_ROW, "[" * 100_000, '{"id": ' + "9" * 5000 + "}"]
    parsed = read(write("m.jsonl", *rows))
    assert len(parsed.memories) == 1
    assert [error.row for error in parsed.errors] == [1, 2, 3, 4, 7, 8]
    assert parsed.errors[1].reason == "must be a JSON object, found a list"
    assert parsed.errors[4].reason == "is nested too deeply"


@pytest.mark.parametrize("text", ["[1, 2", "[" * 100_000, "5", b"\xff", "[" + "9" * 5000 + "]"])
def test_a_json_file_that_is_no_list_is_an_input_error(write, text):
    with pytest.raises(InputError, match=r"m\.json"):
        read(write("m.json", text), "memories-jsonl")


def test_a_cell_may_be_larger_than_pythons_limit_for_cells(write):
    content = "x, y\n" * 400_000
    assert read(write("m.csv", "id,content", f'a,"{content}"')).memories[0].content == content


def test_a_file_full_of_broken_quotes_is_read_in_time_and_says_what_it_gave_up(write):
    parsed = read(write("m.csv", "id,content", *['p",q"r,"'] * 3_000))
    assert parsed.memories == ()
    assert "2980 lines were left out with it" in parsed.errors[-1].reason


@pytest.mark.parametrize("text", ["=1+1", "-2 °C", "+49", "@mira", "\tx", "'=1+1", "''=1", "＝1"])
def test_text_guarded_against_formula_injection_is_restored(write, text):
    line = io.StringIO()
    csv.writer(line).writerow(["a", guarded(text)])
    assert guarded(text) == f"'{text}"
    assert read(write("m.csv", "id,content", line.getvalue())).memories[0].content == text


@pytest.mark.parametrize("text", ["it's", "'quoted'", "''", "'", "a=b"])
def test_other_apostrophes_stay(write, text):
    assert guarded(text) == text
    assert read(write("m.csv", "id,content", f"a,{text}")).memories[0].content == text


@given(st.text(alphabet="'=+-@\t\r\na") | st.text())
def test_restoring_undoes_guarding(text):
    assert restored(guarded(text)) == text


MORNING = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("field", "values", "read"),
    [
        ("author", ["7", 7, Decimal(7)], "7"),
        ("session", [uuid.UUID(int=1), str(uuid.UUID(int=1))], str(uuid.UUID(int=1))),
        ("tags", [["a", None, " b ", ""], "a; b", "a,b", '["a", "b"]'], ("a", "b")),
        (
            "created_at",
            [
                MORNING,
                MORNING.replace(tzinfo=None),
                MORNING.astimezone(timezone(timedelta(hours=2))),
                MORNING.isoformat(),
                MORNING.timestamp(),
                MORNING.timestamp() * 1000,
            ],
            MORNING,
        ),
        ("updated_at", [date(2024, 1, 2), "2024-01-02"], datetime(2024, 1, 2, tzinfo=UTC)),
        ("access_count", [3, 3.0, "3", Decimal(3)], 3),
        ("priority", [1.5, "1.5", Decimal("1.5")], 1.5),
        ("pinned", [True, "true"], True),
        ("scope", SHARED_WORDS, "shared"),
        ("scope", ["personal", "private", "user"], "personal"),
        ("importance", ["high"], "high"),
        ("title", [None, "", "  "], None),
        ("importance", [None, " "], "normal"),
    ],
)
def test_the_forms_of_a_value_are_read_alike(field, values, read) -> None:
    for value in values:
        memory, problems = memory_of("1", "text", {field: value})
        assert (getattr(memory, field), problems) == (read, []), value


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("access_count", -4, "must be a whole number from 0, found -4"),
        ("access_count", "1.5", "must be a whole number from 0, found 1.5"),
        ("priority", "high", "must be a number 1.0–2.0, found 'high'"),
        ("priority", True, "must be a number 1.0–2.0, found True"),
        ("pinned", "yes", "must be true or false, found 'yes'"),
        ("scope", "galaxy", f"must be one of {', '.join(SCOPES)}, found 'galaxy'"),
        ("importance", 0.8, "must be one of low, normal, high, found 0.8"),
        ("tags", "[1", "begins like a list and is none"),
        ("title", ["T"], "must be a string, found a list"),
    ],
)
def test_a_value_that_no_memory_can_have_is_left_out_and_said(field, value, reason) -> None:
    memory, (problem,) = memory_of("1", "text", {field: value}, {field: "there"})
    assert memory == Memory("1", "text")
    assert (problem.memory_id, problem.field, problem.reason) == ("1", "there", reason)


def test_the_project_is_the_references_unless_it_is_there_itself() -> None:
    assert memory_of("1", "text", {"source_ref": "project:org/repo#7"})[0].project == "org/repo"
    assert memory_of("1", "text", {"source_ref": "project:org/repo", "project": "own"})[0].project == "own"


@pytest.mark.parametrize(("given", "day"), PAYLOADS["dates"])
def test_a_date_with_less_precision_is_the_first_moment_of_its_period(given, day):
    """vectorize-io/hindsight#3893, 2026-08-30: one rule for a year, a month and a week."""
    memory, problems = memory_of("m", "text", {"created_at": given}, {})
    assert (memory.created_at, len(problems)) == (day and datetime.fromisoformat(f"{day}T00:00:00+00:00"), day is None)


ANY = names_of(None)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_NAMES = "data title tags created_at priority pinned scope metadata "
_NAMES += "document_id chunk_index _node_content shown_count source importance"
FIELDS = st.sampled_from(_NAMES.split())


@pytest.mark.parametrize(("document", "payload", "text"), PAYLOADS["texts"])
def test_the_text_is_found_where_each_system_keeps_it(document, payload, text) -> None:
    assert text_of(document, payload, ANY) == text


def test_a_mapping_says_where_a_field_is() -> None:
    names = names_of({"content": "deep.er.body", "title": "headline"})
    payload = {"deep": {"er": {"body": "this"}}, "headline": "T", "title": "not this", "text": "nor this"}
    assert text_of("nor that", payload, names) == "this"
    assert memory_of_payload("1", "this", payload, names)[0].title == "T"
    assert text_of(None, {"text": "x"}, names) is None, "a name that was given is the only one"


@pytest.mark.parametrize(
    ("mapping", "line"),
    [
        (
            {"titel": "x"},
            r"mapping: titel is no field of a memory; did you mean title\? It may be one of content, title",
        ),
        ({"title": 5}, "mapping: title: must be the name of a field of the payload, found 5"),
        ({"title": ""}, "mapping: title: must be the name of a field of the payload, found ''"),
    ],
)
def test_a_mapping_that_does_not_fit_is_one_line(mapping, line) -> None:
    with pytest.raises(InputError, match=line):
        names_of(mapping)


def test_fields_are_known_by_their_names() -> None:
    payload = {
        "user_id": "ann",
        "run_id": 7,
        "memory_type": "fact",
        "labels": "a; b, c",
        "metadata": {"title": "T", "visibility": "team"},
        "createdAt": 1_700_000_000_000,
        "last_modified": "2026-01-02",
        "shown_count": 3,
        "source_ref": "project:org/repo#x",
        "importance": "high",
        "pinned": True,
        "priority": 1.5,
    }
    memory, problems = memory_of_payload("1", "text", payload, ANY)
    assert problems == []
    assert (memory.author, memory.session, memory.category, memory.tags) == ("ann", "7", "fact", ("a", "b", "c"))
    assert (memory.title, memory.scope, memory.project) == ("T", "shared", "org/repo")
    assert memory.created_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert memory.updated_at == datetime(2026, 1, 2, tzinfo=UTC)
    assert (memory.access_count, memory.importance, memory.pinned, memory.priority) == (3, "high", True, 1.5)


@pytest.mark.parametrize(("tags", "read"), [(["a", "b"], ("a", "b")), ('["a", "b"]', ("a", "b")), ("", ())])
def test_tags_are_a_list_or_a_text(tags, read) -> None:
    assert memory_of_payload("1", "text", {"tags": tags}, ANY)[0].tags == read


@pytest.mark.parametrize(("payload", "field"), PAYLOADS["misfits"])
def test_a_value_that_does_not_fit_is_named_by_its_path_and_left_out(payload, field) -> None:
    memory, problems = memory_of_payload("1", "text", payload, ANY)
    assert [(each.memory_id, each.field) for each in problems] == [("1", field)]
    assert memory == memory_of_payload("1", "text", {}, ANY)[0]


@pytest.mark.parametrize(("payload", "place"), PAYLOADS["places"])
def test_a_chunk_names_its_document_and_its_number(payload, place) -> None:
    assert chunk_key(payload, ANY) == (place and tuple(place))


@given(st.dictionaries(FIELDS, JSON, max_size=6), st.none() | st.text(max_size=20))
def test_any_payload_is_read_or_said_to_be_none(payload: dict[str, Any], document: str | None) -> None:
    chunk_key(payload, ANY)
    text = text_of(document, payload, ANY)
    if text is None:
        return
    try:
        memory, problems = memory_of_payload("1", text, payload, ANY)
    except FieldError as error:
        assert error.field == "content"
        return
    assert memory.content == text
    assert all("\n" not in each.reason for each in problems)
    assert memory.scope in ("personal", "shared") and 1 <= memory.priority <= 2


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=5))
def test_the_order_of_a_payload_does_not_matter(payload: dict[str, Any]) -> None:
    assert canonical(payload) == canonical(dict(reversed(payload.items())))


def test_the_name_that_most_rows_have_is_said() -> None:
    payloads = [{"user_id": "a"}, {"user_id": "b"}, {"author": "c"}, {"metadata": {"title": "T"}}]
    assert used_names(payloads, ANY) == {"author": "user_id", "title": "metadata.title"}


def test_an_object_is_a_field_only_if_a_mapping_says_so_and_is_named_among_what_is_not_read():
    payload = {"text": "x", "source": {"file": "a.md"}, "title": "T", "mood": 1, "metadata": {"line": 3}}
    names = names_of(None)
    memory, problems = memory_of_payload("1", "x", payload, names)
    assert (memory.title, memory.source_ref, problems) == ("T", None, [])
    assert unread_note(unread(payload, names)) == "not read: source, mood, metadata.line; a mapping can take them"
    assert memory_of_payload("1", "x", payload, names_of({"source_ref": "source.file"}))[0].source_ref == "a.md"


@given(st.dictionaries(FIELDS | st.just("metadata.title"), JSON, max_size=6), st.booleans())
def test_the_fields_that_are_found_at_once_are_those_found_one_by_one(payload: dict[str, Any], mapped: bool) -> None:
    names = names_of({"title": "metadata.title"} if mapped else None)
    paths, values = found_values(payload, names)
    assert paths == {field: path for field in OPTIONAL_FIELDS if (path := names.found(payload, field)) is not None}
    assert {field: values[field] for field in paths} == {field: names.value(payload, field) for field in paths}


OF_LAYOUTS = st.dictionaries(
    FIELDS | st.sampled_from(["metadata.title", "meta", "is_deleted", "other"]), JSON, max_size=6
)


@given(st.lists(OF_LAYOUTS | OF_LAYOUTS.map(lambda inner: {"title": "t", "metadata": inner}), min_size=2, max_size=6))
def test_a_layout_found_for_one_payload_holds_for_no_other(payloads: list[dict[str, Any]]) -> None:
    shared = names_of(None)
    for payload in payloads:
        alone = names_of(None)
        assert found_values(payload, shared) == found_values(payload, alone)
        assert unread(payload, shared) == unread(payload, alone)


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
