"""State of the Inspect page: the request, and opening the page from other pages."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
import streamlit as st

from cems_workbench.config import preset, with_values
from cems_workbench.pipeline.gather import Request
from cems_workbench.records import Query
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.share import present_page, read_saved

TYPED = with_values(preset("cems").config, {"expansion.backend": "manual"})
WHOLE = Request("who pays", "harbor/api", datetime(2026, 8, 1, 14, 30, tzinfo=UTC), True, ("who is billed", "payer"))


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """A new session."""
    values: dict[str, object] = {}
    monkeypatch.setattr(st, "session_state", values)
    return values


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pages that were switched to."""
    seen: list[str] = []
    monkeypatch.setattr(st, "switch_page", seen.append)
    return seen


def test_the_door_shows_the_very_request_that_was_given(pages: list[str]) -> None:
    state.open_in_inspect(WHOLE, TYPED)
    assert state.present_request() == WHOLE
    assert state.present_config() == TYPED
    assert pages == ["pages/inspect.py"]


def test_the_door_leaves_nothing_of_another_request(pages: list[str]) -> None:
    state.open_in_inspect(WHOLE, TYPED)
    state.switch_variants(Request("who pays"), frozenset({1}))
    state.open_in_inspect(Request("who pays"), TYPED)
    assert state.present_request() == Request("who pays")
    assert state.variants_off(Request("who pays")) == frozenset()


def test_the_door_pins_a_baseline_and_leaves_a_pinned_one_without(pages: list[str]) -> None:
    qmd = preset("qmd").config
    state.open_in_inspect(WHOLE, TYPED, ("qmd", qmd))
    state.open_in_inspect(WHOLE, TYPED)
    assert state.present().baseline == state.Baseline("qmd", qmd)


def test_the_config_that_the_door_sets_can_be_undone(pages: list[str]) -> None:
    before = state.present_config()
    state.open_in_inspect(WHOLE, TYPED)
    state.undo()
    assert state.present_config() == before


def test_the_moment_of_a_stored_query_counts_until_another_day_is_chosen(session: dict[str, object]) -> None:
    moment = datetime(2026, 8, 1, 14, 30, tzinfo=UTC)
    state.choose_query(Query("q1", "who pays", as_of=moment))
    assert session[state.AS_OF] == date(2026, 8, 1)
    assert state.written_request().as_of == moment
    session[state.AS_OF] = date(2026, 8, 2)
    assert state.written_request().as_of == datetime(2026, 8, 2, tzinfo=UTC)


def test_further_queries_are_searched_only_where_the_config_has_them_typed() -> None:
    state.write_request(WHOLE)
    request = state.present_request()
    assert request is not None and request.variants == ()
    assert state.written_request().variants == WHOLE.variants
    state.use_config(TYPED)
    assert state.present_request() == WHOLE


def test_a_saved_page_is_read_back_as_it_was() -> None:
    state.write_request(WHOLE)
    state.use_config(TYPED)
    state.switch_variants(WHOLE, frozenset({2}))
    state.follow("m003")
    saved = present_page(WHOLE)
    assert read_saved(saved.to_json()) == (saved, [])


def test_forgetting_the_store_keeps_what_is_set() -> None:
    state.write_request(WHOLE)
    state.use_config(TYPED)
    state.forget_store()
    assert state.present_request() is None
    assert state.written_request() == Request("")
    assert state.present_config() == TYPED


def test_what_a_stored_query_searches_as_given_goes_with_its_text_alone() -> None:
    given = Query("q", "who pays", searched="payer", engine_queries={"lexical": "pays"})
    state.choose_query(given)
    asked = state.present_request()
    assert asked is not None and (asked.searched, asked.engine_queries) == ("payer", {"lexical": "pays"})
    st.session_state[state.QUERY] = "who else"
    assert state.present_request() == Request("who else")
    st.session_state[state.QUERY] = "who pays"
    state.write_request(asked)
    assert state.present_request() == asked
    state.update(given=None)
    assert state.present_request() == Request("who pays")
    state.choose_query(Query("r", "who pays", wordings=("payer",)))
    again = state.present_request()
    assert state.present_config().expansion.backend == "none"
    assert again is not None and again.variants == ("payer",)
