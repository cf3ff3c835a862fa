"""Many people at one server: nobody sees another's ranking, and memory growth is bounded.

    python -m benchmarks.crowd [--sessions 20] [--reruns 1000]

Each session is a separate browser window with a query of the sample data. They move the slider of the score blend in turns, each to
both of its ends. After every move the ranking has to be the one that this query had at this end the first time, and no two sessions
have the same one. The resident size of the server is read every 50 reruns, and after the last: from the first reading on, when every
session has drawn its page and moved, to the last it may grow by MOST_GROWTH_MB. Needs Chromium. Exits 1 when anything of this does not
hold.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks.serving import ROOT, WORKBENCH, chromium, free_port, sample_store, served
from tests.browser.pages import Inspect, window_on

SLIDER = "Score blend"
STEP = 50
MOST_GROWTH_MB = 60


def resident(process: int) -> float:
    """Resident size of a process, MB."""
    lines = Path(f"/proc/{process}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("VmRSS"))


def queries(count: int) -> list[str]:
    """The first queries of the sample data."""
    lines = (ROOT / "sample_data" / "queries.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["query"] for line in lines[:count]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--reruns", type=int, default=1000)
    asked = parser.parse_args()
    if asked.reruns < asked.sessions:
        parser.error(f"--reruns {asked.reruns}: every one of {asked.sessions} sessions moves once at least")
    with (
        tempfile.TemporaryDirectory() as folder,
        served(WORKBENCH, free_port(), sample_store(Path(folder))) as (url, process),
        chromium() as launched,
        closing(launched()) as browser,
        ExitStack() as windows,
    ):
        began, pages, wrong = time.monotonic(), list[Inspect](), list[str]()
        for query in queries(asked.sessions):
            pages.append(Inspect.open(windows.enter_context(window_on(browser, url))))
            pages[-1].search(query)
            pages[-1].find(SLIDER)
        print(f"{len(pages)} sessions drawn in {time.monotonic() - began:.0f} s", flush=True)
        orders: dict[tuple[int, str], list[str]] = {}
        sizes = []
        began = time.monotonic()
        for turn in range(asked.reruns):
            number, key = turn % len(pages), ("End", "Home")[turn // len(pages) % 2]
            pages[number].window.slide(SLIDER, key)
            order = pages[number].order()
            if orders.setdefault((number, key), order) != order:
                wrong.append(f"session {number} has another ranking at {key} after {turn + 1} reruns")
            if (turn + 1) % STEP == 0 or turn + 1 == asked.reruns:
                sizes.append(resident(process))
                print(f"{turn + 1:5d} reruns: {sizes[-1]:.0f} MB", flush=True)
        seconds = time.monotonic() - began
        if len({tuple(orders[number, "End"]) for number in range(len(pages))}) < len(pages):
            wrong.append("two sessions have the same ranking")
        print(
            f"{asked.reruns} reruns in {seconds:.0f} s; {max(sizes) - sizes[0]:+.0f} MB at most after the first reading"
        )
        if max(sizes) - sizes[0] > MOST_GROWTH_MB:
            wrong.append(f"memory grew by more than {MOST_GROWTH_MB} MB")
    for line in wrong:
        print(f"WRONG: {line}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
