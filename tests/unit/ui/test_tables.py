"""Tables of the app: height, cells, marked rows, and row selection."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from cems_workbench.ui.kit.tables import ROW_HEIGHT_PX, Column, arrow_table, draw_table

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
