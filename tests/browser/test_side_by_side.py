"""Side by side with 900 rows: few are in the document, the keyboard reaches all, the followed one stays in view, text stays text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Locator, expect

from benchmarks.serving import ROOT, free_port, serving
from benchmarks.side_by_side_page import MARKUP, ROWS

from .accessibility import violations
from .pages import WAIT, Inspect, Window, window_on

PAGE = (
    "streamlit",
    "run",
    str(ROOT / "benchmarks" / "side_by_side_page.py"),
    "--server.headless=true",
    "--server.port",
)
DOWN = """async () => {
  const seen = [], frame = () => new Promise(done => requestAnimationFrame(done));
  for (let more = true; more;) {
    const at = document.activeElement, id = at.closest('tr').dataset.id;
    more = seen[seen.length - 1] !== id;
    if (more) seen.push(id);
    at.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown', bubbles: true}));
    if (seen.length % 50 === 0) await frame();
  }
  return seen;
}"""
UNCOVERED = """row => {
  const cell = row.querySelector('th'), box = cell.getBoundingClientRect(), at = cell.closest('.wb-sbs-scroll').getBoundingClientRect();
  return box.top >= at.top - 1 && box.bottom <= at.bottom + 1
    && cell.contains(document.elementFromPoint(box.left + 20, box.top + box.height / 2));
}"""
"""Whether a row is within the table's part of the page, and nothing lies on it."""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a page with 900 rows."""
    with serving(PAGE, free_port(), Path(tmp_path_factory.mktemp("rows"))) as url:
        yield url


@pytest.fixture
def page(windows: BrowserContext, many: str) -> Iterator[Window]:
    """A window on that page."""
    with window_on(windows, many) as window:
        window.open()
        window.page.locator(".wb-sbs tbody tr[data-id]").first.wait_for()
        yield window


def focused(window: Window) -> Locator:
    """The row with the focus."""
    return window.page.locator(".wb-sbs tr:focus-within")


def followed(window: Window) -> Locator:
    """The row that is followed."""
    return window.page.locator('.wb-sbs tr[aria-selected="true"]')


def test_rows_few_drawn_and_text_literal(page: Window) -> None:
    grid = page.page.get_by_role("grid")
    expect(grid).to_have_attribute("aria-rowcount", str(ROWS + 1))
    for top in (0, 20_000, 10**6):
        page.page.locator(".wb-sbs-scroll").evaluate("(at, top) => { at.scrollTop = top; }", top)
        page.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        rows = grid.locator("tr[data-id]")
        assert 5 < rows.count() < 50
    assert rows.last.get_attribute("aria-rowindex") == str(ROWS + 1)
    assert grid.locator("img, script").count() == 0
    expect(grid.locator("tr[data-id] .wb-sbs-text").first).to_contain_text(MARKUP)


def test_keyboard_reaches_every_row(page: Window) -> None:
    keys, first = page.page.keyboard, page.page.get_by_role("rowheader").first
    page.page.get_by_role("slider").focus()
    while not first.evaluate("cell => cell === document.activeElement"):
        keys.press("Tab")
    seen = page.page.evaluate(DOWN)
    assert len(seen) == len(set(seen)) == ROWS
    expect(focused(page)).to_have_attribute("aria-rowindex", str(ROWS + 1))
    keys.press("Control+Home")
    keys.press("PageDown")
    assert focused(page).evaluate(UNCOVERED)
    keys.press("Control+Home")
    keys.press("ArrowUp")
    expect(page.page.get_by_role("columnheader", name="Memory")).to_be_visible()
    keys.press("ArrowRight")
    keys.press("Enter")
    expect(page.page.get_by_role("columnheader", name="vector:0")).to_have_attribute("aria-sort", "ascending")
    keys.press("Enter")
    expect(page.page.get_by_role("columnheader", name="vector:0")).to_have_attribute("aria-sort", "descending")
    keys.press("ArrowDown")
    expect(focused(page)).to_have_attribute("data-id", f"m{ROWS - 1:03}")


def test_followed_row_stays_in_view(page: Window) -> None:
    page.page.get_by_role("rowheader").nth(2).focus()
    with page.rerun():
        page.page.keyboard.press("Enter")
    expect(followed(page)).to_have_count(1)
    expect(page.page.locator(".wb-sbs-box")).to_contain_text(MARKUP, timeout=WAIT)
    chosen = followed(page).get_attribute("data-id")
    for key in ("Control+End", "Control+Home"):
        page.page.keyboard.press(key)
        expect(followed(page)).to_have_attribute("data-id", chosen or "")
        assert followed(page).evaluate(UNCOVERED), key
    order = page.page.locator(".wb-sbs tbody tr[data-id]").evaluate_all(
        "rows => rows.map(row => row.dataset.id).join()"
    )
    page.page.keyboard.press("PageDown")
    top = page.page.locator(".wb-sbs-scroll").evaluate("at => at.scrollTop")
    page.slide("Bonus", "Home")
    assert followed(page).get_attribute("data-id") == chosen
    assert followed(page).evaluate(UNCOVERED)
    assert page.page.locator(".wb-sbs-scroll").evaluate("at => at.scrollTop") == top > 0
    assert order != page.page.locator(".wb-sbs tbody tr[data-id]").evaluate_all(
        "rows => rows.map(row => row.dataset.id).join()"
    )


def test_side_by_side_is_accessible_and_fits(page: Window) -> None:
    page.page.get_by_role("rowheader").nth(1).click()
    page.page.locator(".wb-sbs-box").wait_for()
    assert violations(page.page) == []
    for width in (900, 1440):
        page.resize(width, "dark")
        page.expect_fit(f"{width} wide")


def test_inspect_follows_and_sliders_move_rows(window: Window) -> None:
    inspect = Inspect.open(window)
    window.type(inspect.query, "how many different doctors did I visit?")
    rows = window.page.locator(".wb-sbs tbody tr[data-id]")
    rows.first.wait_for()
    window.settled()
    chosen, before = rows.nth(2).get_attribute("data-id"), rows.all_inner_texts()
    with window.rerun():
        rows.nth(2).click()
    expect(window.page.get_by_role("button", name="Why is it here?")).to_be_visible()
    assert followed(window).get_attribute("data-id") == chosen
    window.page.keyboard.press("Escape")
    expect(window.page.locator(".wb-sbs-box")).to_be_hidden()
    inspect.slide("Score blend", "End")
    assert followed(window).get_attribute("data-id") == chosen
    assert rows.all_inner_texts() != before
    for width in (900, 1440):
        window.resize(width, "light")
        window.expect_fit(f"{width} wide")
