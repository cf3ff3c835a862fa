"""What if it were different, effective weights, and against production, one after the other on one query in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from .pages import Inspect, Window
from .test_evidence_tools import DEPLOY

pytestmark = [pytest.mark.browser, pytest.mark.models]


def test_a_copy_is_tried_weights_are_weighed_and_production_is_compared(window: Window) -> None:
    inspect = Inspect.open(window)
    order = inspect.search(DEPLOY)

    inspect.tool("What if it were different?")
    window.type(inspect.page.get_by_placeholder("Any memory: words of it, or its id"), order[0])
    with window.rerun():
        inspect.page.locator('[class*="st-key-inspect-what_if-match"] button').first.click()
    inspect.page.get_by_role("textbox", name="Text", exact=True).fill("something about gardening and nothing else")
    window.press("Try")
    expect(inspect.page.locator(".wb-outcome")).to_be_visible()
    assert inspect.order() == order  # the store, and the ranking above, stay as they are

    inspect.tool("Effective weights")
    expect(inspect.page.get_by_text("with each part switched off alone")).to_be_visible()

    inspect.tool("Against production")
    pasted = inspect.page.get_by_role("textbox", name="What production returned")
    pasted.fill("\n".join([order[1], order[0], *order[2:5]]))
    with window.rerun():
        pasted.press("Control+Enter")
    expect(inspect.page.get_by_text("They differ from rank 1:")).to_be_visible()
    window.expect_no_error()
