"""The tool "Blame" on the Inspect page: from a wrong answer to the stale memory behind it, and to the one that was lost."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.config import preset
from cems_workbench.ui.inspect import state
from tests.sample import MOVING, STAYING

from .inspect_page import config_of, order, search, set_config, tool
from .pages import OpenPage, all_html, bodies, buttons, captions, drawn, press

pytestmark = [pytest.mark.models]
TOOL = "Blame"
WRONG = "You are moving in November."


def said(page: AppTest, text: str) -> AppTest:
    page.text_area(key="inspect:blame:text").set_value(text)
    next(button for button in page.button if "Find the memories behind it" in button.label).click()
    return drawn(page.run())


def opened(open_page: OpenPage) -> AppTest:
    page = open_page()
    set_config(page, preset("workbench").config)
    page = tool(search(page.run(), MOVING), TOOL)
    assert "Paste the agent’s answer" in captions(page)
    return page


def test_a_wrong_answer_leads_to_the_stale_memory_and_to_its_successor(open_page: OpenPage) -> None:
    page = said(opened(open_page), WRONG)
    first = next(body for body in bodies(page) if "wb-blamed" in body)
    assert "<b>m249</b>" in first and "Moving</mark> in" in first
    assert "1st of 10 results" in first and f"superseded by {STAYING}" in first
    assert ">November</mark>" in first and f"<b>{STAYING}</b> Staying in our flat says otherwise" in first
    assert "inspect:blame:0:0:apply" in buttons(page)
    page = press(page, "inspect:blame:0:0:why")
    assert page.session_state[state.TOOL] == state.WHY_TOOL
    assert STAYING in all_html(page)


def test_the_successor_can_take_the_rank_of_the_stale_memory(open_page: OpenPage) -> None:
    page = opened(open_page)
    set_config(
        page,
        preset("workbench").config.model_copy(
            update={"assembly": preset("workbench").config.assembly.model_copy(update={"limit": 20})}
        ),
    )
    page = said(page.run(), WRONG)
    page = press(page, "inspect:blame:0:0:apply")
    assert config_of(page).supersession.mode == "follow"
    assert order(page)[0] == STAYING
    assert "m249" not in order(page)


@pytest.mark.parametrize(
    ("text", "line"), [("", "the text is empty"), ("November", "is one word"), ("When do we move?", "states nothing")]
)
def test_a_text_without_a_claim_is_refused_in_a_line(open_page: OpenPage, text: str, line: str) -> None:
    page = said(opened(open_page), text)
    assert [line in error.value for error in page.error] == [True]


def test_unsupported_and_hostile_and_long_texts_are_shown_as_such(open_page: OpenPage) -> None:
    page = said(opened(open_page), "You play the cello in an <img src=x onerror=alert(1)> orchestra. " * 40)
    drawn_html = all_html(page)
    assert "No memory supports this" in drawn_html and "<img" not in drawn_html
    assert "first 20 of 40 claims" in captions(page)
    assert not buttons(page, "inspect:blame:0")
