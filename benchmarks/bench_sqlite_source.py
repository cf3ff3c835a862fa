"""What reading a SQLite file costs, against plain `sqlite3`, and what the program that writes to it notices.

    python -m benchmarks.bench_sqlite_source [--n 200000] [--rounds 2] [--seconds 10]

(a) memories a second of a snapshot, against rows a second of `sqlite3` reading the same columns; alternated, each side's best round;
(b) memory: the highest resident size of a process that reads 20,000 memories, and of one that reads all;
(c) a writer that commits row after row, in WAL mode and with a rollback journal, alone and while the file is read and searched: its longest
    commit, its longest wait for a lock, whether every committed row is there at the end, and the files in the folder.

Exits 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import resource
import sqlite3
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from cems_workbench.platform import start_up
from cems_workbench.sources.address import parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.source import EngineQuery
from tests.sqlite_writer import Written, hammering, make_notes

DIMENSION = 384
FEW = 20_000
LEAST_RATIO = 0.05
MOST_GROWTH_MB = 40
MOST_WAIT_S = 0.05
COLUMNS = "id, body, title, created_at, user_id, embedding"


def plain(path: Path) -> int:
    """Read the rows with sqlite3 alone."""
    with closing(sqlite3.connect(path)) as connection:
        return sum(1 for _ in connection.execute(f"SELECT {COLUMNS} FROM notes"))


def snapshot(path: Path) -> int:
    """Take all memories from the file."""
    with start_up.paused(), closing(open_source(parse(f"sqlite:{path}"))) as source, source.snapshot() as found:
        return sum(len(batch.taken) for batch in found.batches(lambda ids, _: ids))


def resident(path: Path) -> float:
    """The highest resident size (MB) of this process after a snapshot."""
    snapshot(path)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def read_and_search(path: Path, seconds: float) -> int:
    """Take snapshots and search for so long; returns the number of rounds."""
    rounds, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        snapshot(path)
        with closing(open_source(parse(f"sqlite:{path}"))) as source:
            source.search(EngineQuery("", np.ones(DIMENSION, np.float32), {"vector": 10}))
        rounds += 1
    return rounds


def beside_a_writer(folder: Path, journal: str, count: int, seconds: float) -> bool:
    """Part (c) of one kind of journal; returns whether all targets are met."""
    path = folder / "notes.db"
    make_notes(path, count, DIMENSION, "wal" if journal == "wal" else "delete")
    committed = 0

    def written(read: bool) -> tuple[Written, int]:
        nonlocal committed
        with closing(sqlite3.connect(path)) as owner, owner:
            owner.execute("UPDATE notes SET uid = 'earlier' || rowid WHERE uid LIKE 'w%'")
        with hammering(path) as done:
            rounds = 0
            if read:
                rounds = read_and_search(path, seconds)
            else:
                time.sleep(seconds)
        committed += done.rows
        return done, rounds

    alone, _ = written(read=False)
    beside, rounds = written(read=True)
    with closing(sqlite3.connect(path)) as owner:
        there = owner.execute("SELECT count(*) FROM notes").fetchone()[0]
        sound = owner.execute("PRAGMA integrity_check").fetchone()[0]
    files = sorted(each.name for each in folder.iterdir())
    print(
        f"(c) {journal}: {alone.rows:,} commits alone, {beside.rows:,} during {rounds} rounds of reading; longest commit "
        f"{alone.longest * 1000:.0f} and {beside.longest * 1000:.0f} ms, longest wait for a lock {beside.locked * 1000:.0f} ms (at most "
        f"{MOST_WAIT_S * 1000:.0f}); {there:,} of {count + committed:,} rows are there, {sound}; files: {', '.join(files)}"
    )
    kept = there == count + committed and sound == "ok" and files == ["notes.db"]
    # What the two longest commits differ by is also the machine's other work: the reading itself takes its processors and its disk.
    return kept and beside.locked <= alone.locked + MOST_WAIT_S


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--n", type=int, default=200_000)
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument("--seconds", type=float, default=10.0)
    asked = arguments.parse_args()
    missed = []
    with tempfile.TemporaryDirectory() as place:
        path, few = Path(place) / "notes.db", Path(place) / "few.db"
        make_notes(path, asked.n, DIMENSION)
        make_notes(few, FEW, DIMENSION)
        best = {plain: 0.0, snapshot: 0.0}
        for _ in range(asked.rounds):
            for read in best:
                started = time.perf_counter()
                assert read(path) == asked.n
                best[read] = max(best[read], asked.n / (time.perf_counter() - started))
        ratio = best[snapshot] / best[plain]
        print(
            f"(a) rows a second: snapshot {best[snapshot]:,.0f}, sqlite3 {best[plain]:,.0f}, ratio {ratio:.2f} (at least {LEAST_RATIO})"
        )
        missed += ["a"] * (ratio < LEAST_RATIO)
        sizes = []
        for each in (few, path):
            with ProcessPoolExecutor(1, get_context("spawn")) as alone:
                sizes.append(alone.submit(resident, each).result())
        print(
            f"(b) resident at most {sizes[0]:,.0f} MB for {FEW:,} memories, {sizes[1]:,.0f} MB for {asked.n:,} "
            f"(at most {MOST_GROWTH_MB} MB more)"
        )
        missed += ["b"] * (sizes[1] > sizes[0] + MOST_GROWTH_MB)
    for journal in ("wal", "rollback journal"):
        with tempfile.TemporaryDirectory() as place:
            missed += [f"c {journal}"] * (not beside_a_writer(Path(place), journal, asked.n, asked.seconds))
    sys.exit(f"targets missed: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
