"""What a command costs from its start: processor seconds and peak memory, of an earlier commit and of this checkout in one run.

    python -m benchmarks.startup --against COMMIT [--only search,doctor] [--rounds 5] [--million BEFORE_STORE NOW_STORE]

Each side runs its own code on its own store of the sample, alternating, and every query is a new one; a first round is not counted.
Measured is the whole process tree, with what a command leaves behind until that is idle; then it is ended, so that only `second_search`
meets a server. Memory is the sum of proportional sizes (PSS), sampled. `app` is the server until its first page is painted, next to a
Streamlit app of one line. Medians are printed, below them the imports of a search. With CEMS_WORKBENCH_SERVE=off commands leave nothing
behind.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from benchmarks.alternate import ROOT, earlier

if TYPE_CHECKING:
    from playwright.sync_api import Page

MARK = "STARTUP_BENCHMARK"
"""The variable by which the processes of a measured tree are known."""
NOT_PASSED = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "CEMS_WORKBENCH_STORE", "CEMS_WORKBENCH_PRESET")
SAMPLE_S, REST_S = 0.02, 0.5
QUERIES = [json.loads(line)["query"] for line in (ROOT / "sample_data/queries.jsonl").read_text().splitlines()]
PLAIN = "cems"
"""A preset without a reranker."""
MISSING = "m001"
ROWS = (
    "search", "why", "report_why", "search_plain", "why_plain", "doctor", "export", "evaluate", "compare", "import",
    "app", "second_search", "million",
)  # fmt: skip


@dataclass
class Side:
    """A checkout, its store and evidence file, and what was measured there by row: (processor s, peak MB) of each round."""

    name: str
    checkout: Path
    folder: Path
    million: Path | None = None
    measured: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        """The sample's store."""
        return self.folder / "store"

    @property
    def evidence(self) -> Path:
        """The evidence file of the sample's queries."""
        return self.folder / "evidence.json.gz"

    def command(self, row: str, query: str) -> list[str]:
        """The arguments of a row's command."""
        at, plain, out = ["--store", str(self.store)], ["--preset", PLAIN], str(self.folder / "out")
        return {
            "search": ["search", query, *at],
            "why": ["why", query, MISSING, *at],
            "report_why": ["report", "why", query, MISSING, "--out", out, *at],
            "search_plain": ["search", query, *plain, *at],
            "why_plain": ["why", query, MISSING, *plain, *at],
            "doctor": ["doctor", *at],
            "export": ["export", "workbench", "--out", out],
            "evaluate": ["evaluate", str(self.evidence)],
            "compare": ["compare", str(self.evidence), *plain, "--preset", "recollection"],
            "import": ["import", "sample_data", "--store", str(self.folder / "imported")],
            "second_search": ["search", query, *at],
            "million": ["search", query, "--store", str(self.million)],
        }[row]

    def median(self, row: str, column: int) -> float:
        """The median of a row's figures after the first round."""
        return statistics.median(figures[column] for figures in self.measured[row][1:])


class Tree:
    """The processes started with a mark: what they have used of the processor, and their memory at most."""

    def __init__(self) -> None:
        self.mark, self.peak, self._over = uuid.uuid4().hex, 0, threading.Event()
        self._others = set(self._running())
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Tree:
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._sampler.join()
        for pid in self.pids():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def pids(self) -> Iterator[int]:
        """The processes of the tree that live, also where their parent has ended."""
        sought = f"{MARK}={self.mark}".encode()
        for pid in self._running():
            with contextlib.suppress(OSError):
                if pid not in self._others and sought in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    yield pid

    def used(self) -> float:
        """Processor seconds of the processes that live, and of the children they have waited for."""
        ticks = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def rest(self) -> float:
        """As `used`, once nothing was used for `REST_S`, after a minute at most."""
        end, before, now = time.monotonic() + 60, 0.0, self.used()
        while now > before and time.monotonic() < end:
            time.sleep(REST_S)
            before, now = now, self.used()
        return now

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_S):
            total = 0
            for pid in self.pids():
                with contextlib.suppress(OSError):
                    found = re.search(r"^Pss: +(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
                    total += int(found[1]) if found else 0
            self.peak = max(self.peak, total)

    @staticmethod
    def _running() -> list[int]:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def run(side: Side, arguments: list[str], mark: str = "", *flags: str) -> tuple[float, str]:
    """Processor seconds of a command with the children it waited for, and its stderr. Raises SystemExit with that when it fails."""
    environment = {key: value for key, value in os.environ.items() if key not in NOT_PASSED}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, *flags, "-m", "cems_workbench", *arguments],
            cwd=side.checkout,
            env={**environment, "HF_HUB_OFFLINE": "1", MARK: mark},
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        written = errors.read()
    if process.returncode:
        raise SystemExit(f"{side.name}: {' '.join(arguments)} ended with {process.returncode}:\n{written}")
    return usage.ru_utime + usage.ru_stime, written


def of_command(side: Side, row: str, query: str) -> tuple[float, float]:
    """(processor s, peak MB) of a command and of what it leaves behind; for `second_search` without those of a first one."""
    shutil.rmtree(side.folder / "imported", ignore_errors=True)
    with Tree() as tree:
        before = 0.0
        if row == "second_search":
            run(side, side.command(row, f"first, {query}"), tree.mark)
            before = tree.rest()
        used, _ = run(side, side.command(row, query), tree.mark)
        return used + tree.rest() - before, tree.peak / 1024


def of_app(side: Side, page: Page, port: int, module: tuple[str, ...], sign: str) -> tuple[float, float]:
    """(processor s, peak MB) of an app's server until `sign` is painted."""
    from benchmarks.serving import served

    with (
        Tree() as tree,
        patch.dict(os.environ, {MARK: tree.mark}),
        served(module, port, side.store, tree=side.checkout, preset="workbench") as (url, _),
    ):
        page.goto(url, wait_until="commit")
        page.locator(sign).wait_for(timeout=60_000)
        used = tree.used()
        page.goto("about:blank")
        return used, tree.peak / 1024


def apps(sides: Sequence[Side], rounds: int) -> None:
    """Measure the first page, next to a Streamlit app of one line; each app keeps its port and its browser cache."""
    from benchmarks.serving import QUERY_BOX, WORKBENCH, chromium, free_port

    line = Side("one line", sides[1].checkout, sides[1].folder)
    peer = line.folder / "peer.py"
    peer.write_text('import streamlit as st\nst.write("painted")\n')
    one_line = ("streamlit", "run", str(peer), "--server.headless", "true", "--server.port")
    with chromium() as launched, contextlib.closing(launched()) as browser:
        pages = [(side, browser.new_context().new_page(), free_port()) for side in (*sides, line)]
        for turn in range(rounds + 1):
            for side, page, port in pages if turn % 2 else reversed(pages):
                shown = (one_line, "text=painted") if side is line else (WORKBENCH, QUERY_BOX)
                side.measured.setdefault("app", []).append(of_app(side, page, port, *shown))
    for column, unit in ((0, "s of the processor"), (1, "MB")):
        was, now, alone = (side.median("app", column) for side in (*sides, line))
        print(f"app, one line: {alone:.2f} {unit}; before {was / alone:.2f} of it, now {now / alone:.2f}", flush=True)


def import_times(side: Side, query: str) -> str:
    """Modules that a search imports and their milliseconds, in all and of the packages that take most."""
    _, written = run(side, [*side.command("search", query)], "", "-X", "importtime")
    found = re.findall(r"^import time: +(\d+) \| +\d+ \| *([\w.]+)$", written, re.MULTILINE)
    taken: Counter[str] = Counter()
    for microseconds, module in found:
        taken[module.partition(".")[0]] += int(microseconds)
    most = ", ".join(f"{package} {took / 1000:.0f}" for package, took in taken.most_common(8))
    return f"importtime of a search, {side.name}: {len(found):,} modules, {taken.total() / 1000:,.0f} ms ({most})"


def unavailable(row: str, now: Side) -> str | None:
    """Why a row cannot be measured here."""
    if row == "million" and not now.million:
        return "give --million"
    if row == "second_search" and not (now.checkout / "cems_workbench/cli/serve.py").exists():
        return "this checkout has no server"
    if row == "app" and not shutil.which("chromium"):
        return "needs Chromium"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", required=True, metavar="COMMIT")
    parser.add_argument("--only", metavar="ROW,...", help=f"default all: {','.join(ROWS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--million", nargs=2, type=Path, metavar=("BEFORE_STORE", "NOW_STORE"))
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else ROWS
    if unknown := set(chosen) - set(ROWS):
        parser.error(f"--only {','.join(sorted(unknown))}: the rows are {','.join(ROWS)}")
    with earlier(options.against) as checkout, tempfile.TemporaryDirectory() as name:
        sides = [
            Side(side, tree, Path(name) / side, million)
            for side, tree, million in zip(
                ("before", "now"), (checkout, ROOT), options.million or (None, None), strict=True
            )
        ]
        for side in sides:
            side.folder.mkdir()
            run(side, ["import", "sample_data", "--store", str(side.store)])
            if {"evaluate", "compare"} & set(chosen):
                run(side, ["gather", "all", "--preset", PLAIN, "--out", str(side.evidence), "--store", str(side.store)])
        queries = (
            query.rstrip("?") + words for words in ("", ", again", ", please", ", now", ", today") for query in QUERIES
        )
        print(f"{'':14s}{'processor s':>11s}{'now':>8s}{'ratio':>7s}{'memory MB':>12s}{'now':>8s}{'ratio':>7s}")
        for row in chosen:
            if why := unavailable(row, sides[1]):
                print(f"{row:14s}left out: {why}")
                continue
            if row == "app":
                apps(sides, options.rounds)
            for turn in range(0 if row == "app" else options.rounds + 1):
                query = next(queries)
                for side in sides if turn % 2 else reversed(sides):
                    side.measured.setdefault(row, []).append(of_command(side, row, query))
            figures = []
            for column in (0, 1):
                was, now = (side.median(row, column) for side in sides)
                figures += [was, now, now / was]
            print(
                "{:14s}{:11.2f}{:8.2f}{:7.2f}{:12.0f}{:8.0f}{:7.2f}".format(row, *figures),
                flush=True,
            )
        print(*(import_times(side, next(queries)) for side in sides), sep="\n")


if __name__ == "__main__":
    main()
