"""The `score_cache` table: model scores by model (with revision and prompt), query and exact text.

Failed and non-finite scores are never kept: what is neutral today may be a number tomorrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cems_workbench.store.memory_rows import text_sha

if TYPE_CHECKING:
    import duckdb


def read(cursor: duckdb.DuckDBPyConnection, model: str, query: str, texts: Sequence[str]) -> list[float | None]:
    """The cached score of each text, None where there is none."""
    keys = [text_sha(text) for text in texts]
    rows = cursor.execute(
        "SELECT text_sha, score FROM score_cache WHERE model = ? AND query = ? AND text_sha IN (SELECT unnest(?))",
        [model, query, keys],
    ).fetchall()
    scores = dict(rows)
    return [scores.get(key) for key in keys]


def write(cursor: duckdb.DuckDBPyConnection, model: str, query: str, scored: Sequence[tuple[str, float]]) -> None:
    """Keep the finite scores, replacing earlier ones of the same text."""
    import pyarrow as pa

    finite = {text_sha(text): float(score) for text, score in scored if math.isfinite(score)}
    if not finite:
        return
    cursor.register("staged_scores", pa.table({"text_sha": list(finite), "score": list(finite.values())}))
    try:
        cursor.execute(
            "INSERT OR REPLACE INTO score_cache SELECT ?, ?, text_sha, score FROM staged_scores", [model, query]
        )
    finally:
        cursor.unregister("staged_scores")
