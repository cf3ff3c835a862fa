"""Text evidence, index check, expansion and diversity in a real browser, one after the other on one query."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from .pages import Inspect, Window

pytestmark = [pytest.mark.browser, pytest.mark.models]
DEPLOY = "how do we roll back a failed deploy?"


def test_the_four_tools_on_texts_answer_on_one_query(window: Window) -> None:
    inspect = Inspect.open(window)
    inspect.search(DEPLOY)

    inspect.tool("Text evidence")
    expect(inspect.page.locator(".wb-terms tfoot")).to_contain_text("100 %")
    mark = inspect.page.locator(".wb-whole mark").first
    expect(mark).to_have_css("text-decoration-line", "underline")  # colour is not the only sign
    window.press("Compare token by token")
    expect(inspect.page.locator(".wb-heat-text sup").first).to_be_visible()

    inspect.tool("Index check")
    expect(inspect.page.get_by_text("Nothing was missed: vector:0 holds the 150 exactly nearest")).to_be_visible()

    inspect.tool("Expansion")
    inspect.page.get_by_placeholder("Type the query in other words").fill("undo a release")
    window.press("Search this too")
    expect(inspect.page.locator(".wb-ablation tbody tr")).to_have_count(2)

    inspect.tool("Diversity")
    before = inspect.order()
    expect(inspect.page.locator(".wb-matrix tbody tr")).to_have_count(len(before))
    window.press(re.compile("Apply: dedup.enabled on"))
    expect(inspect.page.locator(".wb-duplicates").first).to_contain_text("✕ taken")
    assert inspect.order() != before
