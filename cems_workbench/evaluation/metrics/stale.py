"""stale@k: the share of the first k results that are stale: expired, or superseded by memories of which none is ranked above.

    stale@k = (stale results among the first k) / (results among the first k)

A query without results has 0. A query has no value where it is not known which of its memories are superseded, since no edge of the store
says so and none has a date of expiry. No judgment is read.
"""

from __future__ import annotations

import numpy as np

from cems_workbench.evaluation.metrics.measure import MeasureFamily
from cems_workbench.evaluation.metrics.rankings import GradedRankings
from cems_workbench.pipeline.table import Floats


def stale_share(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) the stale share of the first k results; 0 without results, NaN where it is not known. `grade` has no part in it."""
    if not len(rankings.stale_known):
        return np.full(len(rankings.filled), np.nan)
    shown = rankings.filled[:, :k].sum(axis=1)
    share = (rankings.stale & rankings.filled)[:, :k].sum(axis=1) / shown.clip(1)
    return np.where(rankings.stale_known, share, np.nan)


MEASURE = MeasureFamily(
    "stale",
    "share of the first k that has expired, or is superseded by a memory that is not above it",
    stale_share,
    reads_grade=False,
    needs_relevant=False,
    reads_judgments=False,
    lower_is_better=True,
    place=8,
)
