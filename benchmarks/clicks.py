"""From opening the app to "which stage, which fix, what it does to the others" on a query typed by hand: actions and seconds.

    python -m benchmarks.clicks [--rounds 3] [--store IMPORTED]

The walk: open, type a query whose judged memory is missing, open "Why, and what if", choose the memory, read the sentence that names the
stage and the first fix, then its effect on the judged queries. An action is a click or a text that is typed. Each round has a fresh
copy of the sample data just imported (or of the store IMPORTED); it is walked twice, the second time as somebody who comes when the
judged queries have been searched, in the background where the app does that. Needs Chromium. To compare with another commit, run this
file in a checkout of it, a round at a time by turns.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Locator

from benchmarks.serving import WORKBENCH, chromium, free_port, sample_store, serving
from tests.browser.pages import Inspect, Window, window_on
from tests.sample import FAILING

MISSING = "m089"
EFFECT = re.compile(r"^Of \d+ judged queries: nDCG@10 better in")
PATIENCE = 600_000
"""Milliseconds that the judged queries may take."""


@dataclass
class Walk:
    """What was done so far, and at what second each thing was on the page."""

    started: float = field(default_factory=time.perf_counter)
    actions: int = 0
    seen: dict[str, tuple[float, int]] = field(default_factory=dict)

    def did(self, actions: int = 1) -> None:
        self.actions += actions

    def sees(self, what: str) -> None:
        self.seen[what] = (time.perf_counter() - self.started, self.actions)


def walked(window: Window) -> Walk:
    """One walk in a new window."""
    walk = Walk()
    inspect = Inspect.open(window)
    walk.sees("page")
    inspect.search(FAILING)
    walk.did()
    walk.sees("ranking")
    inspect.section("Why, and what if")
    walk.did()
    memory = window.page.get_by_role("button", name=re.compile(f"^{MISSING}"))
    with window.rerun():
        memory.first.click()
    walk.did()
    window.page.locator(".wb-sentence").wait_for()
    walk.sees("stage")
    window.page.get_by_role("button", name=re.compile(r"^Apply\b")).first.wait_for()
    walk.sees("fix")
    measure, effect = (
        window.page.get_by_role("button", name=re.compile("^Measure on ")),
        window.page.get_by_title(EFFECT),
    )
    either: Locator = measure.or_(effect)
    either.first.wait_for(timeout=PATIENCE)
    if not effect.count():
        measure.first.click()
        walk.did()
        effect.first.wait_for(timeout=PATIENCE)
    walk.sees("effect")
    return walk


def main() -> None:
    """Walk, and print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, chromium() as launched, closing(launched()) as browser:
        imported = asked.store or sample_store(Path(folder))
        for number in range(asked.rounds):
            store = Path(shutil.copytree(imported, Path(folder) / f"round-{number}"))
            with serving(WORKBENCH, free_port(), store) as url:
                for when in ("just imported", "judged queries searched"):
                    with window_on(browser, url) as window:
                        seen = walked(window).seen
                    said = ", ".join(f"{what} {took:.1f} s ({actions})" for what, (took, actions) in seen.items())
                    print(f"{number + 1}, {when}: {said}", flush=True)


if __name__ == "__main__":
    main()
