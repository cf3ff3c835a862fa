"""A person edits a memory, deletes it and takes that back; the store is left as it was found."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, TimeoutError, expect

from .test_inspect import WAIT, settle

pytestmark = [pytest.mark.browser, pytest.mark.models]
CLICKS = 3
ROW = 30


def open_memories(page: Page) -> None:
    page.get_by_role("link", name="Memories").click()
    search_box(page).wait_for(timeout=WAIT)
    settle(page)


def search_box(page: Page) -> Locator:
    return page.get_by_placeholder("words, exactly as written")


def search(page: Page, text: str) -> None:
    search_box(page).fill(text)
    search_box(page).press("Enter")
    expect(page.locator(".wb-mem-hint").first).to_contain_text("memories match", timeout=WAIT)
    settle(page)


def pick_first(page: Page) -> None:
    """The table is a canvas: its place is read when the page stands still, and again if it moved before the click came."""
    settle(page)
    table = page.get_by_test_id("stDataFrame").first
    table.wait_for(timeout=WAIT)
    for _ in range(CLICKS):
        box = table.bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + 15, box["y"] + 1.5 * ROW)
        try:  # a second click on the same row would take the choice back: only after a good while
            title(page).wait_for(timeout=WAIT / CLICKS)
            break
        except TimeoutError:
            continue
    title(page).wait_for(timeout=WAIT)
    settle(page)


def title(page: Page) -> Locator:
    return page.locator(".wb-mem-title")


def view(page: Page, name: str) -> None:
    page.get_by_test_id("stButtonGroup").get_by_text(name, exact=True).click()
    settle(page)


def save_title(page: Page, text: str) -> None:
    page.get_by_role("button", name="Edit", exact=True).click()
    page.get_by_label("Title", exact=True).fill(text)
    page.get_by_role("button", name="Save", exact=True).click()
    expect(title(page)).to_contain_text(text, timeout=WAIT)
    settle(page)


def test_an_edit_is_saved_and_a_deletion_is_undone(page: Page) -> None:
    open_memories(page)
    search(page, "poetry add")
    pick_first(page)
    before = title(page).locator("span").inner_text()
    save_title(page, "Zebra <b>title</b> **x**")
    assert title(page).locator("b").count() == 0
    try:
        page.get_by_role("button", name="Delete", exact=True).click()
        expect(page.locator(".wb-mem-undo")).to_be_visible(timeout=WAIT)
        settle(page)
        expect(title(page)).to_have_count(0)
        page.get_by_role("button", name="Undo", exact=True).click()
        expect(title(page)).to_contain_text("Zebra <b>title</b> **x**", timeout=WAIT)
        expect(page.locator(".wb-mem-undo")).to_have_count(0)
        settle(page)
    finally:
        save_title(page, before)
    assert page.get_by_test_id("stException").count() == 0


def test_filters_stay_while_another_page_is_looked_at(page: Page) -> None:
    open_memories(page)
    search(page, "poetry add")
    page.get_by_role("link", name="Inspect").click()
    page.get_by_placeholder("What should the agent remember?").wait_for(timeout=WAIT)
    settle(page)
    open_memories(page)
    expect(search_box(page)).to_have_value("poetry add")


def test_a_table_offers_no_csv_that_a_spreadsheet_would_run(page: Page) -> None:
    open_memories(page)
    page.get_by_test_id("stDataFrame").first.hover()
    expect(page.get_by_label("Fullscreen").first).to_be_visible(timeout=WAIT)
    expect(page.get_by_label("Download as CSV").first).to_be_hidden()


@pytest.mark.parametrize("width", [900, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_fits_the_window(page: Page, width: int, scheme: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    open_memories(page)
    pick_first(page)
    for name in ("Browse", "Import", "Statistics", "Deleted", "Store"):
        view(page, name)
        assert page.get_by_test_id("stException").count() == 0, name
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
        wide = page.evaluate(
            """[...document.querySelectorAll('[data-testid="stMainBlockContainer"] .stButton button')]
              .filter(button => button.scrollWidth > button.clientWidth + 1).map(button => button.innerText)"""
        )
        assert wide == [], name
