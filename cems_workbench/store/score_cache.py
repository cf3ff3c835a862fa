"""The `score_cache` table: model scores by model (with revision and prompt), query and exact text.

Failed and non-finite scores are never kept: what is neutral today may be a number tomorrow.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cems_workbench.models.protocol import PairScore
from cems_workbench.store.memory_rows import text_sha

if TYPE_CHECKING:
    import duckdb


def read(cursor: duckdb.DuckDBPyConnection, model: str, query: str, texts: Sequence[str]) -> list[PairScore | None]:
    """The cached score of each text, None where there is none."""
    keys = [text_sha(text) for text in texts]
    rows = cursor.execute(
        "SELECT text_sha, score, detail FROM score_cache "
        "WHERE model = ? AND query = ? AND text_sha IN (SELECT unnest(?))",
        [model, query, keys],
    ).fetchall()
    scores = {
        key: PairScore(score, detail=None if detail is None else json.loads(detail)) for key, score, detail in rows
    }
    return [scores.get(key) for key in keys]


def write(cursor: duckdb.DuckDBPyConnection, model: str, query: str, scored: Sequence[tuple[str, PairScore]]) -> None:
    """Keep the good scores, replacing earlier ones of the same text."""
    import pyarrow as pa

    finite = {text_sha(text): found for text, found in scored if _good(found)}
    if not finite:
        return
    details = [None if found.detail is None else json.dumps(dict(found.detail)) for found in finite.values()]
    staged = pa.table(
        {
            "text_sha": list(finite),
            "score": [found.raw for found in finite.values()],
            "detail": pa.array(details, pa.string()),
        }
    )
    cursor.register("staged_scores", staged)
    try:
        cursor.execute(
            "INSERT OR REPLACE INTO score_cache (model, query, text_sha, score, detail) "
            "SELECT ?, ?, text_sha, score, detail FROM staged_scores",
            [model, query],
        )
    finally:
        cursor.unregister("staged_scores")


def _good(score: PairScore) -> bool:
    return score.raw is not None and score.error is None and math.isfinite(score.raw)
