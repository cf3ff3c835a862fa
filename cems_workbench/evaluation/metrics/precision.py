"""P@k: relevant in the first k / k; a short ranking is not forgiven. P: relevant in all that is returned / results; 0 without results.

Source: trec_eval's P_k.
"""

from __future__ import annotations

from cems_workbench.evaluation.metrics.measure import MeasureFamily
from cems_workbench.evaluation.metrics.rankings import GradedRankings
from cems_workbench.pipeline.table import Floats


def precision(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) the share of k ranks that hold something relevant; of the results there are when k is None."""
    depth = rankings.filled.sum(axis=1).clip(1) if k is None else k
    share: Floats = rankings.relevant(grade)[:, :k].sum(axis=1) / depth
    return share


MEASURE = MeasureFamily(
    "P",
    "share of the first k that is relevant; without @k, of all that is returned",
    precision,
    aliases=("precision",),
    place=3,
)
