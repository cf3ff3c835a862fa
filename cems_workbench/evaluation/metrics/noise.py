"""noise@k: places of the first k that are filled where nothing answers the query, / k.

Of queries that nothing in the store answers alone, and lower is better: each filled place is a memory that an agent reads for nothing.
Source: Noise@k of retrieval logs, as memo and qmd's trackers ask for it.
"""

from __future__ import annotations

import numpy as np

from cems_workbench.evaluation.metrics.measure import MeasureFamily
from cems_workbench.evaluation.metrics.rankings import GradedRankings
from cems_workbench.pipeline.table import Floats


def noise(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) the share of k ranks that are filled; `grade` has no part in it."""
    share: Floats = rankings.filled[:, :k].sum(axis=1) / np.float64(k or max(rankings.filled.shape[1], 1))
    return share


MEASURE = MeasureFamily(
    "noise",
    "share of the first k places that are filled where nothing answers",
    noise,
    needs_cutoff=True,
    needs_relevant=False,
    needs_no_answer=True,
    reads_judgments=False,
    lower_is_better=True,
    place=8,
)
