"""The expansion dictionary can be edited on the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.config import preset, with_values
from cems_workbench.pipeline.understanding import SHIPPED, read_dictionary
from cems_workbench.ui.inspect import toolbar
from cems_workbench.ui.kit import session

from .inspect_page import evidence_of, set_config, set_state

pytestmark = [pytest.mark.models]


def test_rows_become_entries_and_half_filled_rows_do_not() -> None:
    rows = [
        {"word": " wired ", "replacement": "plugged in"},
        {"word": "x", "replacement": None},
        {"word": None, "replacement": "y"},
    ]
    assert toolbar.entries_of(rows) == {"wired": "plugged in"}


def test_the_dictionary_opens_and_a_saved_entry_is_searched(open_page: Callable[..., AppTest]) -> None:
    page = open_page()
    set_config(
        page,
        with_values(
            preset("cems").config, {"expansion.backend": "dictionary", "expansion.skip_on_strong_signal.enabled": False}
        ),
    )
    page.session_state["inspect:dictionary"] = True
    page.text_input(key="inspect:query").set_value("is this wired up").run()
    assert not page.exception
    path: Path = session.resources().dictionary_path
    try:
        assert read_dictionary(path) == dict(SHIPPED)
        toolbar.write_dictionary(path, {"wired": "plugged in"})
        set_state(page, gathered=None)
        page.run()
        evidence = evidence_of(page)
        assert [variant.text for variant in evidence.variants] == ["is this wired up", "is this plugged in up"]
    finally:
        path.unlink(missing_ok=True)
