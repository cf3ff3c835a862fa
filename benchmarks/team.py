"""Four apps and sixteen reviewers on one team's database, which restarts in between: no label is lost, none is there twice.

    python -m benchmarks.team [--labels 8000] [--apps 4] [--reviewers 16] [--seed 0]

A real PostgreSQL, and a store for each app; each app is a process with its share of the reviewers, a thread each, as the sessions of a page
are. They work off four queues in which each pair is for four reviewers: a card is dealt, graded with what the Label page calls, and the
next one dealt. One label in fifty is taken back and given again. The database restarts three times: in order at a quarter of the labels, as
after a crash at half, and with three seconds away at three quarters. At 40 % one app is killed (SIGKILL) and begun again.

A label counts as confirmed when `give_grade` has returned. At the end each confirmed one has to be there, with the grade given last; each
pair has to have four labels of four reviewers; and no step may stand twice in the history. Exits 1 where something is lost or doubled.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from benchmarks.processes import note as write_note
from benchmarks.processes import noted
from cems_workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from cems_workbench.evaluation.labelling.queue import Card
    from cems_workbench.store import Store
    from tests.integration.postgres_server import Server

T = TypeVar("T")
ROOT = Path(__file__).parents[1]
CONFIRMED, WAITED, REFUSED = "confirmed", "waited", "refused"
QUEUES, OVERLAP, TAKEN_BACK = 4, 4, 0.02
QUERIES = 25


@dataclass(frozen=True)
class Outcome:
    """What came of it: counts, and the seconds of the whole and of the longest label."""

    labels: int
    lost: int
    doubled: int
    unconfirmed: int
    """Labels that are there and were not confirmed: those that a killed app was at."""
    refused: int
    """Calls that gave up with a line and were made again."""
    seconds: float
    longest: float
    restarts: tuple[float, ...] = ()

    def __str__(self) -> str:
        """A line."""
        away = ", ".join(f"{seconds:.1f}" for seconds in self.restarts)
        return (
            f"{self.labels:,} labels in {self.seconds:.0f} s ({self.labels / self.seconds:.0f} a second): {self.lost} lost, "
            f"{self.doubled} doubled; {self.unconfirmed} of a killed app, {self.refused} refused and given again; "
            f"restarts of {away} s, longest label {self.longest:.1f} s"
        )


def make_stores(folder: Path, team: str, labels: int, apps: int) -> int:
    """A store for each app, and the queues in the team's database; how many labels they ask for."""
    from cems_workbench.evaluation.labelling.pooling import PooledPair
    from cems_workbench.evaluation.labelling.queue import make_queue
    from cems_workbench.records import Memory, ParsedInput, Query
    from cems_workbench.store import Store

    each = labels // (QUEUES * OVERLAP)
    queries = tuple(Query(f"q{number}", f"question number {number}") for number in range(QUERIES))
    memories = tuple(Memory(f"m{number}", f"text number {number}") for number in range(QUEUES * each // QUERIES + 1))
    pairs = [PooledPair(query.qid, memory.id, {"a": 1}) for memory in memories for query in queries]
    with Store.open(folder / "store-0", team=team) as store:
        store.add(ParsedInput("team.jsonl", "team", memories=memories, queries=queries))
        for number in range(QUEUES):
            part = pairs[number * each : (number + 1) * each]
            store.queues.save(make_queue(f"queue {number}", part, "top", OVERLAP))
    for number in range(1, apps):
        shutil.copytree(folder / "store-0", folder / f"store-{number}")
    return each * QUEUES * OVERLAP


def app(folder: Path, number: int, names: Sequence[str], seed: int) -> None:
    """The sessions of one app, until nothing is left for them."""
    from cems_workbench.store import Store

    with Store.open(folder / f"store-{number}", team=os.environ["CEMS_WORKBENCH_TEAM"]) as store:
        threads = [threading.Thread(target=review, args=(folder, store, name, f"{seed}/{name}")) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def review(folder: Path, store: Store, name: str, seed: str) -> None:
    """A reviewer at work, queue by queue."""
    from cems_workbench.evaluation.labelling.queue import LabelQueue

    draw, longest = random.Random(seed), 0.0
    for number in range(QUEUES):
        queue = insist(folder, partial(LabelQueue, store, f"queue {number}"))
        while True:
            card, _ = insist(folder, partial(queue.deal, name))
            if card is not None:
                longest = max(longest, grade(folder, store, card, name, draw))
            elif insist(folder, partial(queue.progress, name)).left:
                time.sleep(0.2)  # others look at what is left
            else:
                break
    write_note(folder, WAITED, name, longest)


def grade(folder: Path, store: Store, card: Card, name: str, draw: random.Random) -> float:
    """Grade a card, some twice, and write down what was confirmed; the seconds that the longest took."""
    from cems_workbench.jobs.labelling import give_grade

    longest, pair = 0.0, (card.query.qid, card.memory.id)
    for turn in range(2 if draw.random() < TAKEN_BACK else 1):
        if turn:
            insist(folder, partial(store.labels.undo, name))
            write_note(folder, CONFIRMED, "undo", name, *pair, None)
        started, given = time.monotonic(), draw.randrange(4)
        insist(folder, partial(give_grade, store, *pair, given, name, shown=card.shown()))
        longest = max(longest, time.monotonic() - started)
        write_note(folder, CONFIRMED, "label", name, *pair, given)
    return longest


def insist(folder: Path, call: Callable[[], T]) -> T:
    """What a call returns; one that is refused is made again, as a person presses again."""
    while True:
        try:
            return call()
        except WorkbenchError as error:
            write_note(folder, REFUSED, str(error))


def begin(folder: Path, team: str, number: int, names: Sequence[str], seed: int) -> subprocess.Popen[bytes]:
    """An app in a separate process; its output is in the folder."""
    with (folder / f"said-{number}").open("ab") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.team", "--as", str(folder), str(number), *names, "--seed", str(seed)],
            cwd=ROOT,
            stdout=said,
            stderr=said,
            env={**os.environ, "CEMS_WORKBENCH_TEAM": team},
        )


def measured(
    labels: int, apps: int, reviewers: int, seed: int, server: Server, folder: Path, team: str, kill: bool = True
) -> Outcome:
    """Label to the end while the database restarts and an app is killed."""
    wanted = make_stores(folder, team, labels, apps)
    names = [[f"reviewer {number}" for number in range(reviewers) if number % apps == one] for one in range(apps)]
    started = time.monotonic()
    processes = [begin(folder, team, one, names[one], seed) for one in range(apps)]
    events = [(0.25, "fast", 0.0), (0.4, "kill", 0.0), (0.5, "immediate", 0.0), (0.75, "fast", 3.0)]
    if not kill:
        events = [(0.3, "immediate", 0.0)]
    restarts = []
    while any(process.poll() is None for process in processes):
        time.sleep(0.1)
        if events and len(noted(folder, CONFIRMED)) >= events[0][0] * wanted:
            _, what, away = events.pop(0)
            if what == "kill":
                processes[0].send_signal(signal.SIGKILL)
                processes[0].wait()
                processes[0] = begin(folder, team, 0, names[0], seed + 1)
            else:
                stopped = time.monotonic()
                server.restart(what, away)
                restarts.append(time.monotonic() - stopped)
    seconds = time.monotonic() - started
    for number, process in enumerate(processes):
        if process.returncode:
            raise RuntimeError((folder / f"said-{number}").read_text(errors="replace")[-2000:])
    if events:
        raise RuntimeError(f"it was over before {events[0]}")
    return _compared(folder, team, seconds, tuple(restarts))


def _compared(folder: Path, team: str, seconds: float, restarts: tuple[float, ...]) -> Outcome:
    """What is in the database against what was confirmed."""
    from cems_workbench.store import Store

    confirmed = noted(folder, CONFIRMED)
    last = {(name, qid, memory_id): grade for _, name, qid, memory_id, grade in confirmed}
    with Store.open(folder / "store-0", team=team) as store:
        there = {(one.judge, one.qid, one.memory_id): one.grade for one in store.judgments.read()}
        history = [event for name in {key[0] for key in there} for event in store.labels.history(name)]
        pairs = [pair for number in range(QUEUES) for pair in store.queues.pairs(f"queue {number}")]
    lost = sum(there.get(key) != grade for key, grade in last.items() if grade is not None)
    graders = Counter((qid, memory_id) for _, qid, memory_id in there)
    lost += sum(max(0, OVERLAP - graders[pair]) for pair in pairs)
    steps = Counter((event.action, event.judge, event.qid, event.memory_id) for event in history)
    said = Counter((what, name, qid, memory_id) for what, name, qid, memory_id, _ in confirmed)
    more, unconfirmed = steps - said, there.keys() - {key for key, grade in last.items() if grade is not None}
    lost += (said - steps).total()
    of_killed = {("label", *key) for key in unconfirmed}
    doubled = sum(count for step, count in more.items() if step not in of_killed or count > 1)
    doubled += sum(max(0, graders[pair] - OVERLAP) for pair in pairs)
    longest = max(longest for _, longest in noted(folder, WAITED))
    refused = len(noted(folder, REFUSED))
    return Outcome(len(there), lost, doubled, len(unconfirmed), refused, seconds, longest, restarts)


def main() -> int:
    """Measure, or be an app."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=8_000)
    parser.add_argument("--apps", type=int, default=4)
    parser.add_argument("--reviewers", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--as", dest="role", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        folder, number, *names = options.role
        app(Path(folder), int(number), names, options.seed)
        return 0
    from tests.integration.postgres_server import running

    with running() as server, tempfile.TemporaryDirectory(prefix="cems-team-") as folder:
        with server.connect() as connection:
            connection.execute("CREATE DATABASE team")
        team = server.address("team", "postgres")
        outcome = measured(options.labels, options.apps, options.reviewers, options.seed, server, Path(folder), team)
    print(outcome)
    return int(bool(outcome.lost or outcome.doubled))


if __name__ == "__main__":
    sys.exit(main())
