"""How long one session holds up the others: eight sessions of one server, of which one imports 20,000 memories.

    python -m benchmarks.bench_blocking [--against WORKTREE] [--memories 20000] [--seconds 60]

Three sessions move a slider, three type new queries, one labels, each several times a second at most, and one imports a file with
its page's button. The server measures itself, every few milliseconds, without what the machine keeps a thread from by its other work
(/proc/self/task/*/schedstat):

    locks               how long a page's thread stands at the same lock of ours, Streamlit's or Python's, the importing page left out
    interpreter lock    how late a thread wakes that sleeps 2 ms at a time, less the time it was ready to run

Waits shorter than 20 ms are not counted. The same is measured before the import begins. Needs Chromium.
"""

from __future__ import annotations

import argparse
import json
import linecache
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

LOG = "BLOCKING_LOG"
NAP_S, LATE_S = 0.002, 0.02
"""How long the sleeping thread sleeps, and the shortest wait that is written down."""
LOCKS, INTERPRETER = "locks", "interpreter lock"
IMPORTING = "ui/memories/importing"
"""The page that waits for its own import."""
SLIDER, QUEUE = "Score blend", "bench"
KEYS = ("End", "Home")
SLIDERS = SEARCHERS = 3
CARDS = 5_000


def _ready_s(thread: str = "thread-self") -> float:
    """Seconds for which a thread of this process was ready to run but did not."""
    return int(Path(f"/proc/{thread}/schedstat").read_text("ascii").split()[1]) / 1e9


def serve(arguments: Sequence[str]) -> None:
    """Be the server, and write down for how long its pages stand at locks, and the sleeping thread at the interpreter's."""
    with Path(os.environ[LOG]).open("a", buffering=1) as out:

        def write(kind: str, place: str, seconds: float) -> None:
            out.write(json.dumps([time.time(), kind, place, round(1000 * seconds, 1)]) + "\n")

        for work in (_nap, _watch):
            threading.Thread(target=work, args=(write,), daemon=True).start()
        sys.path[0] = str(Path.cwd())  # instead of this file's folder
        sys.argv = ["cems_workbench", *arguments]
        runpy.run_module("cems_workbench", run_name="__main__", alter_sys=True)


def _nap(write: Callable[[str, str, float], None]) -> None:
    while True:
        started, before = time.perf_counter(), _ready_s()
        time.sleep(NAP_S)
        late = time.perf_counter() - started - NAP_S - (_ready_s() - before)
        if late > LATE_S:
            write(INTERPRETER, "", late)


def _watch(write: Callable[[str, str, float], None]) -> None:
    """Look where the threads of pages are; one that is at the same step of the same function twice, at a lock, waits there."""
    stood: dict[int, Stand] = {}
    while True:
        time.sleep(NAP_S * 4)
        frames, now = sys._current_frames(), time.perf_counter()
        for thread in threading.enumerate():
            frame, number = frames.get(thread.ident or 0), thread.native_id or 0
            if frame is None or "ScriptRunner" not in thread.name:
                continue
            try:
                ready = _ready_s(f"self/task/{number}")
            except OSError:  # it has ended
                continue
            step, known = (id(frame), frame.f_lasti), stood.get(number)
            moved = known is None or known.step != step
            if known is not None and known.place and (moved or now > known.told + 1):
                known.told = now  # one that never ends is written down as well
                if (waited := now - known.since - (ready - known.ready)) > LATE_S:
                    write(LOCKS, f"{known.place}#{number}:{known.since}", waited)
            if moved:
                stood[number] = Stand(step, _lock_of(frame), now, ready, now)


@dataclass
class Stand:
    """Where a thread stands: the step of its function, the lock that it waits for (empty without), and since when."""

    step: tuple[int, int]
    place: str
    since: float
    ready: float
    told: float


def _lock_of(frame: FrameType) -> str:
    """Where a thread is if it takes a lock, for a page other than the importing one; otherwise empty."""
    code, line = frame.f_code, linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    at_lock = "acquire(" in line or (line.startswith("with ") and ("lock" in line.lower() or "_refreshing" in line))
    if not at_lock and not (
        code.co_filename.endswith("threading.py") and code.co_name in ("wait", "acquire", "__enter__")
    ):
        return ""
    own, outer = "", frame
    while outer is not None:
        name = outer.f_code.co_filename
        if IMPORTING in name or "cems_workbench/models" in name:  # a model's threads work for this one
            return ""
        if "cems_workbench" in name and not own:
            own = f"{Path(name).name}:{outer.f_code.co_name}"
        outer = outer.f_back  # type: ignore[assignment]
    return f"{own or Path(code.co_filename).name}: {line}"


@contextmanager
def served(tree: Path, store: Path, log: Path) -> Iterator[str]:
    """The server of a checkout under measurement; its URL."""
    from unittest.mock import patch

    from benchmarks import serving

    with patch.dict(os.environ, {LOG: str(log)}):
        module = (str(Path(__file__).resolve()), "app", "--headless", "--port")
        with serving.served(module, serving.free_port(), store, tree=tree, script=True) as (url, _):
            yield url


def stocked(folder: Path, tree: Path) -> Path:
    """The sample, imported by a checkout, with a queue of cards nobody judged."""
    store = folder / "store"
    queue = f"from pathlib import Path; from benchmarks.bench_label import queue_of; queue_of(Path({str(store)!r}), {CARDS})"
    for command in (["-m", "cems_workbench", "import", "sample_data", "--store", str(store)], ["-c", queue]):
        subprocess.run([sys.executable, *command], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    return store


def write_memories(path: Path, count: int) -> Path:
    """A file of made-up memories."""
    from benchmarks.scale_memories import memories

    with path.open("w", encoding="utf-8") as file:
        for memory in memories(count):
            file.write(json.dumps({"id": f"big-{memory.id}", "content": memory.content}) + "\n")
    return path


def measured(tree: Path, folder: Path, upload: Path, seconds: float) -> dict[str, list[tuple[float, str, str, float]]]:
    """What was written down before the import and while it was at work, at most `seconds` of each."""
    from benchmarks.crowd import queries
    from benchmarks.serving import chromium
    from tests.browser.pages import Inspect, Label, window_on

    log = folder / "log"
    with (
        served(tree, stocked(folder, tree), log) as url,
        chromium() as launched,
        closing(launched()) as browser,
        ExitStack() as windows,
    ):
        texts = queries(200)
        inspects = []
        for query in texts[: SLIDERS + SEARCHERS]:
            inspects.append(Inspect.open(windows.enter_context(window_on(browser, url))))
            inspects[-1].search(query)
        labeller = Label.open(windows.enter_context(window_on(browser, url)), "bench", QUEUE)
        labeller.page.evaluate("document.activeElement.blur()")
        importer = windows.enter_context(window_on(browser, url))
        importer.open("memories")
        importer.view("Import")
        importer.page.locator("input[type=file]").first.set_input_files(str(upload))
        importer.settled()

        def work(until: float, over: Any = None) -> None:
            turn = 0
            while time.monotonic() < until and not (over and over()):
                for inspect in inspects[:SLIDERS]:
                    slider = inspect.page.get_by_role("slider", name=SLIDER)
                    slider.focus()
                    slider.press(KEYS[turn % 2])
                if turn % 4 == 0:
                    for number, inspect in enumerate(inspects[SLIDERS:]):
                        inspect.query.fill(texts[SLIDERS + SEARCHERS + (3 * turn // 4 + number) % 190])
                        inspect.query.press("Enter")
                labeller.page.keyboard.press(str(turn % 4))
                labeller.page.wait_for_timeout(300)
                turn += 1

        marks = [time.time()]
        work(time.monotonic() + seconds / 2)
        marks.append(time.time())
        importer.page.get_by_role("button", name="Import", exact=True).last.click()
        report = importer.page.get_by_text("Last import")
        work(time.monotonic() + seconds, lambda: report.count() > 0 and report.is_visible())
        marks.append(time.time())
    rows = [tuple(json.loads(line)) for line in log.read_text("utf-8").splitlines()]
    before, began, ended = marks
    return {
        "before": [row for row in rows if before <= row[0] < began],
        "during": [row for row in rows if began <= row[0] < ended],
    }


def main() -> None:
    """Measure this checkout, and another one if it is given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", type=Path, help="a checkout of another commit")
    parser.add_argument("--memories", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the import at most; half of it before")
    asked = parser.parse_args()
    from benchmarks.serving import ROOT

    print("| checkout | import | milliseconds at | waits | p95 | longest | where |\n|---|---|---|---|---|---|---|")
    for tree in [*([asked.against.resolve()] if asked.against else []), ROOT]:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            upload = write_memories(folder / "many.jsonl", asked.memories)
            for when, rows in measured(tree, folder, upload, asked.seconds).items():
                for kind in (LOCKS, INTERPRETER):
                    longest = {row[2] or str(row[0]): row[3] for row in rows if row[1] == kind}  # the last of each wait
                    waits = sorted((held, place.partition("#")[0]) for place, held in longest.items())
                    p95, most = (waits[int(0.95 * (len(waits) - 1))], waits[-1]) if waits else ((0, ""), (0, ""))
                    where = most[1] if kind == LOCKS else ""
                    cells = (tree.name, when, kind, len(waits), f"{p95[0]:.0f}", f"{most[0]:.0f}", where)
                    print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    if LOG in os.environ:
        serve(sys.argv[1:])
    else:
        main()
