"""A person asks why a memory is missing, applies the change the page proposes, and sees the memory come in."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.sample import FAILING

from .pages import Inspect, Window


@pytest.mark.thorough
def test_a_missing_memory_is_searched_picked_and_brought_in(window: Window) -> None:
    inspect = Inspect.open(window)
    before = inspect.search(FAILING)
    inspect.tool("Why is it missing?")
    window.type(
        inspect.page.get_by_placeholder("Any memory, by text or id"),
        "useInvoiceStream opened a new EventSource",
    )
    match = inspect.page.locator('[class*="st-key-inspect-why-match"] button').first
    memory_id = match.inner_text().split()[0]
    assert memory_id not in before
    with window.rerun():
        match.click()
    sentence = inspect.page.locator(".wb-sentence")
    expect(sentence).to_contain_text(memory_id)
    report = window.report()
    assert f"Why {memory_id} is missing" in report and FAILING in report
    window.press(re.compile("^Apply "))
    expect(sentence).to_contain_text(f"{memory_id} is in the top 10")
    assert memory_id in inspect.order()
    window.press("Undo this change")
    expect(inspect.page.get_by_role("button", name="Undo this change")).to_be_hidden()
    assert inspect.order() == before
