"""How soon is the first page painted? From starting the server process to the query box on screen, warm (second start on).

The peer is a Streamlit app of one line, started the same way in the same run, so that the ratio says what is ours.
Needs Chromium. Run from the checkout: python -m benchmarks.bench_paint [--repeats 5]
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
OURS = 'input[placeholder="What should the agent remember?"]'
PEER = "text=painted"


def painted(browser: Browser, start: list[str], sign: str, store: Path) -> tuple[float, float]:
    """Seconds from process start, and from navigation, until `sign` is visible."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", *start, "--port" if start[0] == "cems_workbench" else "--server.port", str(port)]
    environment = {**os.environ, "CEMS_WORKBENCH_STORE": str(store), "HF_HUB_OFFLINE": "1"}
    started = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.02)
        page = browser.new_page()
        navigated = time.perf_counter()
        page.goto(f"http://localhost:{port}")
        page.locator(sign).wait_for(timeout=60_000)
        now = time.perf_counter()
        page.close()
        return now - started, now - navigated
    finally:
        process.terminate()
        process.wait(20)


def sample_store(folder: Path) -> Path:
    """The sample data, imported into a new store."""
    store = folder / "store"
    command = [sys.executable, "-m", "cems_workbench", "import", "sample_data", "--store", str(store)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        store = sample_store(Path(name))
        peer = Path(name) / "peer.py"
        peer.write_text('import streamlit as st\nst.write("painted")\n')
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        times: dict[str, list[tuple[float, float]]] = {"workbench": [], "one-line app": []}
        for i in range(repeats + 1):
            ours = painted(browser, ["cems_workbench", "app", "--headless"], OURS, store)
            other = painted(browser, ["streamlit", "run", str(peer), "--server.headless", "true"], PEER, store)
            if i:  # the first start fills the file cache
                times["workbench"].append(ours)
                times["one-line app"].append(other)
        browser.close()
    median = {label: [statistics.median(column) for column in zip(*rows, strict=True)] for label, rows in times.items()}
    for label, (from_start, from_navigation) in median.items():
        print(
            f"{label:14s} {from_start:6.2f} s from process start, {from_navigation:6.2f} s from navigation (medians of {repeats})"
        )
    print(
        f"ratio workbench / one-line app, from process start: {median['workbench'][0] / median['one-line app'][0]:.2f}"
    )
    print(f"first page painted {median['workbench'][0]:.2f} s after a warm start (target: at most 3 s)")


if __name__ == "__main__":
    main()
