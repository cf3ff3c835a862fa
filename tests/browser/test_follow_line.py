"""A person clicks a line of the rank flow, and the page follows its memory."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from .pages import Inspect, Window, standing
from .test_inspect import QUERY

LAST_POINT = """(plot, id) => {
    const line = plot.data.find((line) => (line.hovertext || "").startsWith(`<b>${id}</b>`));
    const {xaxis, yaxis} = plot._fullLayout, box = plot.getBoundingClientRect();
    const x = Array.from(line.x).at(-1), y = Array.from(line.y).at(-1);
    return [box.x + xaxis._offset + xaxis.c2p(x), box.y + yaxis._offset + yaxis.c2p(y)];
}"""
"""The place on the screen of the last point of a memory's line."""


@pytest.mark.thorough
def test_a_click_on_a_line_of_the_rank_flow_follows_its_memory(window: Window) -> None:
    inspect = Inspect.open(window)
    first, *_ = inspect.search(QUERY)
    inspect.view("Rank flow")
    chart = inspect.page.locator('[class*="st-key-inspect-rank_flow"] .js-plotly-plot')
    chart.locator(".annotation-text").first.wait_for()
    chart.scroll_into_view_if_needed()
    standing(chart)
    place = chart.evaluate(LAST_POINT, first)
    inspect.page.mouse.move(*place)
    expect(chart.locator(".hoverlayer")).to_contain_text("fusion: rank")
    with window.rerun():
        inspect.page.mouse.click(*place)
    expect(inspect.page.locator(".wb-path code").first).to_have_text(first)
    expect(inspect.page.locator(".wb-sbs-followed .wb-sbs-text code")).to_have_text(first)
    expect(inspect.page.locator('[class*="st-key-inspect-rank_flow"] .annotation-text').first).to_contain_text("◆")
