"""The whole way through the app in a browser: a failing query, labels, a search for better weights, a comparison, a file.

`walk` is run by a test, and by `docs/make_guide.py`, which keeps a picture of each station.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.sample import FAILING, MISSING

from .pages import Inspect, Label, Window

GRADES = "102"
Shoot = Callable[[Page, str, str], None]
"""Called as `shoot(page, name, selector)` at each station; the selector names what must be in the picture."""


def walk(window: Window, file: Path, shoot: Shoot = lambda page, name, selector: None, trials: int = 40) -> None:
    """From the failing query to the tuned config in `file`. The store must have judged queries."""
    _why(window, shoot)
    _label(window, shoot)
    _tune(window, shoot, trials)
    _compare(window, shoot)
    _export(window, file, shoot)


def _why(window: Window, shoot: Shoot) -> None:
    inspect = Inspect.open(window)
    inspect.search(FAILING)
    shoot(window.page, "1-failing-query", ".wb-strip")
    inspect.section("Why, and what if")
    with window.rerun():
        window.page.get_by_role("button", name=re.compile(f"^{MISSING}")).first.click()
    expect(window.page.locator(".wb-sentence")).to_contain_text(MISSING)
    window.page.get_by_role("button", name=re.compile("^Apply ")).first.wait_for()
    shoot(window.page, "2-why-is-it-missing", ".st-key-inspect-section")


def _label(window: Window, shoot: Shoot) -> None:
    window.switch("Label")
    label = Label(window)
    label.sign("ada")
    window.press("New queue")
    depth = window.page.get_by_label("Depth", exact=True)
    depth.fill("2")
    with window.rerun():
        depth.press("Tab")
    window.press("Make the queue")
    shoot(window.page, "3-label", ".wb-card")
    for count, key in enumerate(GRADES, 1):
        window.page.keyboard.press(key)
        expect(label.count).to_have_text(str(count))


def _tune(window: Window, shoot: Shoot, trials: int) -> None:
    page = window.page
    window.switch("Tune")
    gather = page.get_by_role("button", name="Gather")
    gather.or_(page.get_by_role("button", name="Start the search")).first.wait_for()
    if gather.count():  # a queue of the same queries may have gathered them
        gather.click()
    page.get_by_text("What may change").wait_for()
    box = page.get_by_label("Configs", exact=True).first
    box.fill(str(trials))
    with window.rerun():
        box.press("Tab")
    shoot(page, "4-tune", "[data-testid=stMain]")
    page.get_by_role("button", name="Start the search").click()
    page.get_by_text("What the proposal changes").wait_for()
    window.settled()
    shoot(page, "5-proposal", "[data-testid=stMain]")
    window.view("Take it away")
    window.press("To the sliders")
    page.get_by_text("Set on the sliders of Inspect").wait_for()


def _compare(window: Window, shoot: Shoot) -> None:
    window.switch("Evaluate")
    window.page.get_by_text("Against the baseline").first.wait_for()  # the search gathered what this needs
    shoot(window.page, "6-compare", "[data-testid=stMain]")


def _export(window: Window, file: Path, shoot: Shoot) -> None:
    window.switch("Tune")
    window.view("Take it away")
    window.page.get_by_text("The evidence card").wait_for()
    shoot(window.page, "7-export", "[data-testid=stMain]")
    window.download("Download YAML", file)
