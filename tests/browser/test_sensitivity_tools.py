"""Sensitivity of one parameter and of two, and Effective weights with a real mouse: charts, and applied values that change the ranking."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from .pages import Inspect, Window, standing
from .test_inspect import QUERY


@pytest.mark.thorough
def test_a_segment_and_a_cell_of_the_map_are_applied_by_a_click(window: Window) -> None:
    inspect = Inspect.open(window)
    before = inspect.search(QUERY)[:5]

    inspect.tool("Sensitivity")
    expect(inspect.page.get_by_text(re.compile(r"\d+ breakpoints? from 0 to 3"))).to_be_visible()
    chart = inspect.page.locator(".st-key-inspect-sensitivity-chart").first
    expect(chart.locator(".barlayer .point").first).to_be_visible()
    expect(chart.locator(".scatterlayer .trace").first).to_be_attached()
    with window.rerun():
        inspect.page.get_by_role("button", name=re.compile("^.*Set to ")).last.click()
    expect(inspect.changed(1)).to_be_visible()
    assert inspect.order()[:5] != before

    second = inspect.page.get_by_role("combobox", name="Second parameter")
    second.fill("RRF k")
    with window.rerun():
        second.press("Enter")
    expect(inspect.page.get_by_text("first somewhere among")).to_be_visible()
    plot = inspect.page.locator(".st-key-inspect-map-chart .nsewdrag").first
    plot.scroll_into_view_if_needed()
    size = standing(plot)
    with window.rerun():
        inspect.page.mouse.click(size["x"] + 0.9 * size["width"], size["y"] + 0.1 * size["height"])
    window.press(re.compile("Apply Lexical weight"))
    expect(inspect.changed(2)).to_be_visible()

    inspect.tool("Effective weights")
    expect(inspect.page.get_by_text("has the largest effect on this ranking")).to_be_visible()
