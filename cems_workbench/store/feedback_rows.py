"""Counts of relevance feedback in the `memories` table: of how many queries a memory was relevant, of how many noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


def write(cursor: duckdb.DuckDBPyConnection, counts: Mapping[str, tuple[int, int]]) -> int:
    """Set (relevant_count, noise_count) of the live memories named; returns how many of them had other counts before."""
    import pyarrow as pa

    table = pa.table(
        {
            "id": pa.array(list(counts), pa.string()),
            "relevant": pa.array([relevant for relevant, _ in counts.values()], pa.int64()),
            "noise": pa.array([noise for _, noise in counts.values()], pa.int64()),
        }
    )
    cursor.register("staged_feedback", table)
    try:
        changed = cursor.execute(
            "UPDATE memories AS m SET relevant_count = s.relevant, noise_count = s.noise FROM staged_feedback AS s "
            "WHERE m.id = s.id AND m.deleted_at IS NULL AND (m.relevant_count <> s.relevant OR m.noise_count <> s.noise)"
        ).fetchall()[0][0]
    finally:
        cursor.unregister("staged_feedback")
    return int(changed)
