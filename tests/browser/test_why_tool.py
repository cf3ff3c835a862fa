"""A person asks why a memory is missing, applies the change the page proposes, and sees the memory come in."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from .test_inspect import WAIT, order, search, settle

pytestmark = [pytest.mark.browser, pytest.mark.models]
RAM = "browser eats all the RAM if I leave it open until evening"


def test_a_missing_memory_is_searched_picked_and_brought_in(page: Page) -> None:
    search(page, RAM)
    before = order(page)
    page.get_by_text("Why, and what if", exact=True).click()
    page.get_by_text("Why is it missing?", exact=True).first.click()
    box = page.get_by_placeholder("Any memory: words of it, or its id")
    box.fill("useInvoiceStream opened a new EventSource")
    box.press("Enter")
    match = page.locator('[class*="st-key-inspect-why-match"] button').first
    match.wait_for(timeout=WAIT)
    memory_id = match.inner_text().split()[0]
    assert memory_id not in before[:5]
    match.click()
    expect(page.locator(".wb-sentence")).to_contain_text(memory_id, timeout=60_000)
    apply = page.get_by_role("button", name="Apply", exact=True).first
    apply.wait_for(timeout=WAIT)
    apply.click()
    expect(page.locator(".wb-sentence")).to_contain_text(f"{memory_id} is in the top 5", timeout=60_000)
    settle(page)
    assert memory_id in order(page)[:5]
    page.get_by_role("button", name="Take back").click()
    expect(page.get_by_role("button", name="Take back")).to_be_hidden(timeout=WAIT)
    settle(page)
    assert order(page) == before
