"""hit@k: is any of the first k relevant? What the CEMS and ACE documents call R@k or recall.

Source: trec_eval's success_k; LongMemEval's recall_any@k.
"""

from __future__ import annotations

from cems_workbench.evaluation.metrics.measure import MeasureFamily
from cems_workbench.evaluation.metrics.rankings import GradedRankings
from cems_workbench.pipeline.table import Floats


def hit(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) 1.0 where one of the first k is relevant."""
    hits: Floats = rankings.relevant(grade)[:, :k].any(axis=1).astype(float)
    return hits


MEASURE = MeasureFamily(
    "hit",
    "is any of the first k relevant? The CEMS and ACE documents call this R@k",
    hit,
    needs_cutoff=True,
    aliases=("success", "recall_any"),
    place=1,
)
