"""gap: drop candidates far below the top score.

Candidates below `ratio` * the top score are dropped; the first `keep` always stay. 0 is off. CEMS skips aggregation queries.

Source: CEMS today (score gap filtering); docs/internals/specification.md, "gap".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cems_workbench.pipeline.stages.query import aggregations
from cems_workbench.pipeline.stages.result import StageArrays, StageFields, StageRow
from cems_workbench.pipeline.stages.stage import Stage, StageInput, Switch
from cems_workbench.pipeline.table import reranked_by


@dataclass(frozen=True, slots=True)
class GapFields(StageFields):
    """`floor` is the score below which candidates were dropped; None if the stage is off."""

    floor: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The floor, if there is one."""
        return {} if self.floor is None else {"floor": self.floor}


def apply_gap(given: StageInput) -> StageArrays[StageRow, GapFields]:
    """Drop candidates whose score is below a share of the top score."""
    before, config = given.ranking, given.config.gap
    spared = None if config.aggregation else aggregations(given.table, given.config.query.detectors)
    first = before.leading(max(1, config.keep))
    best = first[:, 0] if first.shape[1] else np.full(len(first), -1)
    top = np.where(best >= 0, before.score[np.arange(len(best)), best], 0.0) if first.shape[1] else np.zeros(len(best))
    floor = config.ratio * top
    kept = before.alive & (before.score >= floor[:, None])
    if spared is not None:
        kept |= before.alive & spared[:, None]
    q, place = np.nonzero(first[:, : config.keep] >= 0)
    kept[q, first[q, place]] = True

    def reason(q: int, c: int) -> str:
        return f"score {before.score[q, c]:.4f} is below {config.ratio:g} × the top score {top[q]:.4f}"

    return StageArrays(
        entered=before.alive,
        before=before,
        after=reranked_by(kept, before),
        fields=lambda q: GapFields(None if spared is not None and spared[q] else float(floor[q])),
        reason=reason,
    )


GAP = Stage(
    name="gap",
    title="Score gap",
    description="Drops what is far below the top.",
    reads=("gap", "query.detectors"),
    apply=apply_gap,
    row=StageRow,
    fields=GapFields,
    switch=Switch("gap", {"gap.ratio": 0.0}, title="score gap"),
)
