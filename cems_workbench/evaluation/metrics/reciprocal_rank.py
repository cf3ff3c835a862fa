"""Reciprocal rank: 1 / rank of the first relevant result, 0 when none of the first k is relevant. Its mean is MRR.

Source: Voorhees, TREC-8 question answering track, 1999; trec_eval's recip_rank.
"""

from __future__ import annotations

import numpy as np

from cems_workbench.evaluation.metrics.measure import MeasureFamily
from cems_workbench.evaluation.metrics.rankings import GradedRankings
from cems_workbench.pipeline.table import Floats


def reciprocal_rank(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) reciprocal rank within the first k, all when None."""
    relevant = rankings.relevant(grade)[:, :k]
    if not relevant.shape[1]:
        return np.zeros(len(relevant))
    return np.where(relevant.any(axis=1), 1 / (relevant.argmax(axis=1) + 1), 0.0)


MEASURE = MeasureFamily("MRR", "1 / rank of the first relevant result", reciprocal_rank, aliases=("rr",), place=4)
