"""What if a memory were different, on the page: a scratch copy is edited and tried; the store does not change."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.ui.kit import session
from tests.sample import FAILING

from .inspect_page import choose_tool, order, search
from .pages import OpenPage, bodies, captions, drawn, field, html, plainly, press

pytestmark = [pytest.mark.models]
BETTER = "The browser eats all the RAM when it is left open until evening."


def open_tool(page: AppTest, query: str = FAILING) -> AppTest:
    return search(choose_tool(page, "What if it were different?"), query)


def test_the_first_judged_missing_memory_is_offered_with_its_stored_values(open_page: OpenPage) -> None:
    page = open_tool(open_page())
    stored = session.resources().store.memories.get("m089")
    assert stored is not None
    assert field(page, "text_area", "content").value == stored.content
    assert field(page, "number_input", "access_count").value == stored.access_count
    assert "Change a field and press Try" in captions(page)


def test_a_better_text_brings_the_copy_in_and_the_ranking_above_stays(open_page: OpenPage) -> None:
    page = open_tool(open_page())
    before = order(page)
    version = session.resources().store.content_version
    field(page, "text_area", "content").set_value(BETTER)
    field(page, "text_input", "created_at").set_value("2026-11-20")
    page = press(page, "inspect:what_if:try")
    outcome = html(page, "wb-line")
    assert "before not in the results." in outcome and "Changed: content" in outcome
    assert all(title in outcome for title in ("other results that move", "in the lists", "through the stages"))
    assert "lexical:0" in outcome and "assembly" in outcome
    assert "Exact: every rank" in captions(page)
    assert order(page) == before
    assert session.resources().store.content_version == version
    assert getattr(session.resources().store.memories.get("m089"), "content", "") != BETTER


def test_starting_again_brings_the_stored_values_back(open_page: OpenPage) -> None:
    page = open_tool(open_page())
    field(page, "text_area", "content").set_value(BETTER)
    page = press(page, "inspect:what_if:try")
    page = press(page, "inspect:what_if:again")
    stored = session.resources().store.memories.get("m089")
    assert stored is not None and field(page, "text_area", "content").value == stored.content
    assert not [body for body in bodies(page) if 'class="wb-line"' in body]


def test_what_was_tried_is_still_there_after_a_look_at_another_tool(open_page: OpenPage) -> None:
    page = open_tool(open_page())
    field(page, "text_area", "content").set_value(BETTER)
    page = press(page, "inspect:what_if:try")
    page.session_state["inspect:tool"] = "Why is it missing?"
    page.run()
    page.session_state["inspect:tool"] = "What if it were different?"
    page.run()
    assert not page.exception
    assert field(page, "text_area", "content").value == BETTER
    assert html(page, "wb-line")


def test_a_date_that_is_none_is_one_line_that_names_the_field(open_page: OpenPage) -> None:
    page = open_tool(open_page())
    field(page, "text_input", "created_at").set_value("yesterday")
    page = drawn(page.button(key="inspect:what_if:try").click().run())
    assert any("Created" in error.value for error in page.error)
    assert not [body for body in bodies(page) if 'class="wb-line"' in body]


def test_an_edit_that_changes_no_rank_says_that_the_others_stay(open_page: OpenPage) -> None:
    page = open_tool(open_page())
    field(page, "number_input", "access_count").set_value(3)
    page = press(page, "inspect:what_if:try")
    assert "other results that move" not in html(page, "wb-line")


def test_a_moved_slider_replays_the_copy_under_the_new_config(open_page: OpenPage) -> None:
    page = open_tool(open_page())
    field(page, "text_area", "content").set_value(BETTER)
    page = press(page, "inspect:what_if:try")
    first = [body for body in bodies(page) if 'class="wb-line"' in body]
    slider = next(one for one in page.slider if one.key and one.key.endswith(":fusion.k"))
    page = slider.set_value(5).run()
    assert not page.exception
    assert [body for body in bodies(page) if 'class="wb-line"' in body] != first


def test_markup_in_a_copy_is_shown_literally(open_page: OpenPage) -> None:
    page = open_tool(open_page())
    field(page, "text_input", "title").set_value("<script>alert(1)</script> **RAM**")
    page = press(page, "inspect:what_if:try")
    assert "&lt;script&gt;" in html(page, "wb-line")
    assert not [body for body in bodies(page) if "<script>alert" in body]


def test_without_judgments_it_asks_for_a_memory(open_page: OpenPage) -> None:
    page = open_tool(open_page(), "which egress addresses do customers allow")
    assert "Search for a memory, or follow one above" in captions(page)
    page = page.text_input(key="inspect:what_if:search").set_value("m089").run()
    page = press(page, "inspect:what_if:match:m089")
    assert field(page, "text_area", "content").value


@pytest.mark.thorough
def test_without_a_memory_another_comes_in_its_place_here_and_in_the_judged_queries(open_page: OpenPage) -> None:
    page = open_tool(open_page())
    first = order(page)[0]
    version = session.resources().store.content_version
    page.session_state["inspect:what_if:mode"] = "Without it"
    page = page.text_input(key="inspect:what_if:search").set_value(first).run()
    page = press(page, f"inspect:what_if:match:{first}")
    outcome = html(page, "wb-line")
    assert f"Without {first} (1st)" in outcome
    page = press(page, "inspect:what_if:set")
    outcomes = [body for body in bodies(page) if 'class="wb-line"' in body]
    assert f"Without {first}, " in outcomes[-1] and "judged queries change their first 10 results" in outcomes[-1]
    assert "nDCG@10" in outcomes[-1]
    assert session.resources().store.content_version == version


def test_a_note_that_does_not_exist_yet_is_ranked_and_a_wrong_text_is_one_line(open_page: OpenPage) -> None:
    page = open_tool(open_page())
    page.session_state["inspect:what_if:mode"] = "A new memory"
    page = drawn(page.run())
    page = drawn(page.button(key="inspect:what_if:new:try").click().run())
    assert [plainly(error.value) for error in page.error] == ["text: it is empty; write what the memory would say"]
    page.text_area(key="inspect:what_if:new:text").set_value(BETTER)
    page = press(page, "inspect:what_if:new:try")
    assert "This memory would be " in html(page, "wb-line")
    page.text_area(key="inspect:what_if:new:text").set_value("x" * 100_001)
    page = drawn(page.button(key="inspect:what_if:new:try").click().run())
    assert "at most 100,000 can be tried" in plainly(page.error[0].value)
