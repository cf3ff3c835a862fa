"""How soon is the first page painted? From starting the server process to the query box on screen.

Warm: the second start on, by the same person in the same browser (one port and one browser profile each). The start with an
empty browser cache is printed beside it. The peer is a Streamlit app of one line, started the same way in the same run, so that
the ratio says what is ours. Needs Chromium. Run from the checkout: python -m benchmarks.bench_paint [--repeats 5]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from benchmarks.serving import QUERY_BOX, WORKBENCH, free_port, sample_store, serving

UNRECORDED = 2
"""Starts before the first that counts: the browser keeps compiled scripts from the second on."""


def painted(page: Page, module: tuple[str, ...], port: int, sign: str, store: Path) -> tuple[float, float]:
    """Seconds from process start, and from navigation, until `sign` is visible."""
    started = time.perf_counter()
    with serving(module, port, store) as url:
        navigated = time.perf_counter()
        page.goto(url, wait_until="commit")
        page.locator(sign).wait_for(timeout=60_000)
        now = time.perf_counter()
        page.goto("about:blank")
    return now - started, now - navigated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        store = sample_store(folder)
        peer = folder / "peer.py"
        peer.write_text('import streamlit as st\nst.write("painted")\n')
        apps = {
            "workbench": (WORKBENCH, QUERY_BOX),
            "one-line app": (
                ("streamlit", "run", str(peer), "--server.headless", "true", "--server.port"),
                "text=painted",
            ),
        }
        ports = {label: free_port() for label in apps}
        profiles = {
            label: playwright.chromium.launch_persistent_context(
                str(folder / label), executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            for label in apps
        }
        times: dict[str, list[tuple[float, float]]] = {label: [] for label in apps}
        for _ in range(UNRECORDED + repeats):
            for label, (module, sign) in apps.items():
                times[label].append(painted(profiles[label].pages[0], module, ports[label], sign, store))
        for profile in profiles.values():
            profile.close()
    print(f"medians of {repeats} warm starts{'':8s} from process start   from navigation   first start, cold browser")
    warm = {}
    for label, rows in times.items():
        warm[label], navigated = (statistics.median(column) for column in zip(*rows[UNRECORDED:], strict=True))
        print(f"{label:30s} {warm[label]:16.2f} s {navigated:15.2f} s {rows[0][0]:25.2f} s")
    print(f"ratio workbench / one-line app, warm: {warm['workbench'] / warm['one-line app']:.2f}")
    print(f"first page painted {warm['workbench']:.2f} s after a warm start (target: at most 3 s)")


if __name__ == "__main__":
    main()
