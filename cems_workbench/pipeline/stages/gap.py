"""gap: drop what is far below the top.

Candidates below `ratio` * the top score are dropped; the first `keep` always stay. 0 is off.

Source: CEMS today (score gap filtering); docs/specification.md, "gap".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cems_workbench.config.sections.adjusting import GapConfig
from cems_workbench.pipeline.stages.result import StageArrays, StageFields, StageRow
from cems_workbench.pipeline.stages.stage import Stage, Switch
from cems_workbench.pipeline.table import Ranking, reranked_by


@dataclass(frozen=True, slots=True)
class GapFields(StageFields):
    """`floor` is the score below which candidates were dropped; None where the stage is off."""

    floor: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The floor, where there is one."""
        return {} if self.floor is None else {"floor": self.floor}


def apply_gap(before: Ranking, config: GapConfig) -> StageArrays[StageRow, GapFields]:
    """Drop candidates whose score is below a share of the top score."""
    first = before.leading(max(1, config.keep))
    best = first[:, 0] if first.shape[1] else np.full(len(first), -1)
    top = np.where(best >= 0, before.score[np.arange(len(best)), best], 0.0) if first.shape[1] else np.zeros(len(best))
    floor = config.ratio * top
    kept = before.alive & (before.score >= floor[:, None])
    q, place = np.nonzero(first[:, : config.keep] >= 0)
    kept[q, first[q, place]] = True

    def reason(q: int, c: int) -> str:
        return f"score {before.score[q, c]:.4f} is below {config.ratio:g} × the top score {top[q]:.4f}"

    return StageArrays(
        entered=before.alive,
        before=before,
        after=reranked_by(kept, before),
        row=lambda q: lambda c, contract: StageRow(*contract),
        fields=lambda q: GapFields(float(floor[q])),
        reason=reason,
    )


GAP = Stage(
    name="gap",
    title="Score gap",
    description="Drops what is far below the top.",
    works_on="ranking",
    apply=lambda given: apply_gap(given.ranking, given.config.gap),
    row=StageRow,
    fields=GapFields,
    switch=Switch("gap", {"gap.ratio": 0.0}, title="score gap"),
)
