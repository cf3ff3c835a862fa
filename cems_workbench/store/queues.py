"""Labelling queues: which pairs are to be judged, in what order, and what each config ranked when the queue was made.

A queue stands in `label_queues`, its pairs in `label_queue_pairs`, the rankings in `label_queue_rankings`. The labels that come of
it are judgments like any other, and outlive it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.errors import InputError
from cems_workbench.records import Judgment
from cems_workbench.store import judgments
from cems_workbench.store.database import Database
from cems_workbench.store.rows import check_name, staged, to_naive

if TYPE_CHECKING:
    import duckdb

Pair = tuple[str, str]
"""(qid, memory_id)"""
CLAIMS = ".workbench.claims"
CLAIM_SECONDS = 600.0
"""How long a claim holds without a label; a reviewer who left gives the card back by that."""


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """A kept labelling queue: its pairs (qid, memory_id) in order, how many reviewers each is for, how it was made.

    `rankings` are the results within the depth by config and qid, best first, as they were when it was made.
    """

    name: str
    created_at: datetime
    overlap: int
    settings: dict[str, Any]
    pairs: tuple[tuple[str, str], ...] = ()
    rankings: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)


class Queues:
    """The labelling queues of an open store; methods may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.claims = Claims(path=database.directory / CLAIMS, turn=database.turn)

    def save(self, queue: QueueRecord) -> None:
        """Keep a queue, in place of one of the same name; raises InputError for its name, its overlap or a repeated pair."""
        check_name(queue.name)
        if queue.overlap < 1:
            raise InputError(f"queue {queue.name}: the overlap must be at least 1, found {queue.overlap}")
        if len(set(queue.pairs)) < len(queue.pairs):
            raise InputError(f"queue {queue.name}: a pair stands more than once")
        with self._database.transaction() as cursor:
            _write(cursor, queue)

    def read(self) -> list[QueueRecord]:
        """The kept queues without their pairs and rankings, by name."""
        with self._database.reading() as cursor:
            rows = cursor.execute(
                "SELECT name, created_at, overlap, settings FROM label_queues ORDER BY name"
            ).fetchall()
        return [
            QueueRecord(name, created_at.replace(tzinfo=UTC), overlap, json.loads(settings))
            for name, created_at, overlap, settings in rows
        ]

    def pairs(self, name: str) -> tuple[Pair, ...]:
        """The pairs of a queue in order; those of deleted memories are left out."""
        with self._database.reading() as cursor:
            rows = cursor.execute(
                "SELECT p.qid, p.memory_id FROM label_queue_pairs AS p "
                "JOIN memories AS m ON m.id = p.memory_id AND m.deleted_at IS NULL WHERE p.queue = ? ORDER BY p.position",
                [name],
            ).fetchall()
        return tuple((qid, memory_id) for qid, memory_id in rows)

    def rankings(self, name: str) -> dict[str, dict[str, tuple[str, ...]]]:
        """The results of each config, by name and qid, best first, within the depth of the queue, as they were when it was made.

        Deleted memories are left out.
        """
        with self._database.reading() as cursor:
            rows = cursor.execute(
                "SELECT r.config, r.qid, list(r.memory_id ORDER BY r.rank) FROM label_queue_rankings AS r "
                "JOIN memories AS m ON m.id = r.memory_id AND m.deleted_at IS NULL WHERE r.queue = ? "
                "GROUP BY ALL ORDER BY ALL",
                [name],
            ).fetchall()
        rankings: dict[str, dict[str, tuple[str, ...]]] = {}
        for config, qid, ids in rows:
            rankings.setdefault(config, {})[qid] = tuple(ids)
        return rankings

    def labels(self, name: str) -> list[Judgment]:
        """What people have said of the pairs of a queue."""
        with self._database.reading() as cursor:
            rows = cursor.execute(
                f"SELECT {', '.join(f'j.{field}' for field in judgments.FIELDS)} FROM label_queue_pairs AS p "
                "JOIN judgments AS j ON j.qid = p.qid AND j.memory_id = p.memory_id AND j.kind = 'human' "
                "WHERE p.queue = ? ORDER BY p.position, j.judge",
                [name],
            ).fetchall()
        return [judgments.record(row) for row in rows]

    def remove(self, name: str) -> bool:
        """Take a queue away; the labels stay. False when there was none."""
        with self._database.transaction() as cursor:
            return _remove(cursor, name)


class Claims:
    """Who is looking at which card, so that two reviewers at work at once are not dealt the same pair.

    At most one claimed pair per reviewer; methods may be called from any thread. Claims stand in a file beside the database, for the other
    processes that deal cards of this store; one whose process has ended is worth nothing.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        path: Path | None = None,
        turn: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`turn` keeps other processes out while a pair is chosen; without a `path` there are none."""
        self._clock = clock
        self._path = path
        self._turn = turn
        self._lock = threading.RLock()
        self._held: dict[str, _Held] = {}

    def claim(self, reviewer: str, choose: Callable[[dict[str, Pair]], Pair | None]) -> Pair | None:
        """Let `choose` pick a pair, given what each of the *other* reviewers looks at now, and hold it for `reviewer`."""
        with self._turn(), self._lock:
            held = self._present()
            held.pop(reviewer, None)
            chosen = choose({who: each.pair for who, each in held.items()})
            self._keep(held if chosen is None else {**held, reviewer: _Held(chosen, self._clock(), os.getpid())})
            return chosen

    def release(self, reviewer: str) -> None:
        """Give back what a reviewer holds."""
        with self._turn(), self._lock:
            held = self._present()
            held.pop(reviewer, None)
            self._keep(held)

    def _present(self) -> dict[str, _Held]:
        """What everybody holds, by this process's memory and the others' file."""
        found = dict[str, _Held]()
        if self._path is not None:
            with suppress(OSError, ValueError, TypeError, AttributeError):
                written = json.loads(self._path.read_text("utf-8"))
                found = {who: _Held((str(q), str(m)), float(at), int(pid)) for who, (q, m, at, pid) in written.items()}
        mine, now = os.getpid(), self._clock()
        found = {who: each for who, each in found.items() if each.pid != mine and _alive(each.pid)} | self._held
        return {who: each for who, each in found.items() if now - each.since < CLAIM_SECONDS}

    def _keep(self, held: dict[str, _Held]) -> None:
        self._held = {who: each for who, each in held.items() if each.pid == os.getpid()}
        if self._path is not None:
            text = json.dumps({who: [*each.pair, each.since, each.pid] for who, each in held.items()})
            with suppress(OSError):  # a full disk: two processes may deal one card
                self._path.write_text(text, "utf-8")


@dataclass(frozen=True, slots=True)
class _Held:
    """A pair that somebody looks at, since when, and in which process."""

    pair: Pair
    since: float
    pid: int


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _write(cursor: duckdb.DuckDBPyConnection, queue: QueueRecord) -> None:
    import pyarrow as pa

    _remove(cursor, queue.name)
    cursor.execute(
        "INSERT INTO label_queues VALUES (?, ?, ?, ?)",
        [queue.name, to_naive(queue.created_at), queue.overlap, json.dumps(queue.settings, ensure_ascii=False)],
    )
    text, number = pa.string(), pa.int64()
    ranked = [
        (config, qid, rank, memory_id)
        for config, by_qid in queue.rankings.items()
        for qid, results in by_qid.items()
        for rank, memory_id in enumerate(results, 1)
    ]
    tables = {
        "label_queue_pairs (queue, position, qid, memory_id)": {
            "position": pa.array(range(len(queue.pairs)), number),
            "qid": pa.array([qid for qid, _ in queue.pairs], text),
            "memory_id": pa.array([memory_id for _, memory_id in queue.pairs], text),
        },
        "label_queue_rankings (queue, config, qid, rank, memory_id)": {
            name: pa.array([row[i] for row in ranked], number if name == "rank" else text)
            for i, name in enumerate(("config", "qid", "rank", "memory_id"))
        },
    }
    for into, columns in tables.items():
        with staged(cursor, "staged_rows", pa.table(columns)):
            cursor.execute(f"INSERT INTO {into} SELECT ?, {', '.join(columns)} FROM staged_rows", [queue.name])


def _remove(cursor: duckdb.DuckDBPyConnection, name: str) -> bool:
    for table in ("label_queue_pairs", "label_queue_rankings"):
        cursor.execute(f"DELETE FROM {table} WHERE queue = ?", [name])
    return bool(cursor.execute("DELETE FROM label_queues WHERE name = ?", [name]).fetchall()[0][0])
