"""A saved link opened by somebody else, and undo and redo by their buttons and keys."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from .test_inspect import WAIT, order, search, settle

pytestmark = [pytest.mark.browser, pytest.mark.models]


def test_a_saved_link_shows_another_person_the_same_ranking_and_slider(page: Page) -> None:
    search(page)
    plain = order(page)
    slider = page.get_by_role("slider", name="Score blend")
    slider.focus()
    slider.press("End")
    expect(page.get_by_role("button", name="1 parameter changed · reset")).to_be_visible(timeout=WAIT)
    settle(page)
    page.get_by_role("button", name="Share").click()
    page.get_by_role("button", name="Save and make a link").click()
    page.get_by_text(re.compile(r"^http://localhost:\d+/?\?state=[a-z2-7]{8}$")).wait_for(timeout=WAIT)
    address = page.url
    assert re.search(r"\?state=[a-z2-7]{8}$", address)
    mine = order(page)
    assert mine != plain
    browser = page.context.browser
    assert browser is not None
    elsewhere = browser.new_context(viewport={"width": 1440, "height": 1000})
    try:
        other = elsewhere.new_page()
        other.goto(address)
        other.locator(".wb-result").first.wait_for(timeout=120_000)  # a second page on a busy machine
        settle(other)
        assert order(other) == mine
        expect(other.get_by_role("slider", name="Score blend")).to_have_attribute("aria-valuetext", "1.00")
        expect(other.get_by_role("button", name="1 parameter changed · reset")).to_be_visible(timeout=WAIT)
        assert other.url == address
        other.get_by_role("button", name="1 parameter changed · reset").click()
        expect(other.get_by_role("button", name="As in the preset")).to_be_visible(timeout=WAIT)
        settle(other)
        assert "state=" not in other.url, "the link is no longer what the page shows"
    finally:
        elsewhere.close()


def test_undo_and_redo_by_button_and_by_key(page: Page) -> None:
    search(page)
    before = order(page)
    slider = page.get_by_role("slider", name="Score blend")
    slider.focus()
    slider.press("End")
    changed = page.get_by_role("button", name="1 parameter changed · reset")
    expect(changed).to_be_visible(timeout=WAIT)
    settle(page)
    after = order(page)
    page.locator(".st-key-inspect-undo button:visible").click()
    expect(page.get_by_role("button", name="As in the preset")).to_be_visible(timeout=WAIT)
    settle(page)
    assert order(page) == before
    page.locator(".st-key-inspect-redo button:visible").click()
    expect(changed).to_be_visible(timeout=WAIT)
    settle(page)
    assert order(page) == after
    page.keyboard.press("Alt+z")
    expect(page.get_by_role("button", name="As in the preset")).to_be_visible(timeout=WAIT)
    settle(page)
    assert order(page) == before
