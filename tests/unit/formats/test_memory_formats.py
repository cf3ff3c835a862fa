"""Memories in every form: JSON lines, CSV, facts, messages, documents of CEMS, payloads of stores; a bad row costs itself alone."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.errors import InputError
from cems_workbench.formats import detect, read
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
from cems_workbench.records import Chunk, Memory, Query, Relation

GOOD_ROW = {"id": "good", "content": "kept"}


def problems(parsed):
    return [(error.row, error.field, error.reason) for error in parsed.errors]


def test_absent_null_and_blank_optional_fields_take_the_defaults(write):
    nulls = dict.fromkeys(["title", "tags", "priority", "pinned", "created_at", "access_count", "scope"])
    parsed = read(write("m.jsonl", {**GOOD_ROW, **nulls, "project": " "}))
    assert parsed.memories == (Memory("good", "kept"),)


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"content": None}, "content", "is missing"),
        ({"content": "  "}, "content", "is empty"),
        ({"content": 5}, "content", "must be a string, found a number"),
        ({"id": None}, "id", "is missing"),
        ({"id": ""}, "id", "is empty"),
        ({"id": True}, "id", "must be a string, found true or false"),
        ({"id": "a\u0000b"}, "id", "must not contain control characters"),
    ],
)
def test_a_row_without_an_id_or_content_costs_itself_alone(write, change, field, reason):
    parsed = read(write("m.jsonl", {"id": "bad", "content": "x", **change}, GOOD_ROW))
    assert parsed.memories == (Memory("good", "kept"),)
    assert problems(parsed) == [(1, field, reason)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"valid_until": "2024-05-01", "valid_from": "2024-05-02"}, "is before the memory is valid"),
        ({"title": ["x"]}, "must be a string, found a list"),
        ({"priority": "high"}, "must be a number 1.0–2.0, found 'high'"),
        ({"priority": 3}, "must be a number 1.0–2.0, found 3"),
        ({"priority": True}, "must be a number 1.0–2.0, found True"),
        ({"pinned": "yes"}, "must be true or false, found 'yes'"),
        ({"importance": "huge"}, "must be one of low, normal, high, found 'huge'"),
        ({"scope": ["shared"]}, "found a list"),
        ({"tags": ["a", 1]}, "must be a list of strings, found a list"),
        ({"access_count": -1}, "must be a whole number from 0, found -1"),
        ({"noise_count": 1.5}, "must be a whole number from 0, found 1.5"),
        ({"relevant_count": 10**30}, f"must be a whole number from 0, found {10**30}"),
        ({"created_at": "yesterday"}, "must be an ISO 8601 date or time such as"),
        ({"created_at": "2024-13-01"}, "must be an ISO 8601 date or time such as"),
        ({"created_at": "0001-01-01T00:00:00+10:00"}, "must be an ISO 8601 date or time such as"),
        ({"created_at": True}, "must be an ISO 8601 date or time such as"),
        ({"created_at": 1e300}, "is no time"),
    ],
)
def test_a_field_that_cannot_be_read_costs_the_field(write, change, reason):
    parsed = read(write("m.jsonl", {"id": "bad", "content": "x", **change}, GOOD_ROW))
    field = next(iter(change))
    memory = parsed.memories[0]
    assert len(parsed.memories) == 2 and getattr(memory, field) == getattr(Memory("bad", "x"), field)
    [error] = parsed.errors
    assert (error.row, error.field) == (1, field) and reason in error.reason
    assert error.reason.endswith("; the memory was taken without it")


def test_a_time_is_read_as_connect_reads_it(write):
    moment = datetime(2026, 1, 16, 10, tzinfo=UTC)
    seconds = 1768557600
    given = [seconds, seconds * 10**3, seconds * 10**6, seconds * 10**9, f"{seconds}", f"{seconds}000", f"{seconds}.0"]
    given += ["2026-01-16T10:00:00Z", "2026-01-16 10:00:00+00", "20260116T100000Z"]
    rows = [{"id": str(i), "content": "x", "timestamp": value} for i, value in enumerate(given)]
    parsed = read(write("m.jsonl", *rows))
    assert [memory.created_at for memory in parsed.memories] == [moment] * len(given) and parsed.errors == ()


def test_other_names_are_read_too_and_what_is_not_read_is_named(write):
    row = {**GOOD_ROW, "user_id": "kim", "metadata": {"category": "infra", "mood": 1}, "source": "cli", "mood": 2}
    parsed = read(write("m.jsonl", row))
    [memory] = parsed.memories
    assert (memory.author, memory.category, memory.source_ref) == ("kim", "infra", "cli")
    assert [note.split(" is")[0] for note in parsed.notes] == ["field 'metadata.mood'", "field 'mood'"]


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused(write, literal):
    rows = [f'{{"id": "{field}", "content": "x", "{field}": {literal}}}' for field in ("priority", "access_count")]
    parsed = read(write("m.jsonl", *rows, GOOD_ROW))
    assert [error.row for error in parsed.errors] == [1, 2]
    assert (parsed.memories[0].priority, parsed.memories[1].access_count) == (1, 0)


def test_lines_that_are_no_json_object_are_reported_where_they_stand(write):
    rows = ['{"id": "x", ', "[1]", '"text"', "null", "", GOOD_ROW, "[" * 100_000, '{"id": ' + "9" * 5000 + "}"]
    parsed = read(write("m.jsonl", *rows))
    assert len(parsed.memories) == 1
    assert [error.row for error in parsed.errors] == [1, 2, 3, 4, 7, 8]
    assert parsed.errors[1].reason == "must be a JSON object, found a list"
    assert parsed.errors[4].reason == "is nested too deeply"


def test_bytes_that_are_not_utf8_cost_their_line_alone(write):
    parsed = read(write("m.jsonl", b'{"id": "a", "content": "caf\xe9"}', GOOD_ROW))
    assert len(parsed.memories) == 1
    assert problems(parsed) == [(1, None, "is not UTF-8 (byte 0xe9 at position 28)")]


def test_half_a_surrogate_pair_is_not_text(write):
    for field in ("id", "content", "title"):
        row = {"id": "a", "content": "x", field: "\ud83e"}
        assert problems(read(write("m.jsonl", row, GOOD_ROW)))[0][1] == field
    assert problems(read(write("m.jsonl", {**GOOD_ROW, "id": "a", "tags": ["\udc00"]}, GOOD_ROW)))[0][1] == "tags"


def test_of_several_rows_with_one_id_the_first_is_kept(write):
    parsed = read(write("m.jsonl", GOOD_ROW, "", {**GOOD_ROW, "content": "second"}, GOOD_ROW))
    assert parsed.memories == (Memory("good", "kept"),)
    assert problems(parsed) == [(n, "id", "'good' stands already in row 1") for n in (3, 4)]


def test_unknown_fields_are_noted_once_each(write):
    parsed = read(write("m.jsonl", {**GOOD_ROW, "colour": 1}, {"id": "b", "content": "x", "colour": 2, "size": 3}))
    assert len(parsed.memories) == 2
    assert parsed.notes == (
        "field 'colour' is not known and was left out (2 rows)",
        "field 'size' is not known and was left out (1 rows)",
    )


def test_a_key_that_stands_twice_and_a_time_finer_than_a_microsecond_are_noted(write):
    parsed = read(
        write(
            "m.jsonl",
            '{"id": "a", "content": "first", "content": "last", "created_at": "2024-05-08T13:56:00.123456789Z"}',
            '{"id": "b", "content": "x", "created_at": "2024-05-08T13:56:00.123456000Z", "tags": []}',
        )
    )
    assert [(m.content, m.created_at.microsecond) for m in parsed.memories] == [("last", 123456), ("x", 123456)]
    assert parsed.notes == (
        "key 'content' stands more than once in an object; the last one counts (1 rows)",
        "times in 'created_at' are kept to the microsecond; finer digits were cut (1 rows)",
    )


def test_windows_line_ends_and_a_byte_order_mark_are_no_trouble(write):
    path = write("m.jsonl", b'\xef\xbb\xbf{"id": "good", "content": "kept"}\r', b"\r", b"")
    assert read(path).memories == (Memory("good", "kept"),)


def test_whole_numbers_are_ids_too(write):
    assert read(write("m.jsonl", {"id": 17, "content": "x"})).memories[0].id == "17"


def test_a_json_file_with_a_list_of_objects(write):
    path = write("m.json", [GOOD_ROW, 5, {"id": "b"}])
    parsed = read(path)
    assert parsed.memories == (Memory("good", "kept"),)
    assert problems(parsed) == [(2, None, "must be a JSON object, found a number"), (3, "content", "is missing")]


@pytest.mark.parametrize("text", ["[1, 2", "[" * 100_000, "5", b"\xff", "[" + "9" * 5000 + "]"])
def test_a_json_file_that_is_no_list_is_an_input_error(write, text):
    with pytest.raises(InputError, match=r"m\.json"):
        read(write("m.json", text), "memories-jsonl")


def test_line_numbers_of_the_kept_rows_are_remembered(write):
    parsed = read(write("m.jsonl", "broken", GOOD_ROW, "", {"id": "b", "content": "x"}))
    assert parsed.extra["rows"]["memories"] == [2, 4]


@pytest.mark.parametrize("forever", ["9999-12-31", "9999-12-31T23:59:59Z"])
def test_the_last_day_of_the_calendar_is_no_end(write, forever):
    assert read(write("m.jsonl", {**GOOD_ROW, "valid_until": forever})).memories == (Memory("good", "kept"),)


GOOD = Memory("good", "kept")


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_seen_in_the_header(write, delimiter):
    rows = [delimiter.join(cells) for cells in (["id", "title", "content"], ["good", "", "kept"])]
    path = write("m.csv", *rows)
    assert detect(path) == "memories-csv"
    assert read(path).memories == (GOOD,)


def test_header_names_may_be_in_capitals_and_a_bom_and_windows_line_ends_are_no_trouble(write):
    assert read(write("m.csv", b"\xef\xbb\xbfID, Content\r", b"good,kept\r", b"")).memories == (GOOD,)


def test_line_ends_of_an_old_mac(write):
    assert read(write("m.csv", "id,content\rgood,kept\r")).memories == (GOOD,)


def test_an_empty_cell_is_an_absent_field(write):
    header = "id,content,tags,priority,pinned,importance,created_at,access_count,scope,project"
    assert read(write("m.csv", header, "good,kept,,, ,,,,,")).memories == (GOOD,)


@pytest.mark.parametrize(
    ("cell", "tags"),
    [('"[""a;b"", ""c""]"', ("a;b", "c")), ("a;b", ("a", "b")), (" a ;; b;", ("a", "b")), ("[]", ()), ("a", ("a",))],
)
def test_tags_are_a_json_array_or_separated_by_semicolons(write, cell, tags):
    assert read(write("m.csv", "id,content,tags", f"a,x,{cell}")).memories[0].tags == tags


@pytest.mark.parametrize(("cell", "value"), [("true", True), ("1", True), ("YES", True), ("no", False), ("0", False)])
def test_booleans(write, cell, value):
    assert read(write("m.csv", "id,content,pinned", f"a,x,{cell}")).memories[0].pinned is value


@pytest.mark.parametrize(
    ("field", "cell", "reason"),
    [
        ("pinned", "maybe", "must be true or false, found 'maybe'"),
        ("priority", '"1,5"', "must be a number 1.0–2.0, found '1,5'"),
        ("priority", "nan", "must be a number 1.0–2.0, found 'nan'"),
        ("priority", "3", "must be a number 1.0–2.0, found 3"),
        ("access_count", "1e999", "must be a whole number from 0, found inf"),
        ("access_count", "-1", "must be a whole number from 0, found -1"),
        ("tags", '"[1, 2]"', "must be a list of strings, found a list"),
        ("tags", "[a", "begins like a list and is none"),
        ("importance", "huge", "must be one of low, normal, high, found 'huge'"),
        (
            "created_at",
            "05/08/2024",
            "must be an ISO 8601 date or time such as 2024-05-08T13:56:00Z, found '05/08/2024'",
        ),
    ],
)
def test_a_cell_that_cannot_be_read_costs_the_field(write, field, cell, reason):
    parsed = read(write("m.csv", f"id,content,{field}", f"bad,x,{cell}", "good,kept,"))
    assert parsed.memories == (Memory("bad", "x"), GOOD)
    assert problems(parsed) == [(2, field, f"{reason}; the memory was taken without it")]


def test_a_row_is_numbered_by_the_line_that_it_begins_in(write):
    parsed = read(write("m.csv", "id,content", 'a,"three', "lines", 'long"', "", "b,", "a,again", "c,x,y", "d"))
    assert parsed.memories == (Memory("a", "three\nlines\nlong"),)
    assert problems(parsed) == [
        (6, "content", "is missing"),
        (7, "id", "'a' stands already in row 2"),
        (8, None, "has 3 cells, the header has 2"),
        (9, None, "has 1 cells, the header has 2"),
    ]
    assert parsed.extra["rows"]["memories"] == [2]


def test_rows_without_any_value_are_counted_in_a_note(write):
    parsed = read(write("m.csv", "id,content", ",", "good,kept", " , ", ""))
    assert (parsed.memories, parsed.errors) == ((GOOD,), ())
    assert parsed.notes == ("2 rows have no value in any column and were left out",)


def test_unknown_columns_are_noted_once_each(write):
    parsed = read(write("m.csv", "id,colour,content,", "good,,kept,", "b,red,x,"))
    assert len(parsed.memories) == 2
    assert parsed.notes == (
        "field 'colour' is not known and was left out (2 rows)",
        "field 'column 4' is not known and was left out (2 rows)",
    )


@pytest.mark.parametrize(
    ("header", "missing"), [("id,title", "content"), ("title;content", "id"), ("a,b", "id and no column content")]
)
def test_a_header_without_a_required_column_names_it_and_the_known_ones(write, header, missing):
    with pytest.raises(InputError, match=f"has no column {missing}; known columns are id, content, title, "):
        read(write("m.csv", header, "1,2"), "memories-csv")


def test_a_column_that_stands_twice_is_an_input_error(write):
    with pytest.raises(InputError, match="has the column 'id' more than once"):
        read(write("m.csv", "id,content,ID", "1,2,3"))


def test_a_header_alone_is_a_file_without_memories(write):
    assert read(write("m.csv", "id,content")).memories == ()


def test_bytes_that_are_not_utf8_cost_their_row_alone(write):
    parsed = read(write("m.csv", "id,content", b"a,caf\xe9", "good,kept"))
    assert parsed.memories == (GOOD,)
    assert problems(parsed) == [(2, None, "is not UTF-8 (byte 0xe9)")]


def test_a_cell_may_be_larger_than_pythons_limit_for_cells(write):
    content = "x, y\n" * 400_000
    assert read(write("m.csv", "id,content", f'a,"{content}"')).memories[0].content == content


@pytest.mark.parametrize("quote", ['bad,"never closed', 'bad,"closed" too early'])
def test_a_broken_quote_takes_no_row_with_it(write, quote):
    parsed = read(write("m.csv", "id,content", "a,x", quote, "b,y", '"good","kept"'))
    assert [memory.id for memory in parsed.memories] == ["a", "b", "good"]
    assert [error.row for error in parsed.errors] == [3]
    assert "quote" in parsed.errors[0].reason


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


FACT = {"subject": "Mira", "predicate": "works on", "object": "harbor/api"}


def hashed(prefix, text):
    return f"{prefix}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def test_a_fact_is_read_as_a_sentence_with_an_id_from_what_it_says(write):
    parsed = read(write("x.jsonl", FACT))
    assert parsed.memories == (Memory(hashed("f", "Mira works on harbor/api"), "Mira works on harbor/api"),)
    assert (parsed.format, parsed.notes) == ("facts-jsonl", ())


def test_facts_of_graphiti_hold_from_valid_at_until_invalid_at_or_expired_at(write):
    rows = [
        FACT | {"id": "a", "valid_at": "2024-05-01", "invalid_at": "2024-06-01", "expired_at": "2024-07-01"},
        FACT | {"id": "b", "valid_at": None, "expired_at": "2024-07-01"},
        FACT | {"id": "c", "valid_at": "2024-05-01", "invalid_at": "2024-04-01"},
    ]
    parsed = read(write("x.jsonl", *rows))
    bounds = [(memory.valid_from, memory.valid_until) for memory in parsed.memories]
    months = [tuple(moment and moment.month for moment in both) for both in bounds]
    assert months == [(5, 6), (None, 7), (5, None)]
    assert [(row, field) for row, field, _ in problems(parsed)] == [(3, "invalid_at")]
    # Graphiti (graphiti-core 0.31.2, run on 2026-11-29) sets both, and expired_at is known: formats.md says so.
    said = "field 'expired_at' says valid_until, as another field of the row does, and was left out (1 rows)"
    assert parsed.notes == (said,)


@pytest.mark.parametrize("speaker", ["author", "speaker", "role"])
@pytest.mark.parametrize("words", ["content", "text"])
def test_a_message_is_read_as_its_author_says_it(write, speaker, words):
    path = write("x.jsonl", {speaker: "Ann", words: "Hello"})
    parsed = read(path)
    assert parsed.memories == (Memory(hashed("m", "Ann: Hello"), "Ann: Hello", author="Ann"),)
    assert (detect(path), parsed.notes) == ("messages-jsonl", ())


def test_the_same_word_said_again_is_another_message_only_at_another_time_or_place(write):
    rows = [{"role": "user", "text": "yes", "session": s, "created_at": t} for s in "ab" for t in ("2024", "2025")]
    dated = [{**row, "created_at": f"{row['created_at']}-01-01"} for row in rows]
    parsed = read(write("x.jsonl", *dated, dated[0]))
    assert len({memory.id for memory in parsed.memories}) == 4
    assert [row for row, _, _ in problems(parsed)] == [5]
    assert read(write("y.jsonl", *reversed(dated))).memories == tuple(reversed(parsed.memories))


def test_messages_that_say_nothing_are_reported(write):
    rows = [{"role": "user"}, {"text": "x"}, {"role": "a", "content": ["x"]}, {"role": 5, "text": "x"}]
    parsed = read(write("x.jsonl", *rows), "messages-jsonl")
    assert problems(parsed) == [
        (1, "content", "is missing, and so is text"),
        (2, "author", "is missing, and so is speaker and role"),
        (3, "content", "must be a string, found a list"),
        (4, "role", "must be a string, found a number"),
    ]


@pytest.mark.parametrize(
    ("row", "format"),
    [
        ({"id": "a", "content": "x", "author": "Ann"}, "memories-jsonl"),
        ({"id": "a", "content": "x", "author": "Ann", "title": "T"}, "memories-jsonl"),
        ({"id": "a", "content": "x", "speaker": "Ann"}, "messages-jsonl"),
        ({"id": "a", "text": "x", "author": "Ann"}, "messages-jsonl"),
        ({**FACT, "content": "x", "id": "a"}, "memories-jsonl"),
    ],
)
def test_a_memory_with_an_author_or_a_subject_stays_a_memory(write, row, format):
    assert detect(write("x.jsonl", row)) == format


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


@pytest.mark.parametrize(
    ("given", "day"),
    [
        ("2026", "2026-01-01"),
        (2026, "2026-01-01"),
        ("2026-03", "2026-03-01"),
        ("2026/3", "2026-03-01"),
        ("2026-Q3", "2026-07-01"),
        ("August 2026", "2026-08-01"),
        ("Sept. 2026", "2026-09-01"),
        ("2026-W20", "2026-05-11"),
        ("2026-13", None),
        ("Ma 2026", None),
        ("Summer 2026", None),
    ],
)
def test_a_date_with_less_precision_is_the_first_moment_of_its_period(given, day):
    """vectorize-io/hindsight#3893, 2026-08-30: one rule for a year, a month and a week."""
    memory, problems = memory_of("m", "text", {"created_at": given}, {})
    assert (memory.created_at, len(problems)) == (day and datetime.fromisoformat(f"{day}T00:00:00+00:00"), day is None)


USER = "6a1f0c52-8a55-4a0e-9d0c-000000000001"
DOCUMENT = {
    "id": "d1",
    "user_id": USER,
    "team_id": None,
    "scope": "shared",
    "category": "decision",
    "title": "T",
    "source": "hook",
    "source_ref": "project:harbor/api:src/app.py",
    "tags": ["a"],
    "content": "words",
    "created_at": "2024-05-08 13:56:00.12345+00",
    "updated_at": "2024-05-09T00:00:00Z",
    "deleted_at": None,
    "shown_count": 4,
    "last_shown_at": "2024-05-10T00:00:00Z",
    "relevant_count": 2,
    "noise_count": 1,
}


def contents(parsed):
    return {memory.id: memory.content for memory in parsed.memories}


def test_the_fields_of_a_document(write):
    parsed = read(write("x.jsonl", DOCUMENT))
    assert parsed.memories == (
        Memory(
            id="d1",
            content="words",
            title="T",
            category="decision",
            project="harbor/api",
            author=USER,
            tags=("a",),
            created_at=datetime(2024, 5, 8, 13, 56, 0, 123450, tzinfo=UTC),
            last_accessed=datetime(2024, 5, 10, tzinfo=UTC),
            access_count=4,
            relevant_count=2,
            noise_count=1,
            scope="shared",
            source_ref="project:harbor/api:src/app.py",
            updated_at=datetime(2024, 5, 9, tzinfo=UTC),
        ),
    )
    assert (parsed.format, parsed.errors, parsed.notes) == ("cems-export", (), ())


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("x.json", [[DOCUMENT]]),
        ("x.json", [DOCUMENT]),
        ("x.json", [{"documents": [DOCUMENT], "chunks": []}]),
        ("x.jsonl", [{"documents": [DOCUMENT]}]),
        ("x.txt", [DOCUMENT]),
    ],
)
def test_a_list_an_object_or_lines(write, name, rows):
    path = write(name, *rows)
    assert detect(path) == "cems-export"
    assert contents(read(path)) == {"d1": "words"}


@pytest.mark.parametrize(
    ("source_ref", "project"),
    [
        ("project:org/repo", "org/repo"),
        ("project:org/repo#12", "org/repo"),
        ("project:org/repo and more", "org/repo"),
        ("project:", None),
        ("slack:project:org/repo", None),
        (None, None),
    ],
)
def test_the_project_ends_at_a_colon_a_hash_or_a_blank(write, source_ref, project):
    assert read(write("x.jsonl", {**DOCUMENT, "source_ref": source_ref})).memories[0].project == project


@pytest.mark.parametrize(
    ("absent", "accessed"),
    [((), 10), (("last_shown_at",), 9), (("last_shown_at", "updated_at"), 8)],
)
def test_last_accessed_is_when_it_was_shown_or_updated_or_created(write, absent, accessed):
    row = {name: value for name, value in DOCUMENT.items() if name not in absent}
    assert read(write("x.jsonl", row)).memories[0].last_accessed.day == accessed


@pytest.mark.parametrize(("scope", "kept"), [("personal", "personal"), ("team", "shared"), ("company", "shared")])
def test_scopes_of_a_team_or_company_are_shared(write, scope, kept):
    assert read(write("x.jsonl", {**DOCUMENT, "scope": scope})).memories[0].scope == kept


def test_deleted_documents_are_left_out_and_counted(write):
    deleted = {**DOCUMENT, "deleted_at": "2024-06-01T00:00:00Z"}
    chunk = {"document_id": "d3", "content": "gone"}
    parsed = read(write("x.jsonl", {**deleted, "id": "d2"}, DOCUMENT, {**deleted, "id": "d3", "content": None}, chunk))
    assert contents(parsed) == {"d1": "words"}
    assert (parsed.errors, parsed.notes) == ((), ("2 deleted documents were left out",))


@pytest.mark.parametrize("place", ["seq", "chunk_index", "index"])
def test_a_document_without_content_has_that_of_its_chunks_in_their_order(write, place):
    chunks = [{"document_id": "d1", place: n, "content": f"part {n}"} for n in (10, 0, 2)]
    bare = {name: value for name, value in DOCUMENT.items() if name != "content"}
    joined = {"d1": "part 0\npart 2\npart 10"}
    assert contents(read(write("a.json", {"documents": [bare], "chunks": chunks}))) == joined
    assert contents(read(write("b.jsonl", chunks[0], bare, *chunks[1:]))) == joined
    assert contents(read(write("c.jsonl", {**bare, "content": " ", "chunks": chunks}))) == joined


def test_chunks_do_not_touch_a_document_with_content(write):
    parsed = read(write("x.jsonl", DOCUMENT, {"document_id": "d1", "seq": "broken", "content": 5}))
    assert (contents(parsed), parsed.errors) == ({"d1": "words"}, ())


def test_chunks_are_kept_as_they_are_in_the_order_of_their_places(write):
    chunks = [{"document_id": "d1", "seq": n, "content": text} for n, text in ((2, "two three"), (0, "one two"))]
    parsed = read(write("x.json", {"documents": [{**DOCUMENT, "content": "one two three"}], "chunks": chunks}))
    assert parsed.chunks == (Chunk("d1", 0, "one two", 0), Chunk("d1", 1, "two three", 4))


def test_a_chunk_that_is_not_in_its_document_has_no_start(write):
    parsed = read(write("x.jsonl", {**DOCUMENT, "chunks": ["other", "\ufffdds"]}))
    assert parsed.chunks == (Chunk("d1", 0, "other", None), Chunk("d1", 1, "\ufffdds", 2))


def test_a_document_with_a_chunk_without_text_is_left_to_the_store_to_cut(write):
    parsed = read(write("x.jsonl", {**DOCUMENT, "chunks": ["words", {"seq": 1, "embedding": [0.1]}]}))
    assert (parsed.chunks, parsed.errors) == ((), ())
    assert "1 documents have a chunk without text" in parsed.notes[0]


def test_rows_that_are_chunks_alone_make_their_document(write):
    rows = [{"document_id": "d", "id": f"c{n}", "seq": n, "content": f"p{n}", "title": "T"} for n in (1, 0)]
    parsed = read(write("x.jsonl", *rows))
    assert parsed.memories == (Memory("d", "p0\np1", "T"),)
    assert parsed.notes == ("1 documents are in the file only as chunks and were put together from them",)


def test_broken_rows_are_reported_where_they_stand(write):
    documents = [DOCUMENT, 5, {"id": "d2", "chunks": ["x", 5]}, {**DOCUMENT, "scope": "world"}, {"id": "d4"}, DOCUMENT]
    chunks = [{"document_id": "d2", "seq": -1, "content": "y"}, {"content": "z"}]
    parsed = read(write("x.json", {"documents": documents, "chunks": chunks}))
    assert contents(parsed) == {"d1": "words", "d2": "x"}
    assert problems(parsed) == [
        (1, "chunks[1].seq", "must be a whole number from 0, found -1"),
        (2, "documents[2]", "must be an object, found a number"),
        (2, "chunks[2].document_id", "is missing"),
        (3, "documents[3].chunks[2]", "must be an object or a string, found a number"),
        (4, "scope", "must be one of personal, shared, team, company, found 'world'"),
        (5, "content", "is missing"),
        (6, "id", "'d1' stands already in row 1"),
    ]


@pytest.mark.parametrize(
    "row",
    [
        {"id": "a", "content": "x", "project": "p", "user_id": "u"},
        {"id": "a", "content": "x", "tags": ["x"], "scope": "shared", "source_ref": "project:a/b"},
    ],
)
def test_a_row_of_memories_jsonl_is_no_cems_document(write, row):
    assert detect(write("x.jsonl", row)) == "memories-jsonl"


ANY = names_of(None)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        "data",
        "title",
        "tags",
        "created_at",
        "priority",
        "pinned",
        "scope",
        "metadata",
        "document_id",
        "chunk_index",
        "_node_content",
        "shown_count",
        "source",
        "importance",
    ]
)
NODE = json.dumps({"text": "", "text_resource": {"text": "of a node"}})


@pytest.mark.parametrize(
    ("document", "payload", "text"),
    [
        ("of Chroma", {"data": "another"}, "of Chroma"),
        (None, {"data": "of mem0", "hash": "x"}, "of mem0"),
        (None, {"page_content": "of LangChain", "metadata": {"text": "not this"}}, "of LangChain"),
        (None, {"content": "of Haystack", "meta": {}}, "of Haystack"),
        (None, {"_node_content": NODE, "doc_id": "d"}, "of a node"),
        (None, {"_node_content": json.dumps({"text": "older"})}, "older"),
        (None, {"_node_content": "no JSON"}, None),
        (None, {"metadata": {"text": "within"}}, "within"),
        ("  ", {"text": " "}, None),
        (None, {"text": 5}, None),
        (None, {}, None),
    ],
)
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


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"metadata": {"importance": 0.8}}, "metadata.importance"),
        ({"keywords": [1]}, "keywords"),
        ({"tags": "[1"}, "tags"),
        ({"timestamp": 1e300}, "timestamp"),
        ({"date": "last week"}, "date"),
        ({"scope": "galaxy"}, "scope"),
        ({"title": ["T"]}, "title"),
    ],
)
def test_a_value_that_does_not_fit_is_named_by_its_path_and_left_out(payload, field) -> None:
    memory, problems = memory_of_payload("1", "text", payload, ANY)
    assert [(each.memory_id, each.field) for each in problems] == [("1", field)]
    assert memory == memory_of_payload("1", "text", {}, ANY)[0]


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        ({"document_id": "d", "chunk_index": 3}, ("d", 3)),
        ({"doc_id": 5, "seq": "07"}, ("5", 7)),
        ({"metadata": {"parent_id": "p", "chunk_index": 2.0}}, ("p", 2)),
        ({"document_id": "d"}, None),
        ({"chunk_index": 3}, None),
        ({"document_id": "d", "chunk_index": -1}, None),
        ({"document_id": "d", "chunk_id": "abc"}, None),
        ({"document_id": "d", "chunk_index": True}, None),
        ({"document_id": "", "chunk_index": 1}, None),
        ({"document_id": {}, "chunk_index": 1}, None),
        ({"document_id": "d", "chunk_index": float("inf")}, None),
    ],
)
def test_a_chunk_names_its_document_and_its_number(payload, place) -> None:
    assert chunk_key(payload, ANY) == place


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


PAYLOADS = st.dictionaries(
    FIELDS | st.sampled_from(["metadata.title", "meta", "is_deleted", "other"]), JSON, max_size=6
)


@given(st.lists(PAYLOADS | PAYLOADS.map(lambda inner: {"title": "t", "metadata": inner}), min_size=2, max_size=6))
def test_a_layout_found_for_one_payload_holds_for_no_other(payloads: list[dict[str, Any]]) -> None:
    shared = names_of(None)
    for payload in payloads:
        alone = names_of(None)
        assert found_values(payload, shared) == found_values(payload, alone)
        assert unread(payload, shared) == unread(payload, alone)


def test_what_cannot_be_read_of_relations_and_of_wordings_is_said(write):
    ends = {"source_id": "a", "target_id": "b"}
    bad = [
        {**ends, "weight": 0.1},
        {**ends, "target_id": "c", "weight": 1.1},
        {**ends, "target_id": "a"},
        {"source_id": "a"},
    ]
    parsed = read(write("r.jsonl", ends, {**ends, "kind": "cites", "weight": 0.5}, *bad))
    assert parsed.relations == (Relation("a", "b"), Relation("a", "b", "cites", 0.5))
    assert [row[:2] for row in problems(parsed)] == [
        (3, "source_id, target_id, kind"),
        (4, "weight"),
        (5, "target_id"),
        (6, "target_id"),
    ]
    given = {"query": "when?", "searched": "when time", "engine_queries": {"lexical": "time"}}
    asked = read(write("q.jsonl", {"qid": "q1", **given}, {"qid": "q2", "queries": ["what?", "which one?"]}))
    assert asked.queries == (Query("q1", **given), Query("q2", "what?", wordings=("which one?",)))
    wrong = read(write("w.jsonl", {"qid": "a", "query": "x", "engine_queries": ["y"]}, {"qid": "b", "queries": [""]}))
    assert [row[:2] for row in problems(wrong)] == [(1, "engine_queries"), (2, "queries")]
