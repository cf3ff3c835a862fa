"""refused: the share of answerable queries that get no result at all; lower is better."""

from __future__ import annotations

from cems_workbench.evaluation.metrics.measure import MeasureFamily
from cems_workbench.evaluation.metrics.rankings import GradedRankings
from cems_workbench.pipeline.table import Floats


def refused(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) 1 where there is no result, 0 where there is one; `k` has no part in it."""
    return (~rankings.filled.any(axis=1)).astype(float)


MEASURE = MeasureFamily(
    "refused",
    "share of queries with a relevant memory that get no result",
    refused,
    lower_is_better=True,
    reads_judgments=False,
    place=10,
)
