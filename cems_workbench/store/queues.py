"""Labelling queues: pairs to label, in order, and each config's rankings when the queue was created.

Tables: `label_queues`, `label_queue_pairs`, `label_queue_rankings`. The labels are ordinary judgments and outlive the queue.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.records import Judgment
from cems_workbench.store import judgments, memories
from cems_workbench.store.claims import Pair
from cems_workbench.store.database import Database
from cems_workbench.store.rows import check_name, table_of, to_naive
from cems_workbench.store.team import Session, TeamTables, persistent, rows_of


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """A saved labelling queue: pairs (qid, memory_id) in order, `overlap` reviewers per pair, and the settings it was
    created with. `rankings` are the results within the depth at its creation, by config and qid, best first."""

    name: str
    created_at: datetime
    overlap: int
    settings: dict[str, Any]
    pairs: tuple[tuple[str, str], ...] = ()
    rankings: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)


class Queues:
    """The labelling queues of an open store. Thread-safe."""

    def __init__(self, database: Database, team: TeamTables) -> None:
        self._database = database
        self._team = team
        self.claims = team.claims

    @persistent
    def save(self, queue: QueueRecord) -> None:
        """Save a queue; it replaces one with the same name. Raises InputError for an invalid name or overlap, or a duplicate pair."""
        check_name(queue.name)
        if queue.overlap < 1:
            raise InputError(f"queue {queue.name}: the overlap must be at least 1, found {queue.overlap}")
        if len(set(queue.pairs)) < len(queue.pairs):
            raise InputError(f"queue {queue.name}: duplicate pair")
        with self._team.transaction() as session:
            _write(session, queue)

    @persistent
    def read(self) -> list[QueueRecord]:
        """The saved queues without pairs and rankings, by name."""
        rows = rows_of(self._team, "SELECT name, created_at, overlap, settings FROM label_queues ORDER BY name")
        return [
            QueueRecord(name, created_at.replace(tzinfo=UTC), overlap, json.loads(settings))
            for name, created_at, overlap, settings in rows
        ]

    @persistent
    def pairs(self, name: str) -> tuple[Pair, ...]:
        """The pairs of a queue in order, without those of queries that are gone, and of memories that are deleted or not in this store."""
        rows = rows_of(
            self._team,
            "SELECT qid, memory_id FROM label_queue_pairs WHERE queue = ? AND qid IN (SELECT qid FROM queries) ORDER BY position",
            [name],
        )
        live = memories.live(self._database, {memory_id for _, memory_id in rows})
        return tuple((qid, memory_id) for qid, memory_id in rows if memory_id in live)

    @persistent
    def rankings(self, name: str) -> dict[str, dict[str, tuple[str, ...]]]:
        """The rankings at the queue's creation within its depth, by config name and qid, best first. Memories that are
        deleted or not in this store are left out."""
        rows = rows_of(
            self._team,
            "SELECT config, qid, memory_id FROM label_queue_rankings WHERE queue = ? ORDER BY config, qid, rank",
            [name],
        )
        live = memories.live(self._database, {memory_id for _, _, memory_id in rows})
        rankings: dict[str, dict[str, tuple[str, ...]]] = {}
        for config, qid, memory_id in rows:
            if memory_id in live:
                ranked = rankings.setdefault(config, {})
                ranked[qid] = (*ranked.get(qid, ()), memory_id)
        return rankings

    @persistent
    def labels(self, name: str) -> list[Judgment]:
        """People's labels of the pairs of a queue, in their order, without those of memories that are deleted or not in this store."""
        rows = rows_of(
            self._team,
            f"SELECT {', '.join(f'j.{field}' for field in judgments.FIELDS)} FROM label_queue_pairs AS p "
            "JOIN judgments AS j ON j.qid = p.qid AND j.memory_id = p.memory_id AND j.kind = 'human' "
            "WHERE p.queue = ? ORDER BY p.position, j.judge",
            [name],
        )
        live = memories.live(self._database, {row[1] for row in rows})
        return [judgments.record(row) for row in rows if row[1] in live]

    @persistent
    def remove(self, name: str) -> bool:
        """Delete a queue; its labels stay. False if there was none."""
        with self._team.transaction() as session:
            return _remove(session, name)


def make(session: Session, name: str, pairs: Sequence[Pair], when: datetime, settings: dict[str, Any]) -> None:
    """Make a queue of pairs in their order, or add them to the one made at the same time, by another file of an import.
    Raises InputError for an invalid name or one that is taken."""
    check_name(name)
    there = session.rows("SELECT created_at FROM label_queues WHERE name = ?", [name])
    if there and there[0][0] != to_naive(when):
        raise InputError(f"--queue: there is a queue {name} already; give the new one another name")
    rows = session.rows("SELECT qid, memory_id FROM label_queue_pairs WHERE queue = ? ORDER BY position", [name])
    every = tuple(dict.fromkeys([*((qid, memory_id) for qid, memory_id in rows), *pairs]))
    _write(session, QueueRecord(name, when, 1, settings, every))


def _write(session: Session, queue: QueueRecord) -> None:
    _remove(session, queue.name)
    session.change(
        "INSERT INTO label_queues VALUES (?, ?, ?, ?)",
        [queue.name, to_naive(queue.created_at), queue.overlap, json.dumps(queue.settings, ensure_ascii=False)],
    )
    ranked = [
        (config, qid, rank, memory_id)
        for config, by_qid in queue.rankings.items()
        for qid, results in by_qid.items()
        for rank, memory_id in enumerate(results, 1)
    ]
    tables: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
        "label_queue_pairs": (
            "position int64, qid string, memory_id string",
            [(place, *pair) for place, pair in enumerate(queue.pairs)],
        ),
        "label_queue_rankings": ("config string, qid string, rank int64, memory_id string", ranked),
    }
    for into, (columns, rows) in tables.items():
        table = table_of(columns, rows)
        names = ", ".join(table.column_names)
        with session.staged("staged_rows", table):
            session.change(f"INSERT INTO {into} (queue, {names}) SELECT ?, {names} FROM staged_rows", [queue.name])


def _remove(session: Session, name: str) -> bool:
    for table in ("label_queue_pairs", "label_queue_rankings"):
        session.change(f"DELETE FROM {table} WHERE queue = ?", [name])
    return bool(session.change("DELETE FROM label_queues WHERE name = ?", [name]))
