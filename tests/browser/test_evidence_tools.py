"""Text evidence, index check, expansion and diversity in a real browser, one after the other on one query."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from .test_inspect import WAIT, order, search, settle

pytestmark = [pytest.mark.browser, pytest.mark.models]
DEPLOY = "how do we roll back a failed deploy?"


def choose(page: Page, tool: str) -> None:
    page.locator(".st-key-inspect-tool").get_by_text(tool, exact=True).click()
    settle(page)


def test_the_four_tools_on_texts_answer_on_one_query(page: Page) -> None:
    search(page, DEPLOY)
    page.get_by_text("Why, and what if", exact=True).click()
    settle(page)

    choose(page, "Text evidence")
    expect(page.locator(".wb-terms tfoot")).to_contain_text("100 %", timeout=WAIT)
    mark = page.locator(".wb-whole mark").first
    expect(mark).to_have_css("text-decoration-line", "underline")  # colour is not the only sign
    page.get_by_role("button", name="Compare token by token").click()
    expect(page.locator(".wb-heat-text sup").first).to_be_visible(timeout=60_000)

    choose(page, "Index check")
    expect(page.get_by_text("Nothing was missed: vector:0 holds the 150 exactly nearest")).to_be_visible(timeout=WAIT)

    choose(page, "Expansion")
    page.get_by_placeholder("Type another way to ask for it").fill("undo a release")
    page.get_by_role("button", name="Search it too").click()
    expect(page.locator(".wb-ablation tbody tr")).to_have_count(2, timeout=WAIT)
    settle(page)

    choose(page, "Diversity")
    expect(page.locator(".wb-matrix tbody tr")).to_have_count(len(order(page)), timeout=WAIT)
    before = order(page)
    page.get_by_role("button", name="Apply: dedup.enabled on").click()
    expect(page.locator(".wb-duplicates")).to_contain_text("✕ taken", timeout=WAIT)
    settle(page)
    assert order(page) != before
