"""dedup: walk down the ranking and drop a memory that is too close to a kept one.

Closeness is the cosine of the stored embeddings; the dropped memory names the best ranked kept one it duplicates. A memory
without an embedding is kept, with a warning.

Source: ACE stage 4 (similarity 0.90); PIPELINE.md, "dedup".
"""

from __future__ import annotations

import numpy as np

from cems_workbench.config.sections.adjusting import DedupConfig
from cems_workbench.pipeline.table import CandidateTable, Ints, StageArrays, Standing, pass_through, reranked_by


def apply_dedup(table: CandidateTable, before: Standing, config: DedupConfig) -> StageArrays:
    """Drop near-duplicates of better ranked memories."""
    if not config.enabled:
        return pass_through("dedup", before)
    original = np.full(table.shape, -1, dtype=np.int64)
    for q in range(table.shape[0]):
        original[q] = _duplicates(table, before.order(q), config.similarity, q)
    kept = before.alive & (original < 0)

    def duplicate_of(q: int, c: int) -> str | None:
        return table.ids[q][original[q, c]] if original[q, c] >= 0 else None

    def cosine(q: int, c: int) -> float | None:
        return float(table.cosines(q)[0][c, original[q, c]]) if original[q, c] >= 0 else None

    def reason(q: int, c: int) -> str:
        return f"duplicates {duplicate_of(q, c)} (cosine {cosine(q, c):.3f})"

    def warnings(q: int) -> list[str]:
        bare = int((before.alive[q] & ~table.cosines(q)[1]).sum())
        return [f"{bare} candidates have no embedding and cannot be deduplicated"] if bare else []

    return StageArrays(
        "dedup",
        before.alive,
        before,
        reranked_by(kept, before),
        reason,
        columns={"duplicate_of": duplicate_of, "similarity": cosine},
        warnings=warnings,
    )


def _duplicates(table: CandidateTable, order: Ints, similarity: float, q: int) -> Ints:
    """(C) index of the kept candidate each one duplicates, -1 for none."""
    original = np.full(table.shape[1], -1, dtype=np.int64)
    if not len(order):
        return original
    cosines, has = table.cosines(q)
    close = cosines >= similarity
    kept: list[int] = []
    for c in order:
        if has[c]:
            matches = [other for other in kept if close[c, other]]
            if matches:
                original[c] = matches[0]
                continue
            kept.append(int(c))
    return original
