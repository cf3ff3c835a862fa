"""memories.csv: the fields of memories.jsonl as columns, read the way people's CSV files are."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.errors import InputError
from cems_workbench.formats import detect, read
from cems_workbench.formats.base.cells import guarded, restored
from cems_workbench.records import Memory

GOOD = Memory("good", "kept")


def problems(parsed):
    return [(error.row, error.field, error.reason) for error in parsed.errors]


def test_all_columns_in_any_order(write):
    header = (
        "content,id,title,category,project,session,author,tags,priority,pinned,importance,created_at,last_accessed,"
        "access_count,relevant_count,noise_count,scope,source_ref"
    )
    row = '"<b>a, b</b>",m1,T,c,p,s,a,x; y,1.5,Yes,high,2024-05-08T13:56:00+02:00,2024-05-09,3,2.0,0,shared,r'
    path = write("m.csv", header, row)
    parsed = read(path)
    assert parsed.memories == (
        Memory(
            "m1",
            "<b>a, b</b>",
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
        ),
    )
    assert (parsed.errors, parsed.notes, parsed.format) == ((), (), "memories-csv")


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
        ("tags", "[a", "begins like a JSON array but is not JSON: Expecting value at column 2"),
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
