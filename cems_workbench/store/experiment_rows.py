"""The `experiments` table: configurations worth keeping, with their note and evidence card."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cems_workbench.store.memory_rows import to_naive
from cems_workbench.store.reports import Experiment

if TYPE_CHECKING:
    import duckdb


def save(cursor: duckdb.DuckDBPyConnection, name: str, config_yaml: str, note: str, evidence: dict[str, Any]) -> int:
    """Add an experiment and return its id; names may repeat, ids grow."""
    row = cursor.execute(
        "INSERT INTO experiments (name, config_yaml, note, evidence, created_at) VALUES (?, ?, ?, ?, ?) RETURNING id",
        [name, config_yaml, note, json.dumps(evidence, ensure_ascii=False), to_naive(datetime.now(UTC))],
    ).fetchall()[0]
    return int(row[0])


def read(cursor: duckdb.DuckDBPyConnection) -> list[Experiment]:
    """All experiments, newest first."""
    rows = cursor.execute(
        "SELECT id, name, config_yaml, note, created_at, evidence FROM experiments ORDER BY id DESC"
    ).fetchall()
    return [
        Experiment(id_, name, config, note, created_at.replace(tzinfo=UTC), json.loads(evidence))
        for id_, name, config, note, created_at, evidence in rows
    ]
