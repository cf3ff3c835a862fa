"""A person types a query, moves a slider and sees the order change."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.sample import FAILING

from .pages import DRAWN, RESULT_ROW, WAIT, Inspect, Window

QUERY = "how many different doctors did I visit?"
STAGES = [
    "query",
    "expansion",
    "lists",
    "threshold",
    "fusion",
    "filter",
    "rerank",
    "adjust",
    "supersession",
    "gap",
    "dedup",
    "abstain",
    "assembly",
    "judge",
]

FADES = """() => { window.wbFades = {}; document.addEventListener("transitionrun", event => {
  for (const one of event.target.getAnimations()) { const {delay, duration} = one.effect.getTiming();
    if (delay) window.wbFades[event.target.dataset.testid ?? event.target.tagName] ??= duration; } }); }"""
"""Delay before a changed element is redrawn, in milliseconds, by kind of element."""


@pytest.fixture
def inspect(window: Window) -> Inspect:
    """A new session on the page."""
    return Inspect.open(window)


def test_a_query_shows_markup_literally_the_strip_and_ten_results_within_the_window_and_qmd_its_blend_table(
    inspect: Inspect,
) -> None:
    inspect.search("invoice memo script alert cross-site")
    assert inspect.page.locator(".wb-sbs script").count() == 0
    inspect.form("Cards")
    texts = " ".join(inspect.page.locator(".wb-text").all_text_contents())  # folded parts too
    assert "<script>alert(1)</script>" in texts
    assert inspect.page.locator(".wb-result script").count() == 0
    assert len(inspect.search(QUERY)) == 10
    assert inspect.page.locator(".wb-strip .wb-name").all_inner_texts() == STAGES
    for width in (900, 1440):
        inspect.window.resize(width, "light")
        inspect.window.expect_fit(f"{width} wide", ".wb-cell")
    inspect.form("Side by side")
    inspect.preset("qmd")
    expect(inspect.page.locator(".wb-cell", has_text="rerank")).not_to_contain_text("off", timeout=WAIT)
    inspect.view("Rerank")
    expect(inspect.page.get_by_text("candidates scored, 0 failed")).to_be_visible()


def test_what_a_run_may_change_is_faint_after_a_while_and_does_not_fade_frame_by_frame(inspect: Inspect) -> None:
    inspect.search(QUERY)
    inspect.page.evaluate(FADES)
    for number in range(20):  # a run that is over before the browser draws is not seen
        inspect.search(f"which doctor did I see, and when? {number}")
        found = inspect.page.evaluate("window.wbFades")
        if len(found) == 2:
            break
    assert found == {"stElementContainer": 0, "DETAILS": 0}


def test_sliders_change_the_order_in_groups_that_stay_open_and_reset_brings_it_back(inspect: Inspect) -> None:
    before = inspect.search(QUERY)
    inspect.window.slide("Score blend", "End")
    expect(inspect.changed(1)).to_be_visible()
    assert inspect.order() != before
    with inspect.window.rerun():
        inspect.page.get_by_text("Adjust", exact=True).first.click()
    inspect.window.slide("Half-life (days)", "ArrowRight")
    expect(inspect.changed(2)).to_be_visible()
    expect(inspect.page.get_by_role("slider", name="Half-life (days) ●")).to_be_visible()
    with inspect.window.rerun():
        inspect.changed(2).click()
    expect(inspect.changed(2)).to_be_hidden()
    assert inspect.order() == before


HIGH = {1440: 900, 900: 1200}
"""Height of the first screen by its width, in pixels."""
BOTTOM = "element => element.getBoundingClientRect().bottom"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_first_screen_has_query_strip_next_step_and_five_rows_without_scrolling(inspect: Inspect, scheme: str) -> None:
    page = inspect.page
    inspect.search(FAILING)
    for width, high in HIGH.items():
        page.set_viewport_size({"width": width, "height": high})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        inspect.window.settled()
        page.evaluate(DRAWN)
        bar = page.locator(".st-key-inspect-row_actions").evaluate("element => element.getBoundingClientRect().top")
        assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop") == 0
        for part in (
            inspect.query,
            page.locator(".wb-strip"),
            page.locator(".wb-next"),
            page.locator(RESULT_ROW).nth(4),
        ):
            assert part.evaluate(BOTTOM) < bar < high, (width, part)
        inspect.window.expect_fit(f"{width} wide", ".wb-next, .wb-cell")
