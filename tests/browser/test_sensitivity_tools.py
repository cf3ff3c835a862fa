"""Sensitivity, Weight map and Effective weights with a real mouse: charts are drawn, and what is applied changes the ranking."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from .conftest import query_box
from .test_inspect import QUERY, order, settle

pytestmark = [pytest.mark.browser, pytest.mark.models]
SLOW = 150_000


def tool(page: Page, name: str) -> None:
    page.locator(".st-key-inspect-tool").get_by_text(name, exact=True).click(timeout=SLOW)


def test_a_segment_and_a_cell_of_the_map_are_applied_by_a_click(page: Page) -> None:
    query_box(page).fill(QUERY)
    query_box(page).press("Enter")
    page.locator(".wb-result").first.wait_for(timeout=SLOW)
    page.get_by_text("Why, and what if").click(timeout=SLOW)
    before = order(page)[:5]

    tool(page, "Sensitivity")
    expect(page.get_by_text(re.compile(r"\d+ breakpoints? from 0 to 3"))).to_be_visible(timeout=SLOW)
    chart = page.locator(".st-key-inspect-sensitivity-chart").first
    expect(chart.locator(".barlayer .point").first).to_be_visible(timeout=SLOW)
    expect(chart.locator(".scatterlayer .trace").first).to_be_attached()
    page.get_by_role("button", name=re.compile("^.*Set to ")).last.click(timeout=SLOW)
    expect(page.get_by_role("button", name="1 parameter changed · reset")).to_be_visible(timeout=SLOW)
    settle(page)
    assert order(page)[:5] != before

    tool(page, "Weight map")
    expect(page.get_by_text("first somewhere among")).to_be_visible(timeout=SLOW)
    plot = page.locator(".st-key-inspect-map-chart .nsewdrag").first
    plot.scroll_into_view_if_needed()
    size = plot.bounding_box()
    assert size is not None
    page.mouse.click(size["x"] + 0.9 * size["width"], size["y"] + 0.1 * size["height"])
    apply = page.get_by_role("button", name=re.compile("Apply Lexical weight"))
    expect(apply).to_be_visible(timeout=SLOW)
    apply.click()
    expect(page.get_by_role("button", name="2 parameters changed · reset")).to_be_visible(timeout=SLOW)

    tool(page, "Effective weights")
    expect(page.get_by_text("moved this ranking most")).to_be_visible(timeout=SLOW)
