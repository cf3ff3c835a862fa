"""Across queries: what judged queries do with one memory, on Memories and Inspect; and hubs and orphans under Statistics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import streamlit
from streamlit.testing.v1 import AppTest

from cems_workbench.config import preset
from cems_workbench.formats import read
from cems_workbench.jobs.memory_use import UsesOf, uses_in_store
from cems_workbench.pipeline.gather import Request
from cems_workbench.store import Store
from cems_workbench.ui.inspect.state import WHY_TOOL
from cems_workbench.ui.kit import session
from cems_workbench.ui.memories import across
from tests.sample import store_with_set

from .inspect_page import config_of, search, tool
from .pages import OpenPage, captions, checked, markdown, plainly, press, table_with

pytestmark = [pytest.mark.models]
QUERIES = 12


@pytest.fixture(scope="module")
def small_store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store with a query set "few" of some of its answered queries."""
    return store_with_set(sample_store, tmp_path_factory.mktemp("across"), "few", QUERIES)


def uses(memory_id: str | None = None) -> UsesOf:
    """What the core counts under preset cems on the store that the page has open."""
    followed = () if memory_id is None else (memory_id,)
    return uses_in_store(preset("cems").config, session.resources(), "few", followed=followed)


def chosen(page: AppTest, key: str) -> AppTest:
    """Choose set and config in the panel, and gather what is missing."""
    page.selectbox(key=f"{key}:set").select("few").run()
    page.selectbox(key=f"{key}:config").select("cems").run()
    if any(button.key == f"{key}:gather" for button in page.button):
        press(page, f"{key}:gather")
    return checked(page)


def picked(page: AppTest, memory_id: str) -> AppTest:
    """Memories with a memory selected and its panel open."""
    page.session_state["memories:state"] = replace(page.session_state["memories:state"], selected=memory_id)
    page.session_state["memories:across"] = True
    return checked(page.run())


def wanted() -> str:
    """A memory that queries want, of which one loses it."""
    found = uses().uses
    return next(use.memory_id for use in found.uses.values() if use.wanted > use.found)


@pytest.mark.thorough
def test_a_memory_says_which_queries_want_return_and_lose_it(open_page: OpenPage, small_store: Path) -> None:
    page = open_page(small_store).switch_page("pages/memories.py").run()
    page = chosen(picked(page, "m001"), "memories:across")
    memory_id = wanted()
    page = picked(page, memory_id)
    found = uses(memory_id).uses
    assert found.sentence(memory_id) in markdown(page)
    shown, rows = table_with(page, "outcome"), found.rows[memory_id]
    assert list(shown["qid"]) == [row.query.qid for row in rows]
    assert list(shown["what happened"]) == [row.words for row in rows]


def test_a_query_picked_in_the_panel_opens_in_inspect_where_the_memory_is_explained(
    open_page: OpenPage, small_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(streamlit, "switch_page", opened.append)
    page = picked(open_page(small_store).switch_page("pages/memories.py").run(), "m001")
    # What the callback of a picked row leaves; AppTest has no hands for the rows of a table.
    asked = (Request("who is on call"), preset("recollection").config, ("m001", 7))
    page.session_state["memories:state"] = replace(page.session_state["memories:state"], opening=asked)
    checked(page.run())
    assert opened == ["pages/inspect.py"]
    assert page.session_state["inspect:query"] == "who is on call"
    assert page.session_state["inspect:why:chosen"] == ("who is on call", "m001")
    assert (page.session_state["inspect:tool"], page.session_state["inspect:why:k"]) == (WHY_TOOL, 7)
    assert config_of(page) == asked[1]
    checked(page.run())
    assert len(opened) == 1, "it is opened once"


def test_the_same_panel_is_a_tool_of_inspect(open_page: OpenPage, small_store: Path) -> None:
    page = tool(search(open_page(small_store)), "Across queries")
    assert "Follow a memory above" in captions(page)
    memory_id = wanted()
    page.session_state["inspect:across:chosen"] = (page.session_state["inspect:query"], memory_id)
    page = chosen(checked(page.run()), "inspect:across")
    assert uses(memory_id).uses.sentence(memory_id) in markdown(page)


def test_hubs_and_orphans_are_listed_on_request(open_page: OpenPage, small_store: Path) -> None:
    page = open_page(small_store).switch_page("pages/memories.py").run()
    page.session_state["memories:view"] = "Statistics"
    page.session_state["memories:hubs"] = True
    page = chosen(checked(page.run()), "memories:hubs")
    found = uses()
    assert found.orphans_sentence in captions(page) and found.hubs_sentence in captions(page)
    shown = table_with(page, "wanted")
    assert list(shown["memory"]) == [use.memory_id for use in found.orphans()[: across.MAX_LISTED]]


def test_many_queries_are_counted_on_request_only(
    open_page: OpenPage, small_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(across, "MAX_QUERIES_UNASKED", QUERIES - 1)
    page = open_page(small_store).switch_page("pages/memories.py").run()
    page = chosen(picked(page, "m002"), "memories:across")
    assert "m002 is" not in markdown(page)
    page = press(page, "memories:across:count")
    assert uses("m002").uses.sentence("m002") in markdown(page)
    assert uses("m002").uses.sentence("m002") in markdown(checked(page.run()))


def test_without_judgments_the_panel_says_what_is_missing(open_page: OpenPage, tmp_path: Path) -> None:
    notes = tmp_path / "notes.jsonl"
    notes.write_text('{"id": "a", "content": "Run make ship."}\n')
    with Store.open(tmp_path / "bare") as store:
        store.add(read(notes))
    page = picked(open_page(tmp_path / "bare").switch_page("pages/memories.py").run(), "a")
    assert "No query of this store is judged" in plainly(captions(page))
