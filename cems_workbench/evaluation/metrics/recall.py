"""recall@k: relevant in the first k / all relevant.

Source: trec_eval's recall_k.
"""

from __future__ import annotations

from cems_workbench.evaluation.metrics.measure import MeasureFamily
from cems_workbench.evaluation.metrics.rankings import GradedRankings
from cems_workbench.pipeline.table import Floats


def recall(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) the share of the relevant that is among the first k."""
    share: Floats = rankings.relevant(grade)[:, :k].sum(axis=1) / rankings.relevant_count(grade).clip(1)
    return share


MEASURE = MeasureFamily(
    "recall", "share of all relevant memories that is among the first k", recall, needs_cutoff=True, place=2
)
