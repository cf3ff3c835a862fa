"""Edit a memory, delete it and undo that; the store is left unchanged."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from .pages import Memories, Window


@pytest.fixture
def memories(window: Window) -> Memories:
    """A new session on the page."""
    return Memories.open(window)


def test_an_edit_is_saved_and_a_deletion_is_undone(memories: Memories) -> None:
    memories.search("poetry add")
    memories.pick_first()
    before = memories.title.locator("span").inner_text()
    memories.rename("Zebra <b>title</b> **x**")
    assert memories.title.locator("b").count() == 0
    try:
        memories.window.press("Delete")
        expect(memories.page.locator(".wb-mem-undo")).to_be_visible()
        expect(memories.title).to_have_count(0)
        memories.window.press("Undo")
        expect(memories.title).to_contain_text("Zebra <b>title</b> **x**")
        expect(memories.page.locator(".wb-mem-undo")).to_have_count(0)
    finally:
        memories.rename(before)
    memories.window.expect_no_error()


@pytest.mark.thorough
def test_every_view_fits_the_window_and_a_table_offers_no_csv_that_a_spreadsheet_would_run(memories: Memories) -> None:
    memories.window.table().hover()
    expect(memories.page.get_by_label("Fullscreen").first).to_be_visible()
    expect(memories.page.get_by_label("Download as CSV").first).to_be_hidden()
    memories.pick_first()
    for name in ("Import", "Sources", "Statistics", "Deleted", "Store", "Browse"):
        memories.window.view(name)
        for width, scheme in ((900, "dark"), (1440, "light")):
            memories.window.resize(width, scheme)
            buttons = '[data-testid="stMainBlockContainer"] .stButton button'
            memories.window.expect_fit(f"{name}, {width} wide, {scheme}", buttons)
