"""The `label_queues`, `label_queue_pairs` and `label_queue_rankings` tables: kept labelling queues."""

from __future__ import annotations

import json
from datetime import UTC
from typing import TYPE_CHECKING

from cems_workbench.records import Judgment
from cems_workbench.store.judgment_rows import FIELDS, record
from cems_workbench.store.memory_rows import to_naive
from cems_workbench.store.reports import QueueRecord

if TYPE_CHECKING:
    import duckdb


def write(cursor: duckdb.DuckDBPyConnection, queue: QueueRecord) -> None:
    """Keep a queue, in place of one of the same name; its pairs must be distinct."""
    import pyarrow as pa

    remove(cursor, queue.name)
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
        cursor.register("staged_rows", pa.table(columns))
        try:
            cursor.execute(f"INSERT INTO {into} SELECT ?, {', '.join(columns)} FROM staged_rows", [queue.name])
        finally:
            cursor.unregister("staged_rows")


def rankings(cursor: duckdb.DuckDBPyConnection, name: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """What each config ranked when the queue was made, by config and qid, best first; deleted memories are left out."""
    rows = cursor.execute(
        "SELECT r.config, r.qid, list(r.memory_id ORDER BY r.rank) FROM label_queue_rankings AS r "
        "JOIN memories AS m ON m.id = r.memory_id AND m.deleted_at IS NULL WHERE r.queue = ? GROUP BY ALL ORDER BY ALL",
        [name],
    ).fetchall()
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for config, qid, ids in rows:
        found.setdefault(config, {})[qid] = tuple(ids)
    return found


def read(cursor: duckdb.DuckDBPyConnection) -> list[QueueRecord]:
    """The kept queues without their pairs, by name."""
    rows = cursor.execute("SELECT name, created_at, overlap, settings FROM label_queues ORDER BY name").fetchall()
    return [QueueRecord(name, made.replace(tzinfo=UTC), overlap, json.loads(how)) for name, made, overlap, how in rows]


def pairs(cursor: duckdb.DuckDBPyConnection, name: str) -> tuple[tuple[str, str], ...]:
    """The pairs of a queue in order, those of deleted memories left out."""
    rows = cursor.execute(
        "SELECT p.qid, p.memory_id FROM label_queue_pairs AS p "
        "JOIN memories AS m ON m.id = p.memory_id AND m.deleted_at IS NULL WHERE p.queue = ? ORDER BY p.position",
        [name],
    ).fetchall()
    return tuple((qid, memory_id) for qid, memory_id in rows)


def labels(cursor: duckdb.DuckDBPyConnection, name: str) -> list[Judgment]:
    """What people have said of the pairs of a queue."""
    rows = cursor.execute(
        f"SELECT {', '.join(f'j.{field}' for field in FIELDS)} FROM label_queue_pairs AS p "
        "JOIN judgments AS j ON j.qid = p.qid AND j.memory_id = p.memory_id AND j.kind = 'human' "
        "WHERE p.queue = ? ORDER BY p.position, j.judge",
        [name],
    ).fetchall()
    return [record(row) for row in rows]


def remove(cursor: duckdb.DuckDBPyConnection, name: str) -> bool:
    """Forget a queue; the labels stay. False when there was none."""
    for table in ("label_queue_pairs", "label_queue_rankings"):
        cursor.execute(f"DELETE FROM {table} WHERE queue = ?", [name])
    return bool(cursor.execute("DELETE FROM label_queues WHERE name = ?", [name]).fetchall()[0][0])
