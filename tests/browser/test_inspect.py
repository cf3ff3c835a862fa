"""A person types a query, moves a slider and sees the order change."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from .conftest import query_box

pytestmark = [pytest.mark.browser, pytest.mark.models]
QUERY = "how many different doctors did I visit?"
WAIT = 30_000


def search(page: Page, query: str = QUERY) -> None:
    query_box(page).fill(query)
    query_box(page).press("Enter")
    page.locator(".wb-result").first.wait_for(timeout=60_000)


def order(page: Page) -> list[str]:
    return page.locator(".wb-result .wb-facts code").all_inner_texts()


def settle(page: Page) -> None:
    """Until the server has finished the rerun that an interaction started."""
    page.wait_for_timeout(150)
    expect(page.locator('[data-testid="stApp"]')).to_have_attribute(
        "data-test-script-state", "notRunning", timeout=WAIT
    )


def test_typing_a_query_shows_the_strip_and_ten_results(page: Page) -> None:
    search(page)
    assert len(order(page)) == 10
    names = page.locator(".wb-strip .wb-name").all_inner_texts()
    assert names == [
        "query",
        "expansion",
        "lists",
        "threshold",
        "fusion",
        "filter",
        "rerank",
        "adjust",
        "gap",
        "dedup",
        "assembly",
        "judge",
    ]


def test_moving_a_slider_changes_the_order_and_reset_brings_it_back(page: Page) -> None:
    search(page)
    before = order(page)
    slider = page.get_by_role("slider", name="Score blend")
    slider.focus()
    slider.press("End")
    expect(page.get_by_role("button", name="1 parameter changed · reset")).to_be_visible(timeout=WAIT)
    settle(page)
    after = order(page)
    assert after != before
    page.get_by_role("button", name="1 parameter changed · reset").click()
    expect(page.get_by_role("button", name="1 parameter changed · reset")).to_be_hidden(timeout=WAIT)
    settle(page)
    assert order(page) == before


def test_a_group_stays_open_while_its_sliders_are_moved(page: Page) -> None:
    search(page)
    page.get_by_text("Adjust", exact=True).first.click()
    slider = page.get_by_role("slider", name="Half-life (days)")
    slider.wait_for(timeout=WAIT)
    slider.focus()
    slider.press("ArrowRight")
    expect(page.get_by_role("button", name="1 parameter changed · reset")).to_be_visible(timeout=WAIT)
    settle(page)
    expect(page.get_by_role("slider", name="Half-life (days) ●")).to_be_visible()


def test_choosing_qmd_reranks_and_shows_the_blend_table(page: Page) -> None:
    search(page)
    page.get_by_test_id("stSidebar").get_by_role("combobox").first.click()
    page.get_by_role("option", name="qmd").click()
    expect(page.locator(".wb-cell", has_text="rerank")).not_to_contain_text("off", timeout=60_000)
    settle(page)
    page.get_by_role("radio", name="Rerank").or_(page.get_by_text("Rerank", exact=True).last).first.click()
    expect(page.get_by_text("candidates scored, 0 failed")).to_be_visible(timeout=WAIT)


def test_every_view_can_be_opened(page: Page) -> None:
    search(page)
    for view, sign in (
        ("Stages", "Lists and stages"),
        ("Journey", "The rank of each memory in every list and stage"),
        ("Adjust", "Each factor multiplies the score"),
        ("Context", "tokens, assembled by"),
        ("Contributions", "What each list gave the first candidates"),
    ):
        page.get_by_text(view, exact=True).last.click()
        expect(page.get_by_text(sign).first).to_be_visible(timeout=WAIT)
        assert page.locator('[data-testid="stException"]').count() == 0


def test_markup_in_a_memory_is_shown_literally(page: Page) -> None:
    search(page, "invoice memo script alert cross-site")
    texts = " ".join(page.locator(".wb-text").all_inner_texts())
    assert "<script>alert(1)</script>" in texts
    assert page.locator(".wb-result script").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_legible_in_light_and_dark(page: Page, scheme: str) -> None:
    """Contrast of result text against its background is at least WCAG AA's 4.5."""
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.reload()
    query_box(page).wait_for(timeout=WAIT)
    search(page)
    contrast = page.evaluate(
        """() => {
          const rgb = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
          const light = c => { const [r, g, b] = c.map(v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
            return .2126 * r + .7152 * g + .0722 * b; };
          const text = getComputedStyle(document.querySelector('.wb-text')).color;
          const ground = getComputedStyle(document.querySelector('[data-testid="stApp"]')).backgroundColor;
          const [a, b] = [light(rgb(text)), light(rgb(ground))].sort((x, y) => y - x);
          return (a + .05) / (b + .05); }"""
    )
    assert contrast >= 4.5


@pytest.mark.parametrize("width", [900, 1440])
def test_nothing_overflows_the_window(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    search(page)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    overflowing = page.evaluate(
        "[...document.querySelectorAll('.wb-cell')].filter(cell => cell.scrollWidth > cell.clientWidth + 1).map(cell => cell.innerText)"
    )
    assert overflowing == []
