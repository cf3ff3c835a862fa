"""memories.jsonl: the good rows are kept, the others named with line, field and what is allowed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import read
from cems_workbench.records import Memory

GOOD = {"id": "good", "content": "kept"}


def problems(parsed):
    return [(error.row, error.field, error.reason) for error in parsed.errors]


def test_all_fields_are_read(write):
    row = {
        "id": "m1",
        "content": "<script>text</script>",
        "title": "T",
        "category": "c",
        "project": "p",
        "session": "s",
        "author": "a",
        "tags": ["x", "y"],
        "priority": 1.5,
        "pinned": True,
        "importance": "high",
        "created_at": "2024-05-08T13:56:00+02:00",
        "last_accessed": "2024-05-09",
        "access_count": 3,
        "relevant_count": 2.0,
        "noise_count": 0,
        "scope": "shared",
        "source_ref": "r",
        "updated_at": "2024-05-10",
        "valid_from": "2024-05-01",
        "valid_until": "2024-06-01T12:00:00+02:00",
    }
    parsed = read(write("m.jsonl", row))
    assert parsed.memories == (
        Memory(
            "m1",
            "<script>text</script>",
            "T",
            "c",
            "p",
            "s",
            "a",
            ("x", "y"),
            1.5,
            True,
            "high",
            datetime(2024, 5, 8, 11, 56, tzinfo=UTC),
            datetime(2024, 5, 9, tzinfo=UTC),
            3,
            2,
            0,
            "shared",
            "r",
            datetime(2024, 5, 10, tzinfo=UTC),
            datetime(2024, 5, 1, tzinfo=UTC),
            datetime(2024, 6, 1, 10, tzinfo=UTC),
        ),
    )
    assert (parsed.errors, parsed.notes, parsed.format) == ((), (), "memories-jsonl")


def test_absent_null_and_blank_optional_fields_take_the_defaults(write):
    nulls = dict.fromkeys(["title", "tags", "priority", "pinned", "created_at", "access_count", "scope"])
    parsed = read(write("m.jsonl", {**GOOD, **nulls, "project": " "}))
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
    parsed = read(write("m.jsonl", {"id": "bad", "content": "x", **change}, GOOD))
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
    parsed = read(write("m.jsonl", {"id": "bad", "content": "x", **change}, GOOD))
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
    row = {**GOOD, "user_id": "kim", "metadata": {"category": "infra", "mood": 1}, "source": "cli", "mood": 2}
    parsed = read(write("m.jsonl", row))
    [memory] = parsed.memories
    assert (memory.author, memory.category, memory.source_ref) == ("kim", "infra", "cli")
    assert [note.split(" is")[0] for note in parsed.notes] == ["field 'metadata.mood'", "field 'mood'"]


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused(write, literal):
    rows = [f'{{"id": "{field}", "content": "x", "{field}": {literal}}}' for field in ("priority", "access_count")]
    parsed = read(write("m.jsonl", *rows, GOOD))
    assert [error.row for error in parsed.errors] == [1, 2]
    assert (parsed.memories[0].priority, parsed.memories[1].access_count) == (1, 0)


def test_lines_that_are_no_json_object_are_reported_where_they_stand(write):
    rows = ['{"id": "x", ', "[1]", '"text"', "null", "", GOOD, "[" * 100_000, '{"id": ' + "9" * 5000 + "}"]
    parsed = read(write("m.jsonl", *rows))
    assert len(parsed.memories) == 1
    assert [error.row for error in parsed.errors] == [1, 2, 3, 4, 7, 8]
    assert parsed.errors[1].reason == "must be a JSON object, found a list"
    assert parsed.errors[4].reason == "is nested too deeply"


def test_bytes_that_are_not_utf8_cost_their_line_alone(write):
    parsed = read(write("m.jsonl", b'{"id": "a", "content": "caf\xe9"}', GOOD))
    assert len(parsed.memories) == 1
    assert problems(parsed) == [(1, None, "is not UTF-8 (byte 0xe9 at position 28)")]


def test_half_a_surrogate_pair_is_not_text(write):
    for field in ("id", "content", "title"):
        row = {"id": "a", "content": "x", field: "\ud83e"}
        assert problems(read(write("m.jsonl", row, GOOD)))[0][1] == field
    assert problems(read(write("m.jsonl", {**GOOD, "id": "a", "tags": ["\udc00"]}, GOOD)))[0][1] == "tags"


def test_of_several_rows_with_one_id_the_first_is_kept(write):
    parsed = read(write("m.jsonl", GOOD, "", {**GOOD, "content": "second"}, GOOD))
    assert parsed.memories == (Memory("good", "kept"),)
    assert problems(parsed) == [(n, "id", "'good' stands already in row 1") for n in (3, 4)]


def test_unknown_fields_are_noted_once_each(write):
    parsed = read(write("m.jsonl", {**GOOD, "colour": 1}, {"id": "b", "content": "x", "colour": 2, "size": 3}))
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


def test_ten_megabytes_of_content(write):
    content = "x y " * 2_500_000
    assert read(write("m.jsonl", {"id": "a", "content": content})).memories[0].content == content


def test_whole_numbers_are_ids_too(write):
    assert read(write("m.jsonl", {"id": 17, "content": "x"})).memories[0].id == "17"


def test_a_json_file_with_a_list_of_objects(write):
    path = write("m.json", [GOOD, 5, {"id": "b"}])
    parsed = read(path)
    assert parsed.memories == (Memory("good", "kept"),)
    assert problems(parsed) == [(2, None, "must be a JSON object, found a number"), (3, "content", "is missing")]


@pytest.mark.parametrize("text", ["[1, 2", "[" * 100_000, "5", b"\xff", "[" + "9" * 5000 + "]"])
def test_a_json_file_that_is_no_list_is_an_input_error(write, text):
    with pytest.raises(InputError, match=r"m\.json"):
        read(write("m.json", text), "memories-jsonl")


def test_errors_print_as_one_line_with_file_and_line(write):
    path = write("m.jsonl", GOOD, {"id": "b", "content": "x", "pinned": 1})
    assert (
        str(read(path).errors[0])
        == f"{path}:2: pinned: must be true or false, found 1; the memory was taken without it"
    )


def test_line_numbers_of_the_kept_rows_are_remembered(write):
    parsed = read(write("m.jsonl", "broken", GOOD, "", {"id": "b", "content": "x"}))
    assert parsed.extra["rows"]["memories"] == [2, 4]


@pytest.mark.parametrize("forever", ["9999-12-31", "9999-12-31T23:59:59Z"])
def test_the_last_day_of_the_calendar_is_no_end(write, forever):
    assert read(write("m.jsonl", {**GOOD, "valid_until": forever})).memories == (Memory("good", "kept"),)
