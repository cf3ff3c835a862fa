"""Two apps and a shell at one store at once, each of them killed at random moments: nothing is lost, nothing doubled.

    python -m benchmarks.processes [--seconds 300] [--kills 30] [--seed 0] [--memories 0] [--each 1]

The apps are the real one under Streamlit's AppTest, each in a separate process: one labels as ada, the other as bo, out of one queue
in which each pair is for one reviewer, and both search on Inspect, browse Memories and begin again. The shell runs one command after the
other: import of a new memory, search, why, judgments, gather, evaluate, tune, doctor. After `--seconds` of that one of the three is
killed (SIGKILL) at a random moment and begun again, `--kills` times, while the others go on.

With `--memories 20000` searches scan the codes of the vectors, and with `--each 300` segments are merged meanwhile.

A label counts as confirmed when `Labels.give` has returned, an import when the command has ended with 0. At the end each of them has to
be there once, no pair may have two reviewers, the store has to open without a word of loss, and `doctor --deep` has to be content. The
longest wait for a turn is printed for each process. Exits 1 where something is lost, doubled or refused.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
QUEUE, MEMORIES, QUERIES = "hammer", 400, 12
CONFIRMED, WAITS, TIMES = "confirmed", "waits", "times"
ASKED = (
    "when are we moving house",
    "how do releases reach the cluster",
    "what does Ann drink",
    "rotate the database password",
)


def note(folder: Path, file: str, *values: object) -> None:
    """Add a line to a file that several processes write."""
    fd = os.open(folder / file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(fd, (json.dumps(values) + "\n").encode())
    os.close(fd)


def noted(folder: Path, file: str) -> list[list[Any]]:
    """The lines of such a file that are whole."""
    path = folder / file
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def note_waits(folder: Path, who: str) -> None:
    """Write down how long this process waited for a turn at most, by what it was a turn at."""
    from cems_workbench.platform.process_lock import _locks

    waits: dict[str, float] = {}
    # A copy: another thread may create a lock meanwhile.
    for lock in list(_locks):
        waits[lock.name] = max(lock.longest_wait_s, waits.get(lock.name, 0.0))
    for name, seconds in waits.items():
        note(folder, WAITS, who, name, seconds)


def texts(name: str, count: int) -> str:
    """So many memories as JSON lines, the first with this id."""
    rows = (
        {"id": name if not i else f"{name}-{i}", "content": f"{name} was here for the time number {i}"}
        for i in range(count)
    )
    return "".join(json.dumps(row) + "\n" for row in rows)


def make_store(folder: Path, more: int) -> None:
    """The sample and `more` memories with their vectors, and the queue."""
    from cems_workbench.evaluation.labelling.pooling import PooledPair
    from cems_workbench.evaluation.labelling.queue import make_queue
    from cems_workbench.store import Store

    run(folder, ["import", str(ROOT / "sample_data")])
    if more:
        (folder / "more.jsonl").write_text(texts("more", more))
        run(folder, ["import", str(folder / "more.jsonl")])
    with Store.open(folder / "store") as store:
        queries, memories = store.queries.read()[:QUERIES], sorted(store.memories.read())[:MEMORIES]
        pairs = [PooledPair(query.qid, key, {"cems": 1}) for key in memories for query in queries]
        store.queues.save(make_queue(QUEUE, pairs, "top"))
        store.query_sets.put("few", queries[:3], "processes")


def confirm_labels(folder: Path) -> None:
    """Have each label noted once it is committed."""
    from cems_workbench.store.labels import Labels

    give = Labels.give

    def given(self: Labels, *arguments, **named):  # type: ignore[no-untyped-def]
        event = give(self, *arguments, **named)
        if event is not None:
            note(folder, CONFIRMED, "label", event.qid, event.memory_id, event.judge, event.grade, event.id)
        return event

    Labels.give = given  # type: ignore[method-assign]


def app(folder: Path, name: str) -> None:
    """Use the app as a reviewer does, in an endless loop."""
    from streamlit.testing.v1 import AppTest

    os.environ["CEMS_WORKBENCH_STORE"] = str(folder / "store")
    confirm_labels(folder)
    grades = random.Random(os.getpid())
    page = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120).run()
    step = 0
    while True:
        page.switch_page("pages/label.py").run()
        _checked(page)
        if not step:
            page.text_input(key="reviewer:name").set_value(name).run()
            page.selectbox(key="label:chosen").select_index(
                next(i for i, option in enumerate(page.selectbox(key="label:chosen").options) if QUEUE in option)
            ).run()
        for _ in range(5):
            buttons = [button for button in page.button if str(button.key).startswith("label:grade:")]
            if buttons:
                started = time.perf_counter()
                grades.choice(buttons).click()
                _checked(page.run())
                note(folder, TIMES, name, "label", time.perf_counter() - started)
        started = time.perf_counter()
        page.switch_page("pages/inspect.py").run()
        page.text_input(key="inspect:query").set_value(ASKED[step % len(ASKED)]).run()
        _checked(page)
        note(folder, TIMES, name, "search", time.perf_counter() - started)
        started = time.perf_counter()
        _checked(page.switch_page("pages/memories.py").run())
        note(folder, TIMES, name, "memories", time.perf_counter() - started)
        step += 1
        note_waits(folder, name)


def _checked(page) -> None:  # type: ignore[no-untyped-def]
    """Raise RuntimeError where the page shows an error."""
    for shown in (*page.exception, *page.error):
        raise RuntimeError(shown.value)


def labeller(folder: Path, name: str) -> None:
    """Label as the page does, without the page, until the queue is empty."""
    from cems_workbench.evaluation.labelling.queue import LabelQueue
    from cems_workbench.records import Judgment
    from cems_workbench.store import Store

    confirm_labels(folder)
    with Store.open(folder / "store") as store:
        queue = LabelQueue(store, QUEUE)
        note(folder, TIMES, name, "begun", 0.0)
        while (card := queue.deal(name)[0]) is not None:
            store.labels.give(Judgment(card.query.qid, card.memory.id, 1, name))
        note_waits(folder, name)


def command(folder: Path, arguments: Sequence[str]) -> None:
    """A command of the shell in this process; how long it waited is noted."""
    from cems_workbench.cli.main import main

    sys.argv = ["cems-workbench", *arguments]
    try:
        main()
    finally:
        note_waits(folder, f"shell {arguments[0]}")


def started(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """This module in another process; what it says is in the folder."""
    said = (folder / f"said-{arguments[1] if arguments[0] != 'command' else 'shell'}").open("ab")
    with said:
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.processes", "--as", arguments[0], str(folder), *arguments[1:]],
            cwd=ROOT,
            stdout=said,
            stderr=said,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )


def run(folder: Path, arguments: Sequence[str]) -> None:
    """A command to its end. Raises RuntimeError where it fails."""
    process = started(folder, "command", *arguments, "--store", str(folder / "store"))
    if process.wait():
        raise RuntimeError(f"{arguments[0]} ended with {process.returncode}: {said(folder, 'shell')}")


def said(folder: Path, who: str) -> str:
    """The last words of a process."""
    return (folder / f"said-{who}").read_text(errors="replace")[-600:]


@dataclass
class Shell:
    """One command after the other."""

    folder: Path
    each: int = 1
    turn: int = 0
    done: Counter[str] = field(default_factory=Counter)
    process: subprocess.Popen[bytes] | None = None
    arguments: Sequence[str] = ()
    problems: list[str] = field(default_factory=list)

    def commands(self) -> Sequence[Sequence[str]]:
        """The commands of a round; each imports different memories."""
        (self.folder / f"shell-{self.turn}.jsonl").write_text(texts(f"shell-{self.turn}", self.each))
        evidence, query = str(self.folder / f"{self.turn}.evidence"), ASKED[self.turn % len(ASKED)]
        return (
            ("import", str(self.folder / f"shell-{self.turn}.jsonl")),
            ("search", query, "--preset", "recollection"),
            ("why", query, f"shell-{self.turn}", "--preset", "recollection"),
            ("judgments", "--format", "qrels", "--out", str(self.folder / "qrels")),
            ("gather", "few", "--preset", "cems", "--set", "rerank.backend=none", "--out", evidence),
            ("evaluate", evidence, "--preset", "cems", "--set", "rerank.backend=none"),
            (
                "tune",
                evidence,
                "--preset",
                "cems",
                "--set",
                "rerank.backend=none",
                "--trials",
                "4",
                "--out",
                f"{evidence}.yaml",
            ),
            ("doctor",),
        )

    def look(self) -> None:
        """Note what has ended, and begin the next."""
        if self.process is not None:
            code = self.process.poll()
            if code is None:
                return
            name = self.arguments[0]
            if code == 0 and name == "import":
                for line in texts(f"shell-{self.turn}", self.each).splitlines():
                    note(self.folder, CONFIRMED, "memory", json.loads(line)["id"])
            if code == 0:
                self.done[name] += 1
            elif code > 0:
                self.problems.append(f"{name} ended with {code}: {said(self.folder, 'shell')}")
        names = [each[0] for each in self.commands()]
        place = names.index(self.arguments[0]) + 1 if self.arguments else 0
        if place == len(names) or (self.process is not None and self.process.returncode):
            place, self.turn = 0, self.turn + 1
        self.arguments = self.commands()[place]
        takes_store = () if self.arguments[0] == "evaluate" else ("--store", str(self.folder / "store"))
        self.process = started(self.folder, "command", *self.arguments, *takes_store)


def hammer(folder: Path, seconds: float, kills: int, seed: int, each: int) -> list[str]:
    """Let them all work, then kill one after the other; what went wrong."""
    chance, shell = random.Random(seed), Shell(folder, each)
    apps = {name: started(folder, "app", name) for name in ("ada", "bo")}
    problems: list[str] = []
    killed: Counter[str] = Counter()

    def look() -> None:
        shell.look()
        for name, process in apps.items():
            if process.poll() is not None:
                problems.append(f"{name} ended with {process.returncode}: {said(folder, name)}")
                apps[name] = started(folder, "app", name)
        time.sleep(0.05)

    def work(until: float) -> None:
        while time.monotonic() < until:
            look()

    def labels(name: str) -> int:
        return sum(1 for line in noted(folder, TIMES) if line[0] == name)

    try:
        work(time.monotonic() + seconds)
        print(
            f"after {seconds:.0f} s: {dict(shell.done)}, {Counter(str(line[0]) for line in noted(folder, TIMES))}",
            flush=True,
        )
        for _ in range(kills):
            victim = chance.choice(["ada", "bo", "shell"])
            before, limit = labels(victim), time.monotonic() + 60
            while victim != "shell" and labels(victim) == before and time.monotonic() < limit:
                look()  # it has begun again and is at work
            work(time.monotonic() + chance.uniform(0.1, 3.0))
            process = shell.process if victim == "shell" else apps[victim]
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
                killed[victim] += 1
            if victim != "shell":
                apps[victim] = started(folder, "app", victim)
        work(time.monotonic() + (10 if kills else 0))
    finally:
        for process in (*apps.values(), shell.process):
            if process is not None:
                process.kill()
                process.wait()
    if kills:
        print(f"killed: {dict(killed)}")
    return problems + shell.problems


def verify(folder: Path) -> list[str]:
    """What is lost, doubled or damaged."""
    from cems_workbench.store import Store

    problems = []
    with Store.open(folder / "store") as store:
        problems += [line for line in store.notices if " lost: the log " in line]
        memories = store.memories.read()
        grades = {(each.qid, each.memory_id, each.judge): each.grade for each in store.judgments.read()}
        judges = {str(line[3]) for line in noted(folder, CONFIRMED) if line[0] == "label"}
        events = Counter(event.id for judge in judges for event in store.labels.history(judge))
        pairs: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for qid, memory_id, judge in grades:
            if judge in judges:
                pairs[qid, memory_id].add(judge)
    done = Counter(line[0] for line in noted(folder, CONFIRMED))
    for kind, *values in noted(folder, CONFIRMED):
        if kind == "memory" and values[0] not in memories:
            problems.append(f"lost: memory {values[0]}")
        if kind == "label" and (grades.get(tuple(values[:3])) != values[3] or events[values[4]] != 1):
            problems.append(f"lost: label {values}")
    labels = [tuple(line[1:4]) for line in noted(folder, CONFIRMED) if line[0] == "label"]
    problems += [f"doubled: label {label} was confirmed {n} times" for label, n in Counter(labels).items() if n > 1]
    problems += [f"doubled: pair {pair} has labels of {sorted(who)}" for pair, who in pairs.items() if len(who) > 1]
    print(f"confirmed: {done['label']} labels, {done['memory']} imports")
    return problems


def table(folder: Path) -> None:
    """Print the longest waits, and how long the pages took."""
    waits: dict[tuple[str, str], float] = {}
    for who, name, seconds in noted(folder, WAITS):
        key = str(name), str(who)
        waits[key] = max(waits.get(key, 0.0), seconds)
    print("longest wait for a turn, in seconds:")
    for (name, who), seconds in sorted(waits.items()):
        print(f"  {name:18} {who:18} {seconds:.2f}")
    steps: defaultdict[str, list[float]] = defaultdict(list)
    for _, step, seconds in noted(folder, TIMES):
        steps[step].append(seconds)
    for step, found in steps.items():
        found.sort()
        half, most = found[len(found) // 2], found[int(0.95 * len(found))]
        print(f"  page {step:10} n={len(found)} p50 {half:.2f} p95 {most:.2f} max {found[-1]:.2f} s")


def main() -> None:
    """Run it all, or be one of the processes."""
    if sys.argv[1:2] == ["--as"]:
        role, place, *rest = sys.argv[2:]
        if role == "command":
            command(Path(place), rest)
        else:
            {"app": app, "labeller": labeller}[role](Path(place), rest[0])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memories", type=int, default=0, help="made-up memories besides the sample's")
    parser.add_argument("--each", type=int, default=1, help="memories that each import brings")
    parser.add_argument("--keep", type=Path, help="work in this folder, and leave it")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="cems-processes-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        make_store(folder, options.memories)
        (folder / WAITS).unlink(missing_ok=True)
        problems = hammer(folder, options.seconds, options.kills, options.seed, options.each)
        problems += verify(folder)
        with suppress(RuntimeError):
            run(folder, ["search", ASKED[0], "--preset", "recollection"])
        try:
            run(folder, ["doctor", "--deep"])
        except RuntimeError as error:
            problems.append(str(error))
        table(folder)
        for line in problems:
            print(f"PROBLEM {line}")
        print("nothing lost, nothing doubled" if not problems else f"{len(problems)} problems")
        sys.exit(bool(problems))
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
