"""Tables of the app: height and row selection."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from cems_workbench.ui.kit.tables import ROW_HEIGHT_PX, draw_table

FRAME = pd.DataFrame({"memory": ["a", "b", "c"]})


@pytest.mark.parametrize(
    "rows", [FRAME.to_dict("records"), FRAME, FRAME.style.hide()], ids=["records", "frame", "styled"]
)
@pytest.mark.parametrize(("most", "shown"), [(3, 3), (8, 3), (2, 2)])
def test_a_table_is_as_high_as_its_rows_and_scrolls_past_the_most(
    monkeypatch: pytest.MonkeyPatch, rows: Any, most: int, shown: int
) -> None:
    monkeypatch.setattr(st, "dataframe", lambda data, **options: options)
    assert draw_table(rows, most=most)["height"] == (shown + 1) * ROW_HEIGHT_PX + 4  # with the header
    assert "height" not in draw_table(rows)
    assert draw_table([], most=most)["height"] == 2 * ROW_HEIGHT_PX + 4  # room to say that it is empty


def page(chosen: list[int]) -> AppTest:
    """A page with a table of three rows, of which these were chosen; it writes the place of the one that is."""

    def draw() -> None:
        import streamlit as st

        from cems_workbench.ui.kit.tables import pick_row

        st.text(str(pick_row([{"memory": "a"}, {"memory": "b"}, {"memory": "c"}], key="rows")))

    drawn = AppTest.from_function(draw)
    drawn.session_state["rows"] = {"selection": {"rows": chosen, "columns": [], "cells": []}}
    return drawn.run()


@pytest.mark.parametrize(("chosen", "place"), [([], "None"), ([1], "1"), ([3], "None")])
def test_a_row_that_is_gone_since_it_was_chosen_is_not_picked(chosen: list[int], place: str) -> None:
    assert page(chosen).text[0].value == place
