"""A saved link opened by somebody else, and undo and redo by their buttons and keys."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from .pages import Inspect, Window, window_on
from .test_inspect import QUERY


@pytest.mark.thorough
def test_a_saved_link_shows_another_person_the_same_ranking_and_slider(
    window: Window, browser: Browser, tmp_path: Path
) -> None:
    inspect = Inspect.open(window)
    plain = inspect.search(QUERY)
    window.slide("Score blend", "End")
    expect(inspect.changed(1)).to_be_visible()
    inspect.page.get_by_role("button", name="Share").click()
    window.press("Save and create link")
    inspect.page.get_by_text(re.compile(r"^http://localhost:\d+/?\?state=[a-z2-7]{8}$")).wait_for()
    address = inspect.page.url
    window.download("CSV", tmp_path / "ranking.csv")
    with (tmp_path / "ranking.csv").open(encoding="utf-8-sig", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert re.search(r"\?state=[a-z2-7]{8}$", address)
    mine = inspect.order()
    assert mine != plain
    assert [int(row["final rank"]) for row in rows[: len(mine)]] == list(range(1, len(mine) + 1))
    assert all(row["dropped by"] and not row["final rank"] for row in rows[len(mine) :])
    assert all(row["memory id"] in text for row, text in zip(rows, mine, strict=False))
    with window_on(browser, window.url) as elsewhere:
        elsewhere.open(address)
        other = Inspect(elsewhere)
        expect(other.results).to_have_text(mine)
        expect(other.page.get_by_role("slider", name="Score blend")).to_have_attribute("aria-valuetext", "1.00")
        expect(other.changed(1)).to_be_visible()
        assert other.page.url == address
        with elsewhere.rerun():
            other.changed(1).click()
        expect(other.changed(0)).to_be_visible()
        expect(other.results).to_have_text(plain)
        assert "state=" not in other.page.url, "the link is no longer what the page shows"


def test_undo_and_redo_by_button_and_by_key(window: Window) -> None:
    inspect = Inspect.open(window)
    before = inspect.search(QUERY)
    window.slide("Score blend", "End")
    expect(inspect.changed(1)).to_be_visible()
    after = inspect.order()
    with window.rerun():
        inspect.page.locator(".st-key-inspect-undo button:visible").click()
    expect(inspect.changed(0)).to_be_visible()
    assert inspect.order() == before
    with window.rerun():
        inspect.page.locator(".st-key-inspect-redo button:visible").click()
    expect(inspect.changed(1)).to_be_visible()
    assert inspect.order() == after
    with window.rerun():
        inspect.page.keyboard.press("Alt+z")
    expect(inspect.changed(0)).to_be_visible()
    assert inspect.order() == before
