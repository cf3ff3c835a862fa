"""dedup: walk down the ranking and drop a memory that is too close to a kept one.

Closeness is the cosine of the stored embeddings; the dropped memory names the best ranked kept one it duplicates. A memory
without an embedding is kept, with a warning.

Source: ACE stage 4 (similarity 0.90); docs/internals/specification.md, "dedup".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cems_workbench.config.sections import DedupConfig
from cems_workbench.pipeline.stages.result import StageArrays, StageFields, StageRow, rows_of
from cems_workbench.pipeline.stages.stage import Stage, Switch
from cems_workbench.pipeline.table import CandidateTable, Ints, Ranking, reranked_by


@dataclass(frozen=True, slots=True)
class DedupRow(StageRow):
    """The kept memory it duplicates and the cosine with that one; None for a memory that stays."""

    duplicate_of: str | None = None
    similarity: float | None = None


def apply_dedup(table: CandidateTable, before: Ranking, config: DedupConfig) -> StageArrays[DedupRow, StageFields]:
    """Drop near-duplicates of better ranked memories."""
    original = np.full(table.shape, -1, dtype=np.int64)
    for q in range(table.shape[0]):
        original[q] = _duplicates(table, before.order(q), config.similarity, q)
    kept = before.alive & (original < 0)

    def duplicates(q: int) -> list[str | None]:
        return [table.ids[q][c] if c >= 0 else None for c in original[q].tolist()]

    def cosines(q: int) -> list[float | None]:
        found = table.cosines(q)[0]
        return [float(found[c, of]) if of >= 0 else None for c, of in enumerate(original[q].tolist())]

    def reason(q: int, c: int) -> str:
        return f"duplicates {duplicates(q)[c]} (cosine {cosines(q)[c]:.3f})"

    def warnings(q: int) -> list[str]:
        bare = int((before.alive[q] & ~table.cosines(q)[1]).sum())
        return [f"no embedding for {bare} of the candidates: kept without a comparison"] if bare else []

    return StageArrays(
        entered=before.alive,
        before=before,
        after=reranked_by(kept, before),
        row=rows_of(DedupRow, duplicates, cosines),
        reason=reason,
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


DEDUP = Stage(
    name="dedup",
    title="Dedup",
    description="Drops near-duplicates of better ranked memories.",
    reads=("dedup",),
    apply=lambda given: apply_dedup(given.table, given.ranking, given.config.dedup),
    row=DedupRow,
    fields=StageFields,
    switch=Switch("dedup", {"dedup.enabled": False}),
)
