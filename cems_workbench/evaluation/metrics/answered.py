"""answered: the share of queries that nothing in the store answers which get a result all the same; lower is better."""

from __future__ import annotations

from cems_workbench.evaluation.metrics.measure import MeasureFamily
from cems_workbench.evaluation.metrics.rankings import GradedRankings
from cems_workbench.pipeline.table import Floats


def answered(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) 1 where there is a result, 0 where there is none; `k` and `grade` have no part in it."""
    return rankings.filled.any(axis=1).astype(float)


MEASURE = MeasureFamily(
    "answered",
    "share of queries without an answer that get a result",
    answered,
    needs_relevant=False,
    needs_no_answer=True,
    reads_judgments=False,
    lower_is_better=True,
    place=9,
)
