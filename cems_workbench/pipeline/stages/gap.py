"""gap: drop what is far below the top.

Candidates below `ratio` * the top score are dropped; the first `keep` always stay. 0 is off.

Source: CEMS today (score gap filtering); PIPELINE.md, "gap".
"""

from __future__ import annotations

import numpy as np

from cems_workbench.config.sections.adjusting import GapConfig
from cems_workbench.pipeline.table import StageArrays, Standing, pass_through, reranked_by


def apply_gap(before: Standing, config: GapConfig) -> StageArrays:
    """Drop candidates whose score is below a share of the top score."""
    if config.ratio == 0:
        return pass_through("gap", before)
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
        "gap", before.alive, before, reranked_by(kept, before), reason, fields=lambda q: {"floor": float(floor[q])}
    )
