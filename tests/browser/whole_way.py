"""The whole way through the app in a browser: a failing query, labels, a search for better weights, a comparison, a file.

`walk` is run by a test, and by `docs/make_guide.py`, which keeps a picture of each station.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

QUERY = "browser eats all the RAM if I leave it open until evening"
MISSING = "m089"
WAIT = 120_000
Shoot = Callable[[Page, str, str], None]
"""Called as `shoot(page, name, selector)` at each station; the selector names what must be in the picture."""


def walk(page: Page, url: str, file: Path, shoot: Shoot = lambda page, name, selector: None, trials: int = 40) -> None:
    """From the failing query to the tuned config in `file`. The store must have judged queries and no evidence yet."""
    _why(page, url, shoot)
    _label(page, shoot)
    _tune(page, shoot, trials)
    _compare(page, shoot)
    _export(page, file, shoot)


def _why(page: Page, url: str, shoot: Shoot) -> None:
    page.goto(url)
    box = page.get_by_placeholder("What should the agent remember?")
    box.wait_for(timeout=WAIT)
    box.fill(QUERY)
    box.press("Enter")
    page.locator(".wb-result").first.wait_for(timeout=WAIT)
    settled(page)
    shoot(page, "1-failing-query", ".wb-strip")
    page.get_by_text("Why, and what if", exact=True).click()
    page.get_by_role("button", name=re.compile(f"^{MISSING}")).first.click(timeout=WAIT)
    expect(page.locator(".wb-sentence")).to_contain_text(MISSING, timeout=WAIT)
    page.get_by_role("button", name="Apply", exact=True).first.wait_for(timeout=WAIT)
    settled(page)
    shoot(page, "2-why-is-it-missing", ".st-key-inspect-section")


def _label(page: Page, shoot: Shoot) -> None:
    page.get_by_role("link", name="Label").click()
    page.get_by_test_id("stTextInputField").first.fill("ada", timeout=WAIT)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="New queue").click(timeout=WAIT)
    page.get_by_label("Depth", exact=True).fill("2")
    page.keyboard.press("Tab")
    settled(page)
    page.get_by_role("button", name="Make the queue").click()
    page.locator(".wb-card").wait_for(timeout=WAIT)
    settled(page)
    shoot(page, "3-label", ".wb-card")
    page.evaluate("document.activeElement.blur()")
    for count, key in enumerate("102", 1):
        page.keyboard.press(key)
        page.locator(".wb-card-progress b", has_text=str(count)).wait_for(timeout=WAIT)


def _tune(page: Page, shoot: Shoot, trials: int) -> None:
    page.get_by_role("link", name="Tune").click()
    page.get_by_role("button", name=re.compile("^(Gather|Start the search)")).first.wait_for(timeout=WAIT)
    gather = page.get_by_role("button", name="Gather")
    if gather.count():
        gather.click()
    page.get_by_text("What may change").wait_for(timeout=WAIT)
    box = page.get_by_label("Configs", exact=True).first
    box.fill(str(trials))
    box.press("Tab")
    settled(page)
    shoot(page, "4-tune", "[data-testid=stMain]")
    page.get_by_role("button", name="Start the search").click()
    page.get_by_text("What the proposal changes").wait_for(timeout=WAIT)
    settled(page)
    shoot(page, "5-proposal", "[data-testid=stMain]")
    page.locator("button", has_text="Take it away").click()
    page.get_by_role("button", name="To the sliders").click(timeout=WAIT)
    page.get_by_text("Set on the sliders of Inspect").wait_for(timeout=WAIT)
    settled(page)


def _compare(page: Page, shoot: Shoot) -> None:
    page.get_by_role("link", name="Evaluate").click()
    page.get_by_text("Against the baseline").first.wait_for(timeout=WAIT)  # the search gathered what this needs
    settled(page)
    shoot(page, "6-compare", "[data-testid=stMain]")


def _export(page: Page, file: Path, shoot: Shoot) -> None:
    page.get_by_role("link", name="Tune").click()
    page.locator("button", has_text="Take it away").click(timeout=WAIT)
    page.get_by_text("The evidence card").wait_for(timeout=WAIT)
    settled(page)
    shoot(page, "7-export", "[data-testid=stMain]")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download YAML").click()
    download.value.save_as(file)


def settled(page: Page) -> None:
    """Until the server has finished the rerun that an interaction started."""
    page.wait_for_timeout(150)
    expect(page.locator('[data-testid="stApp"]')).to_have_attribute(
        "data-test-script-state", "notRunning", timeout=WAIT
    )
