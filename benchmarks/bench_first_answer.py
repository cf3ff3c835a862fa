"""From opening the app to "which stage lost it, which fix, what the fix does to the others", compared with another commit, by turns.

    python -m benchmarks.bench_first_answer --against WORKTREE [--rounds 3] [--preset workbench] [--query TEXT]

WORKTREE is a checkout of the other commit. Each commit imports the sample into its own store. A round starts a server for each of
them, on a copy of its store, and walks twice: just imported, and once the judged queries are searched, which both do in the background.

The walk opens the app and types a judged query, whose relevant memory is missing or below the one that it supersedes. Then it does what
the page offers until it has read the stage, the first fix, and the effect of the fix on the judged queries: where the page names the next
step it reads on, otherwise it opens "Why, and what if" and chooses the first memory offered. An action is a click or a typed text;
seconds are the app's. A last column adds what a person needs for each click by the keystroke-level model: 1.35 s to decide, 1.1 s to
point, 0.2 s to press (Card, Moran & Newell 1980); typing is the same on both sides and left out. Needs Chromium.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.serving import ROOT, WORKBENCH, chromium, free_port, serving
from tests.browser.pages import Inspect, Window, window_on
from tests.sample import MOVING

PATIENCE = 900_000
"""Milliseconds that the judged queries may take."""
CLICK_S = 1.35 + 1.1 + 0.2
"""Seconds of a person for a click."""
SEEN = ("stage", "fix", "effect")
NEXT, FIX = ".wb-next", ".wb-next-fix"
LOST = re.compile(r"lost at|dropped by|no list")
MEASURED = re.compile(r"on [\d,]+( of [\d,]+)? judged quer")
EFFECT = re.compile(r"^Of \d+ judged queries: nDCG@10 better in")


@dataclass
class Walk:
    """What was done so far, and after how many seconds and actions each thing was on the page."""

    started: float = field(default_factory=time.perf_counter)
    actions: int = 0
    seen: dict[str, tuple[float, int]] = field(default_factory=dict)

    def sees(self, what: str) -> None:
        self.seen[what] = (time.perf_counter() - self.started, self.actions)


def walked(window: Window, query: str) -> Walk:
    """One walk in a new window."""
    walk = Walk()
    inspect = Inspect.open(window)
    walk.sees("page")
    inspect.query.fill(query)
    inspect.query.press("Enter")
    walk.actions += 1
    window.page.locator(".wb-result, .wb-sbs tr[data-id]").first.wait_for()
    if window.page.locator(NEXT).count():
        _read_next_step(window, walk)
    else:
        _open_why(inspect, walk)
    return walk


def _read_next_step(window: Window, walk: Walk) -> None:
    """The page says it all."""
    window.page.locator(NEXT, has_text=LOST).wait_for()
    walk.sees("stage")
    fix = window.page.locator(FIX, has_text=re.compile(r" = "))
    fix.wait_for(timeout=PATIENCE)
    walk.sees("fix")
    fix.filter(has_text=MEASURED).wait_for(timeout=PATIENCE)
    walk.sees("effect")


def _open_why(inspect: Inspect, walk: Walk) -> None:
    """Open the tool, and choose the first of the memories that are missing."""
    window = inspect.window
    window.settled()
    inspect.section("Why, and what if")
    walk.actions += 1
    with window.rerun():
        window.page.locator("[class*='st-key-inspect-why-pick'] button").first.click()
    walk.actions += 1
    window.page.locator(".wb-sentence").first.wait_for()
    walk.sees("stage")
    window.page.get_by_role("button", name=re.compile(r"^Apply\b")).first.wait_for()
    walk.sees("fix")
    measure = window.page.get_by_role("button", name=re.compile("^Measure on "))
    effect = window.page.get_by_title(EFFECT)
    measure.or_(effect).first.wait_for(timeout=PATIENCE)
    if not effect.count():
        measure.first.click()
        walk.actions += 1
        effect.first.wait_for(timeout=PATIENCE)
    walk.sees("effect")


def imported(tree: Path, folder: Path) -> Path:
    """The sample in a new store, imported by a checkout."""
    store = folder / "store"
    command = [sys.executable, "-m", "cems_workbench", "import", "sample_data", "--store", str(store)]
    subprocess.run(command, cwd=tree, check=True, stdout=subprocess.DEVNULL)
    return store


def main() -> None:
    """Walk by turns, and print the medians with their ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--preset", default="workbench")
    parser.add_argument("--query", default=MOVING)
    parser.add_argument("--stores", type=Path, nargs=2, metavar=("BEFORE", "NOW"), help="imported stores to copy")
    asked = parser.parse_args()
    trees = {"before": asked.against.resolve(), "now": ROOT}
    found: dict[tuple[str, str], list[Walk]] = {}
    with tempfile.TemporaryDirectory() as name, chromium() as launched, closing(launched()) as browser:
        folder = Path(name)
        stores = dict(zip(trees, asked.stores or (), strict=False)) or {
            which: imported(tree, folder / which) for which, tree in trees.items()
        }
        for number in range(asked.rounds):
            with ExitStack() as servers:
                order = list(trees) if number % 2 == 0 else list(trees)[::-1]
                urls = {}
                for which in order:
                    store = Path(shutil.copytree(stores[which], folder / f"{which}-{number}"))
                    urls[which] = servers.enter_context(
                        serving(WORKBENCH, free_port(), store, tree=trees[which], preset=asked.preset)
                    )
                for when in ("just imported", "judged queries searched"):
                    for which in order:
                        with window_on(browser, urls[which]) as window:
                            walk = walked(window, asked.query)
                        found.setdefault((when, which), []).append(walk)
                        print(f"{number + 1}, {when}, {which}: {_words(walk)}", flush=True)
    for when in ("just imported", "judged queries searched"):
        _report(when, found[when, "before"], found[when, "now"])


def _words(walk: Walk) -> str:
    return ", ".join(f"{what} {took:.1f} s ({actions})" for what, (took, actions) in walk.seen.items())


def _report(when: str, before: Sequence[Walk], now: Sequence[Walk]) -> None:
    """A line per thing that was read: medians, each of before, of now, and their ratio."""
    print(f"\n| {when} | actions | seconds | seconds from the query | from the query, with a person's clicks |")
    print("|---|---|---|---|---|")
    for what in SEEN:
        cells = [what]
        for one, other in zip(_medians(before, what), _medians(now, what), strict=True):
            cells.append(f"{_short(one)} → {_short(other)}: {other / one:.2f}")
        print(f"| {' | '.join(cells)} |")


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _medians(walks: Sequence[Walk], what: str) -> tuple[float, float, float, float]:
    """Actions; seconds from opening the app; seconds from typing the query, without and with those of a person's clicks."""
    actions = statistics.median(walk.seen[what][1] for walk in walks)
    seconds = statistics.median(walk.seen[what][0] for walk in walks)
    from_query = statistics.median(walk.seen[what][0] - walk.seen["page"][0] for walk in walks)
    return actions, seconds, from_query, from_query + (actions - 1) * CLICK_S


if __name__ == "__main__":
    main()
