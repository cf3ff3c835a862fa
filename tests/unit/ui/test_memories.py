"""Pure functions of the pages: texts, tables, forms, uploads, progress, stylesheets, a tuning result."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from cems_workbench.cli import terminal
from cems_workbench.errors import InputError
from cems_workbench.jobs.importing import import_files
from cems_workbench.jobs.tuning_summary import GainRow, stable_words, verdict
from cems_workbench.progress import Cancelled, silent
from cems_workbench.records import Memory, ParsedInput, Query
from cems_workbench.store import Store
from cems_workbench.tuning.holdout import Gain
from cems_workbench.tuning.learned import Region
from cems_workbench.tuning.space import Axis
from cems_workbench.ui.kit.forms import count_rows, edited_memory, errors_csv, form_values
from cems_workbench.ui.kit.html import ASSETS, JOINER, csv_bytes, excerpt, literal, plain, stylesheet, tick
from cems_workbench.ui.kit.tables import ROW_HEIGHT_PX, Column, arrow_table, draw_table
from cems_workbench.ui.kit.widgets import progress_text
from cems_workbench.ui.memories.page import COLUMNS, LABELS, columns, facts_html
from cems_workbench.ui.tune.result import axes_html, gains_html

MEMORY = Memory(
    "m1",
    "one\r\ntwo\rthree\x00",
    title="T",
    tags=("a", "a", "b, c"),
    priority=1.333,
    project="p",
    author="Ada",
    created_at=datetime(2024, 5, 8, 13, 56, 1, 123456, tzinfo=UTC),
    access_count=7,
    source_ref="ref",
    scope="shared",
)


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "＝1+1", "'=1"])
def test_cells_that_begin_a_formula_get_an_apostrophe(cell):
    rows = list(csv.reader(io.StringIO(csv_bytes(["a"], [[cell]]).decode("utf-8-sig"), newline="")))
    assert rows == [["a"], [f"'{cell}"]]


@pytest.mark.parametrize("cell", ["a=b", "", 3, -3, None])
def test_other_cells_stay_as_they_are(cell):
    assert csv_bytes(["a", "b"], [[cell, "x"]]).decode("utf-8-sig") == f"a,b\r\n{'' if cell is None else cell},x\r\n"


TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.mark.parametrize(
    "show", [plain, excerpt, tick, literal, terminal.literal, lambda text: facts_html(Memory("m", "t", author=text))]
)
def test_what_turns_text_round_is_shown_alike_by_pages_and_commands(show):
    shown = str(show(f"a{TURNING}b"))
    assert not set(TURNING) & set(shown) and f"a{9 * chr(0xFFFD)}b" in shown
    for ordinary in ("مرحبا 12", "שלום\u200f! 3\u200e"):
        assert ordinary.replace("!", "") in str(show(ordinary)).replace("\\", "").replace("!", "")


def test_plain_text_has_no_markdown_left():
    assert plain("**b** [l](u)\n# h `c` $x$") == r"\*\*b\*\* \[l\]\(u\) \# h \`c\` \$x\$"


@pytest.mark.parametrize("address", ["https://a.example/x", "www.a.example", "me@a.example"])
def test_a_bare_address_is_no_link(address):
    link = re.compile(r"(?:https?://|www\.)[-.\w]+|[-.\w+]+@[-\w]+\.[-\w]+")
    assert link.search(address)
    assert not link.search(plain(address).replace("\\", ""))
    assert plain(address).replace("\\", "").replace(JOINER, "") == address


def names(*of):
    return [column.name for column in columns(*of)]


def test_what_the_table_is_ordered_by_stands_beside_the_memory():
    assert names("accesses")[:3] == ["memory", "accesses", "author"]
    assert names("length")[1] == "length" and names("id")[:3] == ["memory", "id", "author"]
    assert sorted(names("created")) == sorted(column.name for column in COLUMNS)


def test_what_is_out_of_date_stands_beside_the_memory_only_if_a_row_visible_at_first_is():
    ids = [f"m{i}" for i in range(40)]
    assert names("created", ids, {"m3": "expired"})[:3] == ["memory", "created", "out of date"]
    assert names("created", ids, {"m30": "expired"}) == [*names("created"), "out of date"]
    assert names("created", ids, {}) == names("created")


def test_every_fact_of_a_memory_says_what_it_means():
    body = facts_html(MEMORY)
    assert body.count("<span") == body.count('<span title="')


EDITED = Memory(
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
    typed = form_values(EDITED, LABELS)
    typed["content"] = typed["content"].replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")
    assert edited_memory(EDITED, typed, LABELS) == EDITED


def test_an_edit_changes_only_what_was_typed():
    after = edited_memory(
        EDITED, {**form_values(EDITED, LABELS), "title": " ", "last_accessed": "2024-06-01", "category": "fact"}, LABELS
    )
    assert (after.title, after.category, after.last_accessed) == (None, "fact", datetime(2024, 6, 1, tzinfo=UTC))
    assert (after.content, after.tags, after.author, after.access_count) == (EDITED.content, EDITED.tags, "Ada", 7)


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
        edited_memory(EDITED, {**form_values(EDITED, LABELS), field: value}, LABELS)


def test_two_uploads_of_one_name_are_both_read(tmp_path):
    files = [
        ("a/x.jsonl", io.BytesIO(b'{"id":"1","content":"x"}')),
        ("..\\x.jsonl", io.BytesIO(b'{"id":"2","content":"=y"}\n{}')),
    ]
    with Store.open(tmp_path / "store") as store:
        outcomes = list(import_files(files, store, silent))
        assert store.memories.count() == 2
    assert [outcome.name for outcome in outcomes] == ["x.jsonl", "x.jsonl"]
    assert [len(outcome.report.errors) for outcome in outcomes] == [0, 1]
    assert str(tmp_path) not in errors_csv(outcomes).decode()


def test_a_cancelled_import_keeps_the_files_before(tmp_path):
    files = [(f"{i}.jsonl", io.BytesIO(b'{"id":"%d","content":"x"}' % i)) for i in range(3)]

    def cancel(label, done, total):
        if "1.jsonl" in label:
            raise Cancelled

    with Store.open(tmp_path / "store") as store:
        outcomes = []
        with pytest.raises(Cancelled):
            outcomes.extend(import_files(files, store, cancel))
        assert list(store.memories.read()) == ["0"]


def test_left_out_rows_are_counted_once_per_file(tmp_path):
    files = [("x.jsonl", io.BytesIO(b'{"id":"1","content":"x"}\n{}\nno json'))]
    with Store.open(tmp_path / "store") as store:
        ((name, report, kind, counts),) = count_rows(list(import_files(files, store, silent)))
    assert (name, len(report.errors), kind, counts.added) == ("x.jsonl", 2, "memories", 1)


def test_who_may_bring_no_labels_of_others_brings_their_own(tmp_path):
    rows = [
        ("q", {"memory_id": "m", "grade": 1, "judge": "ada", "kind": "human"}),
        ("q", {"memory_id": "n", "grade": 2, "judge": "bo", "kind": "human"}),
        ("q", {"memory_id": "n", "grade": 3, "judge": "ada", "kind": "model"}),
    ]
    labels = "\n".join(json.dumps({"qid": qid, **row}) for qid, row in rows).encode()
    files = [
        ("l.jsonl", io.BytesIO(labels)),
        ("l.qrels", io.BytesIO(b"q 0 n 0\n")),
        ("m.jsonl", io.BytesIO(b'{"id":"x","content":"x"}')),
    ]
    with Store.open(tmp_path / "store") as store:
        store.add(ParsedInput("s", "t", (Memory("m", "tea"), Memory("n", "milk")), queries=(Query("q", "drinks"),)))
        outcomes = {one.name: one.report for one in import_files(files, store, silent, judge="ada")}
        kept = {(one.memory_id, one.judge, one.kind, one.grade) for one in store.judgments.read()}
        assert store.memories.count() == 2
    assert kept == {("m", "ada", "human", 1), ("n", "ada", "human", 0)}
    assert [(error.row, error.field) for error in outcomes["l.jsonl"].errors] == [(2, "judge"), (3, "judge")]
    assert outcomes["m.jsonl"].notes == ("1 memories of the file were left out: an operator imports them",)


WHEN = datetime(2024, 5, 8, 13, 56, 1, 123456, tzinfo=UTC)
ROW: dict[str, Any] = {
    "id": "m\u202e1",
    "n": 3,
    "none": None,
    "day": WHEN.date(),
    "when": WHEN,
    "tags": ["x\u2066"],
    "n\u2066": "שלום",
}


@pytest.mark.parametrize(("most", "shown"), [(3, 3), (8, 3), (2, 2)])
def test_a_table_is_as_high_as_its_rows_and_scrolls_past_the_most(
    monkeypatch: pytest.MonkeyPatch, most: int, shown: int
) -> None:
    monkeypatch.setattr(st, "dataframe", lambda data, **options: options)
    rows = [{"memory": name} for name in "abc"]
    assert draw_table(rows, most=most)["height"] == (shown + 1) * ROW_HEIGHT_PX + 4  # with the header
    assert "height" not in draw_table(rows)
    assert draw_table(rows)["placeholder"] == ""  # not "None"
    assert draw_table([], most=most)["height"] == 2 * ROW_HEIGHT_PX + 4  # room to say that it is empty


def test_texts_are_shown_in_order_and_other_cells_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(st, "dataframe", lambda data, **options: data)
    (shown,) = draw_table([ROW]).to_pylist()
    assert shown == {
        "id": "m\ufffd1",
        "n": 3,
        "none": None,
        "day": WHEN.date(),
        "when": WHEN,
        "tags": ["x\ufffd"],
        "n\ufffd": "שלום",
    }


def test_what_is_not_a_number_is_empty_and_cells_of_several_types_are_texts() -> None:
    columns: list[Column[Any]] = [Column("a", lambda row: row[0]), Column("b", lambda row: row[1])]
    assert arrow_table([(float("nan"), 1), (0.5, "x")], columns).to_pydict() == {"a": [None, 0.5], "b": ["1", "x"]}


def test_a_marked_row_is_tinted_and_whole_numbers_stay_whole_beside_an_empty_cell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(st, "dataframe", lambda data, **options: data)
    columns: list[Column[Any]] = [Column("memory", lambda row: row[0]), Column("rank", lambda row: row[1])]
    styled = draw_table([("a", 1), ("b", None)], columns, marked=lambda row: row[0] == "b")
    assert styled.to_html().count("background-color") == 1
    assert [str(value) for value in styled.data["rank"]] == ["1", "<NA>"]


def test_a_column_is_drawn_as_it_is_declared() -> None:
    drawn = Column("difference", len, 78, "%+.3f", "Value minus baseline").config
    assert (drawn["label"], drawn["width"], drawn["help"]) == ("difference", 78, "Value minus baseline")
    assert drawn["type_config"]["format"] == "%+.3f"
    kinds = {"%.2f": "number", "YYYY-MM-DD": "date", "YYYY-MM-DD HH:mm": "datetime"}
    assert {form: Column("x", len, format=form).config["type_config"]["type"] for form in kinds} == kinds
    assert Column("x", len, bar=1).config["type_config"]["type"] == "progress"


def page(chosen: list[int]) -> AppTest:
    """A page with a table of three rows, of which these were chosen; it writes the one that is."""

    def draw() -> None:
        import streamlit as st

        from cems_workbench.ui.kit.tables import pick_row

        st.text(str(pick_row([{"memory": "a"}, {"memory": "b"}, {"memory": "c"}], key="rows")))

    drawn = AppTest.from_function(draw)
    drawn.session_state["rows"] = {"selection": {"rows": chosen, "columns": [], "cells": []}}
    return drawn.run()


@pytest.mark.parametrize(("chosen", "row"), [([], "None"), ([1], "{'memory': 'b'}"), ([3], "None")])
def test_a_row_that_is_gone_since_it_was_chosen_is_not_picked(chosen: list[int], row: str) -> None:
    assert page(chosen).text[0].value == row


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("embedding", 0, 2_000, 0.0), "embedding: 0 of 2,000"),
        (("embedding", 500, 2_000, 10.0), "embedding: 500 of 2,000 · about 30 s left"),
        (("embedding", 10, 2_000, 10.0), "embedding: 10 of 2,000 · about 33 min left"),
        (("embedding", 1_000, 2_000, 10.0, 500), "embedding: 1,000 of 2,000 · about 20 s left"),
        (("embedding", 2_000, 2_000, 10.0), "embedding: 2,000 of 2,000"),
        (("reading x", 50, 200, 0.1), "reading x: 25 %"),
        (("embedding", 0, 0, 0.0), "embedding"),
    ],
)
def test_progress_has_a_count_and_an_estimate(arguments: tuple[str, int, int, float], text: str) -> None:
    assert progress_text(*arguments) == text


def test_every_stylesheet_is_one_style_element_with_nothing_in_it_that_looks_like_a_tag() -> None:
    sheets = sorted(file.stem for file in ASSETS.glob("*.css"))
    assert sheets
    for sheet in sheets:
        body = stylesheet(sheet).strip().removeprefix("<style>").removesuffix("</style>")
        assert not re.findall(r"<[/\w!]", body), sheet
        assert body.count("{") == body.count("}"), sheet


def a_gain(low: float, high: float, p: float) -> Gain:
    middle = (low + high) / 2
    return Gain(40, 0.4, 0.4 + middle, low, high, p)


@pytest.mark.parametrize(
    ("low", "high", "p", "word"),
    [
        (0.01, 0.05, 0.01, "▲ better"),
        (-0.05, -0.01, 0.01, "▼ worse"),
        (-0.01, 0.05, 0.3, "not certain"),
        (0, 0, 1, "= same"),
    ],
)
def test_a_verdict_is_sign_and_certainty(low: float, high: float, p: float, word: str) -> None:
    assert verdict(a_gain(low, high, p)) == word


@pytest.mark.parametrize(
    ("region", "words"),
    [
        (Region("x", 0.5, 0.4, 1.2), "0.4 to 1.2"),
        (Region("x", 0.5, 0.0, 1.2, at_low_edge=True), "up to 1.2"),
        (Region("x", 0.5, 0.4, 3.0, at_high_edge=True), "from 0.4 on"),
        (Region("x", 0.5, 0.0, 3.0, True, True), "any value"),
        (Region("x", "max", choices=("max", "none")), "max, none"),
        (None, "–"),
    ],
)
def test_a_region_is_said_by_where_it_ends(region: Region | None, words: str) -> None:
    assert stable_words(region) == words


def test_names_and_values_are_shown_and_not_read() -> None:
    evil = "<img src=x onerror=alert(1)>"
    same = Axis("unchanged", choices=(1, 2))
    changed = axes_html([Axis("a", choices=(evil, "b")), same], [evil, "x"], [evil, 1], ["b", 1], [])
    assert "unchanged" not in changed
    table = changed + gains_html([GainRow(evil, evil, None, evil)], evil)
    assert "<img" not in table
