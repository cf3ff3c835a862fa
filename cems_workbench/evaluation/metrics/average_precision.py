"""Average precision: the mean, over all relevant memories, of the precision at the rank of each; 0 for one not relevant.

Source: Buckley & Voorhees 2005; trec_eval's map and map_cut_k, which divide by all relevant, relevant or not.
"""

from __future__ import annotations

import numpy as np

from cems_workbench.evaluation.metrics.measure import MeasureFamily
from cems_workbench.evaluation.metrics.rankings import GradedRankings
from cems_workbench.pipeline.table import Floats


def average_precision(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) average precision over the first k, all when None."""
    relevant = rankings.relevant(grade)[:, :k]
    at_rank = np.cumsum(relevant, axis=1) / np.arange(1, relevant.shape[1] + 1)
    average: Floats = (at_rank * relevant).sum(axis=1) / rankings.relevant_count(grade).clip(1)
    return average


MEASURE = MeasureFamily(
    "AP",
    "precision at the rank of each relevant memory, averaged",
    average_precision,
    aliases=("map",),
    place=6,
)
