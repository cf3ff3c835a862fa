"""Measures that count the relevant among the first k.

hit@k      is any of the first k relevant?         what the CEMS and ACE documents call R@k or recall; trec_eval's success_k
recall@k   relevant in the first k / all relevant  trec_eval's recall_k
P@k        relevant in the first k / k             trec_eval's P_k: a short ranking is not forgiven
"""

from __future__ import annotations

from cems_workbench.evaluation.metrics.rankings import GradedRankings
from cems_workbench.pipeline.table import Floats


def hit(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) 1.0 where one of the first k is relevant."""
    found: Floats = rankings.relevant(grade)[:, :k].any(axis=1).astype(float)
    return found


def recall(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) the share of the relevant that is among the first k."""
    found: Floats = rankings.relevant(grade)[:, :k].sum(axis=1) / rankings.relevant_count(grade).clip(1)
    return found


def precision(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) the share of k ranks that hold something relevant; of the results there are when k is None."""
    depth = rankings.filled.sum(axis=1).clip(1) if k is None else k
    found: Floats = rankings.relevant(grade)[:, :k].sum(axis=1) / depth
    return found
