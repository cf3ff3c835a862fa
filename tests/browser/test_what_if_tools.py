"""What if it were different, effective weights, and against production, one after the other on one query in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from .test_evidence_tools import DEPLOY, choose
from .test_inspect import order, search, settle

pytestmark = [pytest.mark.browser, pytest.mark.models]
LONG_WAIT = 60_000


def test_a_copy_is_tried_weights_are_weighed_and_production_is_compared(page: Page) -> None:
    search(page, DEPLOY)
    found = order(page)
    page.get_by_text("Why, and what if", exact=True).click()
    settle(page)

    choose(page, "What if it were different?")
    box = page.get_by_placeholder("Any memory: words of it, or its id")
    box.fill(found[0])
    box.press("Enter")
    page.locator('[class*="st-key-inspect-what_if-match"] button').first.click()
    text = page.get_by_role("textbox", name="Text", exact=True)
    text.wait_for(timeout=LONG_WAIT)
    text.fill("something about gardening and nothing else")
    page.get_by_role("button", name="Try", exact=True).click()
    expect(page.locator(".wb-outcome")).to_be_visible(timeout=LONG_WAIT)
    assert order(page) == found  # the store, and the ranking above, stay as they are

    choose(page, "Effective weights")
    expect(page.get_by_text("with each part switched off alone")).to_be_visible(timeout=LONG_WAIT)

    choose(page, "Against production")
    pasted = page.get_by_role("textbox", name="What production returned")
    pasted.fill("\n".join([found[1], found[0], *found[2:5]]))
    pasted.press("Control+Enter")
    expect(page.get_by_text("They part at rank 1:")).to_be_visible(timeout=LONG_WAIT)
    assert page.get_by_test_id("stException").count() == 0
