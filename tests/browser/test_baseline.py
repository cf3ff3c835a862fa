"""A person pins a baseline, moves a slider, sees what it did to each rank, and follows a line of the rank flow."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from .test_inspect import WAIT, order, search, settle

pytestmark = [pytest.mark.browser, pytest.mark.models]


def open_baseline(page: Page) -> None:
    page.get_by_role("button", name=re.compile("Baseline")).first.click()
    settle(page)


def test_pin_move_a_slider_see_the_deltas_and_unpin(page: Page) -> None:
    search(page)
    before = order(page)
    expect(page.locator(".wb-delta")).to_have_count(0)
    open_baseline(page)
    page.get_by_role("button", name="Pin as baseline").click()
    expect(page.locator(".wb-against")).to_contain_text("no parameters differ", timeout=WAIT)
    settle(page)
    assert page.locator(".wb-result .wb-delta").all_inner_texts() == ["="] * len(before)
    slider = page.get_by_role("slider", name="Score blend")
    slider.focus()
    slider.press("End")
    expect(page.locator(".wb-against")).to_contain_text("1 parameter differs", timeout=WAIT)
    settle(page)
    after, deltas = order(page), page.locator(".wb-result .wb-delta").all_inner_texts()
    assert [delta == "new" for delta in deltas] == [memory_id not in before for memory_id in after]
    assert any(delta.startswith(("▲", "▼")) for delta in deltas)
    assert page.locator(".wb-gone code").all_inner_texts() == [
        memory_id for memory_id in before if memory_id not in after
    ]
    open_baseline(page)
    page.get_by_role("button", name="Unpin", exact=True).click()
    expect(page.locator(".wb-delta")).to_have_count(0, timeout=WAIT)
    settle(page)
    assert order(page) == after and page.locator(".wb-gone").count() == 0


def test_a_click_on_a_line_of_the_rank_flow_follows_its_memory(page: Page) -> None:
    search(page)
    page.locator(".st-key-inspect-view").get_by_text("Rank flow", exact=True).click()
    chart = page.locator('[class*="st-key-inspect-rank_flow"] .js-plotly-plot')
    chart.locator(".annotation-text").first.wait_for(timeout=WAIT)
    settle(page)
    first = order(page)[0]
    chart.scroll_into_view_if_needed()
    place = chart.evaluate(  # the last point of the line that is named first, on the screen
        """(plot, id) => {
            const line = plot.data.find((line) => (line.hovertext || "").startsWith(`<b>${id}</b>`));
            const {xaxis, yaxis} = plot._fullLayout, box = plot.getBoundingClientRect();
            const x = Array.from(line.x).at(-1), y = Array.from(line.y).at(-1);
            return [box.x + xaxis._offset + xaxis.c2p(x), box.y + yaxis._offset + yaxis.c2p(y)];
        }""",
        first,
    )
    page.mouse.move(*place)
    page.wait_for_timeout(200)
    expect(chart.locator(".hoverlayer")).to_contain_text("fusion: rank", timeout=WAIT)
    page.mouse.click(*place)
    expect(page.locator(".wb-path code").first).to_have_text(first, timeout=WAIT)
    expect(page.locator(".wb-result.wb-followed .wb-facts code")).to_have_text(first)
    expect(page.locator('[class*="st-key-inspect-rank_flow"] .annotation-text').first).to_contain_text(
        "◆", timeout=WAIT
    )
