"""A walk over all pages, views and tools of the app; yields the name of each step while its page is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from playwright.sync_api import Locator, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from .hostile import TOPIC, evil
from .pages import Inspect, Window

HOVERED = 1_500
"""Milliseconds that a tooltip has to appear."""
VIEWS = '[data-testid="stButtonGroup"]'


def inspect(window: Window) -> Iterator[str]:
    """A search, a result that is followed, every view and every tool."""
    page = Inspect.open(window)
    page.search(evil(0, TOPIC))
    with window.rerun():
        window.page.locator(f".st-key-inspect-row_actions {VIEWS} button").first.click()
    yield "Inspect"
    yield from _views(window, window.page.locator(".st-key-inspect-view"), "Inspect")
    page.section("Why, and what if")
    yield from _views(window, window.page.locator(".st-key-inspect-tool"), "Inspect")
    window.page.locator(".st-key-inspect-more button:visible").click()
    others = window.page.get_by_role("menuitem").all_inner_texts()
    window.page.keyboard.press("Escape")
    for name in others:
        page.tool(name)
        yield f"Inspect: {name}"


def memories(window: Window) -> Iterator[str]:
    """A memory that is opened, and every view."""
    window.open("memories")
    window.pick_row(window.table())
    yield "Memories: a memory"
    yield from _views(window, window.page.locator(VIEWS).first, "Memories")


def label(window: Window) -> Iterator[str]:
    """A card, before a reviewer whose name is an attack, and every view."""
    window.open("label")
    window.type(window.page.get_by_test_id("stTextInputField").first, evil(9, "by"))
    window.page.locator(".wb-card").wait_for()
    yield from _views(window, window.page.locator(VIEWS).first, "Label")


def evaluate(window: Window) -> Iterator[str]:
    """Two configs that are gathered, every view of them, a kept one, and the recorded answers."""
    window.open("evaluate")
    gather = window.page.get_by_role("button", name="Gather", exact=True)
    gather.click()
    expect(gather).to_have_count(0)
    window.settled()
    yield from _views(window, window.page.locator(VIEWS).nth(1), "Evaluate")
    window.pick_row(window.table())
    yield "Evaluate: kept"
    window.view("Recorded answers")
    yield "Evaluate: recorded"


def tune(window: Window) -> Iterator[str]:
    """Every view; in the history a config is opened."""
    window.open("tune")
    yield from _views(window, window.page.locator(VIEWS).first, "Tune")
    window.pick_row(window.table())
    yield "Tune: kept"


PAGES: Mapping[str, Callable[[Window], Iterator[str]]] = {
    page.__name__: page for page in (inspect, memories, label, evaluate, tune)
}


def tooltips(window: Window) -> Iterator[str]:
    """The text of every tooltip of the page; covered elements show none."""
    for target in window.page.get_by_test_id("stTooltipHoverTarget").all():
        if target.is_visible():
            shown = window.page.get_by_test_id("stTooltipContent").last
            try:
                target.hover(timeout=HOVERED)
                shown.wait_for(timeout=HOVERED)
            except PlaywrightTimeout:
                continue
            yield shown.inner_text()
            window.page.mouse.move(0, 0)


def _views(window: Window, row: Locator, page: str) -> Iterator[str]:
    """Every view of the row, each while it stands."""
    buttons = row.get_by_role("radio").or_(row.get_by_role("button"))
    buttons.first.wait_for()
    window.settled()
    for name in buttons.all_inner_texts():
        window.switch_to(name, row)
        yield f"{page}: {name}"
