"""A program that writes to a SQLite file as fast as it can, a row a commit: `hammering` runs it in a separate process.

    python -m tests.sqlite_writer FILE

It writes until its input is closed, then prints JSON: the rows committed, the longest commit, and the longest time that another's lock kept
a commit waiting (seconds).
"""

from __future__ import annotations

import json
import select
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

Journal = Literal["wal", "delete", "truncate", "persist"]
ROOT = Path(__file__).resolve().parents[1]
INSERT = "INSERT INTO notes (uid, body, title, created_at, user_id, embedding) VALUES (?, ?, ?, ?, ?, ?)"


@dataclass
class Written:
    """What the program did; filled when it has ended."""

    rows: int = 0
    longest: float = 0.0
    locked: float = 0.0


def make_notes(path: Path, count: int, dimension: int, journal: Journal = "wal") -> None:
    """A file of notes with random vectors."""
    draw = np.random.default_rng(0)
    words = np.array(["deploy", "staging", "failed", "migration", "lock", "orders", "payments", "asked", "again"])
    with closing(sqlite3.connect(path)) as owner:
        owner.execute(f"PRAGMA journal_mode={journal}")
        owner.execute(
            "CREATE TABLE notes (id INTEGER PRIMARY KEY, uid TEXT UNIQUE NOT NULL, body TEXT, title TEXT, created_at TEXT, user_id TEXT, "
            "embedding BLOB)"
        )
        for start in range(0, count, 10_000):
            size = min(10_000, count - start)
            vectors = draw.standard_normal((size, dimension)).astype("<f4")
            texts = draw.choice(words, (size, 40))
            owner.executemany(
                INSERT,
                (
                    (
                        f"m{start + i:07d}",
                        f"{start + i}: {' '.join(texts[i])}",
                        f"Title {i}",
                        "2026-01-02T03:04:05Z",
                        "ann",
                        row.tobytes(),
                    )
                    for i, row in enumerate(vectors)
                ),
            )
        owner.commit()


@contextmanager
def hammering(path: Path) -> Iterator[Written]:
    """The program runs within; what it did is known afterwards."""
    written = Written()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.sqlite_writer", str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield written
    finally:
        said, _ = process.communicate()
    for name, value in json.loads(said).items():
        setattr(written, name, value)


def main(path: str) -> None:
    vector = np.zeros(384, "<f4").tobytes()
    rows, longest, locked = 0, 0.0, 0.0
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as owner:
        dimension = len(owner.execute("SELECT embedding FROM notes LIMIT 1").fetchone()[0])
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            started = time.perf_counter()
            refused = 0.0
            for statement in ("BEGIN IMMEDIATE", INSERT, "COMMIT"):
                while True:
                    try:
                        values = (f"w{rows:07d}", f"written {rows}", None, None, "bob", vector[:dimension])
                        owner.execute(statement, values if statement == INSERT else ())
                        break
                    except sqlite3.OperationalError as error:
                        if "locked" not in str(error):
                            raise
                        last = time.perf_counter()
                        refused = refused or last
                        # From the first refusal to the last: what follows is the commit's own writing.
                        locked = max(locked, last - refused)
                        time.sleep(0.0005)
            ended = time.perf_counter()
            longest = max(longest, ended - started)
            rows += 1
    print(json.dumps({"rows": rows, "longest": longest, "locked": locked}))


if __name__ == "__main__":
    main(sys.argv[1])
