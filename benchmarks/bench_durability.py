"""Labels under fire: eight sessions labelling at once, and a process killed at random points of its work.

    python -m benchmarks.bench_durability [--sessions 8] [--labels 1000] [--kills 50] [--seed 0]

First: every session, a thread over one store as in the app, labels the same pairs under its own name; afterwards each label has to
be there once, with its author. Second: a process labels and prints a line after each; it is killed (SIGKILL) after a random time and
the store is opened again; every label whose line was printed has to be there. Exits 1 when a label is lost, doubled, or changed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from cems_workbench.records import Judgment, Memory, ParsedInput, Query
from cems_workbench.store import Store

ROOT = Path(__file__).parents[1]
QUERIES = 20
LABEL_FOR_EVER = """
import sys, pathlib
from cems_workbench.records import Judgment
from cems_workbench.store import Store
store = Store.open(pathlib.Path(sys.argv[1]))
reviewer, memories = sys.argv[2], sorted(store.memories.read())
print("ready", flush=True)
for n in range(10**9):
    qid, memory_id = f"q{n // len(memories) % 20}", memories[n % len(memories)]
    event = store.labels.give(Judgment(qid, memory_id, (n + n // (20 * len(memories))) % 4, reviewer))
    if event is not None:
        print(event.id, qid, memory_id, event.grade, flush=True)
"""


def fill(store: Store, memories: int) -> list[tuple[str, str]]:
    """Memories and queries to label; returns the pairs in their order."""
    store.add(
        ParsedInput(
            "bench.jsonl",
            "bench",
            memories=tuple(Memory(f"m{n:05}", f"text {n}") for n in range(memories)),
            queries=tuple(Query(f"q{n}", f"query {n}") for n in range(QUERIES)),
        )
    )
    return [(f"q{n % QUERIES}", f"m{n % memories:05}") for n in range(memories)]


def concurrent_sessions(home: Path, sessions: int, labels: int) -> tuple[list[str], list[float]]:
    """What went wrong when `sessions` threads give `labels` labels each, and how long each label took in seconds."""
    wrong: list[str] = []
    times: list[float] = []
    with Store.open(home) as store:
        pairs = fill(store, labels)

        def session(number: int) -> None:
            for place, (qid, memory_id) in enumerate(pairs):
                started = time.perf_counter()
                try:
                    store.labels.give(Judgment(qid, memory_id, (place + number) % 4, f"reviewer {number}"))
                except Exception as error:
                    wrong.append(f"reviewer {number}: {type(error).__name__}: {error}")
                times.append(time.perf_counter() - started)

        threads = [threading.Thread(target=session, args=(number,)) for number in range(sessions)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with Store.open(home) as store:  # what is on disk
        found = [(one.judge, one.qid, one.memory_id, one.grade) for one in store.judgments.read()]
    expected = {
        (f"reviewer {number}", qid, memory_id, (place + number) % 4)
        for number in range(sessions)
        for place, (qid, memory_id) in enumerate(pairs)
    }
    wrong += [f"lost or changed: {label}" for label in sorted(expected - set(found))[:5]]
    if len(found) != len(set(found)):
        wrong.append(f"doubled: {len(found) - len(set(found))} labels")
    wrong += [f"not given: {label}" for label in sorted(set(found) - expected)[:5]]
    return wrong, times


def killed_process(home: Path, kills: int, seed: int) -> tuple[list[str], int]:
    """What went wrong when a labelling process is killed `kills` times, and how many labels it had confirmed in all."""
    drawn = random.Random(seed)
    wrong: list[str] = []
    confirmed_in_all = 0
    with Store.open(home) as store:
        fill(store, 500)
    for kill in range(kills):
        lines = _label_until_killed(home, f"killed {kill}", drawn.uniform(0.0, 0.6))
        confirmed_in_all += len(lines)
        last: dict[tuple[str, str], int] = {}
        for line in lines:
            _, qid, memory_id, grade = line.split()
            last[qid, memory_id] = int(grade)
        with Store.open(home) as store:
            found = {
                (one.qid, one.memory_id): one.grade for one in store.judgments.read() if one.judge == f"killed {kill}"
            }
            events = {event.id for event in store.labels.history(f"killed {kill}")}
        lost = [pair for pair, grade in last.items() if found.get(pair) != grade]
        if lost:
            wrong.append(f"kill {kill}: {len(lost)} confirmed labels are gone, e.g. {lost[0]}")
        if len(found) - len(last) not in (0, 1):  # the one that was committed and not yet said
            wrong.append(f"kill {kill}: {len(found)} labels are there and {len(last)} were confirmed")
        missing = {int(line.split()[0]) for line in lines} - events
        if missing:
            wrong.append(f"kill {kill}: {len(missing)} events are gone")
    return wrong, confirmed_in_all


def _label_until_killed(home: Path, reviewer: str, seconds: float) -> list[str]:
    """The lines a labelling process printed in full before it was killed, `seconds` after it was ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", LABEL_FOR_EVER, str(home), reviewer],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    printed, _ = process.communicate()
    return [line for line in printed.splitlines(keepends=True) if line.endswith("\n")]


def main() -> int:
    """Run both and print; 1 when anything went wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--labels", type=int, default=1000, help="labels of each session")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        started = time.perf_counter()
        wrong, times = concurrent_sessions(Path(home) / "sessions", options.sessions, options.labels)
        seconds = time.perf_counter() - started
        print(
            f"{options.sessions} sessions, {options.labels} labels each: {len(times)} labels in {seconds:.1f} s; a label took "
            f"{statistics.median(times) * 1e3:.1f} ms, p95 {sorted(times)[int(len(times) * 0.95)] * 1e3:.1f} ms"
        )
        lost, confirmed = killed_process(Path(home) / "killed", options.kills, options.seed)
        print(f"killed {options.kills} times: {confirmed} labels had been confirmed")
    for line in [*wrong, *lost]:
        print(f"WRONG: {line}")
    print("nothing lost, nothing doubled" if not wrong and not lost else f"{len(wrong) + len(lost)} things went wrong")
    return int(bool(wrong or lost))


if __name__ == "__main__":
    sys.exit(main())
