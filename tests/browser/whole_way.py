"""The guide's workflow in a browser: a failing query, labels, a search for better weights, a comparison, a file.

`walk` is run by a test, and by `docs/make_guide.py`, which keeps a picture of each station.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.sample import LOST, MOVING, STALE, STAYING

from .pages import Inspect, Label, Window

GRADES = "102"
TUNED = "cems"
"""The baseline of the search: from the preset that `make run` opens, which was tuned on these queries too, none finds anything."""
GATHERED = 600_000
"""Milliseconds that the guide waits: the reranker reads 60 memories for each of 129 queries."""
Shoot = Callable[[Page, str, str], None]
"""Called as `shoot(page, name, selector)` at each station; the selector names what must be in the picture."""


def walk(
    window: Window,
    file: Path,
    shoot: Shoot = lambda page, name, selector: None,
    trials: int = 40,
    preset: str | None = None,
) -> None:
    """From the failing query to the tuned config in `file`. The store must have judged queries.

    It is a query that fails under the preset that `make run` opens; `preset` is chosen first, where the app opens with another.
    """
    inspect = Inspect.open(window)
    if preset is not None:
        inspect.preset(preset)
    _why(inspect, window, shoot)
    _label(window, shoot)
    _tune(window, shoot, trials)
    _compare(window, shoot)
    _export(window, file, shoot)


WRONG = "You are moving in November."


def case(window: Window, shoot: Shoot = lambda page, name, selector: None, *, prove: bool = True) -> None:
    """From a stale first result, and from the wrong answer it gives, to the fix, and with `prove` to its effect on the whole set."""
    inspect, page = Inspect(window), window.page
    assert inspect.search(MOVING)[0] == STALE
    expect(page.locator(".wb-stale-first")).to_contain_text("“Moving in November”, is superseded by “Staying in our flat”")
    expect(page.locator(f".wb-sbs tr[data-id={STAYING}] .wb-sbs-drop")).to_be_visible()
    shoot(page, "case-1-stale", "[data-testid=stMain]")
    inspect.tool("Blame")
    page.get_by_placeholder(WRONG).fill(WRONG)
    window.press("Find the memories behind it")
    expect(page.locator(".wb-blamed").first).to_contain_text(f"superseded by {STAYING}")
    expect(page.locator(".wb-blamed mark").filter(has_text="November").first).to_be_visible()
    shoot(page, "case-2-blame", ".wb-cause")
    window.press(f"Let {STAYING} take the rank of {STALE}")
    expect(page.locator(".wb-stale-first")).to_have_count(0)
    assert inspect.order()[0] == STAYING and STALE not in inspect.order()
    shoot(page, "case-3-follow", ".wb-strip")
    if prove:
        _prove(window, shoot)


def _prove(window: Window, shoot: Shoot) -> None:
    _evaluate(window)
    shoot(window.page, "case-4-compare", "[data-testid=stMain]")
    window.view("Losses")
    window.page.get_by_text("relevant memories from the first").first.wait_for()
    window.settled()
    shoot(window.page, "case-5-losses", "[data-testid=stMain]")


def _evaluate(window: Window) -> None:
    """Open Evaluate, which compares the config of Inspect with its preset, on the set that it gathers where that is needed."""
    page = window.page
    window.switch("Evaluate")
    compared, gather = page.get_by_text("Compared with the baseline").first, page.get_by_role("button", name="Gather")
    compared.or_(gather).first.wait_for()
    if gather.count():  # a search gathered what its baseline needs, not the preset's
        gather.click()
    compared.wait_for(timeout=GATHERED)
    window.settled()


def _why(inspect: Inspect, window: Window, shoot: Shoot) -> None:
    inspect.search(MOVING)
    inspect.section("Why, and what if")
    with window.rerun():
        window.page.get_by_role("button", name=re.compile("“Staying in our flat” · grade")).first.click()
    expect(window.page.locator(".wb-sentence").first).to_contain_text(f"“Staying in our flat” was 2nd after fusion; {LOST}")
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
    window.press("Create queue")
    shoot(window.page, "3-label", ".wb-card")
    for count, key in enumerate(GRADES, 1):
        window.page.keyboard.press(key)
        expect(label.count).to_have_text(str(count))


def _tune(window: Window, shoot: Shoot, trials: int) -> None:
    page = window.page
    window.switch("Tune")
    window.choose("Baseline", TUNED)
    gather = page.get_by_role("button", name="Gather")
    gather.or_(page.get_by_role("button", name="Start the search")).first.wait_for()
    if gather.count():  # a queue of the same queries may have gathered them
        gather.click()
    page.get_by_text("Parameters to tune").wait_for(timeout=GATHERED)
    box = page.get_by_label("Configs", exact=True).first
    box.fill(str(trials))
    with window.rerun():
        box.blur()
    shoot(page, "4-tune", "[data-testid=stMain]")
    page.get_by_role("button", name="Start the search").click()
    page.get_by_role("heading", name="Changed parameters").wait_for(timeout=GATHERED)
    window.settled()
    shoot(page, "5-proposal", "[data-testid=stMain]")
    window.view("Export")
    window.press("To the sliders")
    page.get_by_text("Set on the sliders of Inspect").wait_for()


def _compare(window: Window, shoot: Shoot) -> None:
    _evaluate(window)
    shoot(window.page, "6-compare", "[data-testid=stMain]")


def _export(window: Window, file: Path, shoot: Shoot) -> None:
    window.switch("Tune")
    window.view("Export")
    window.page.get_by_text("The evidence card").wait_for()
    shoot(window.page, "7-export", "[data-testid=stMain]")
    window.download("Download YAML", file)
