"""AUPRC: the average precision of the first score as a sign that there is an answer.

    AUPRC = mean over answerable queries of  answerable / all,  among the queries with at least its signal

Source: scikit-learn's average_precision_score. It depends on how many of the queries have an answer, which is its value for a signal
that says nothing. (AP is the average precision of a ranking of memories.)
"""

from __future__ import annotations

import numpy as np

from cems_workbench.evaluation.metrics.auroc import first_score
from cems_workbench.evaluation.metrics.measure import MeasureFamily
from cems_workbench.evaluation.metrics.rankings import GradedRankings
from cems_workbench.evaluation.metrics.signal import blocks, precision_values, weighted_mean
from cems_workbench.pipeline.table import Floats


def auprc(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) of an answerable query the precision at its signal; NaN everywhere where no query is unanswerable. `k` has no part in it."""
    signal = first_score(rankings, grade)
    if not signal.unanswerable.any():
        return np.full(len(signal.value), np.nan)
    return signal.spread(precision_values(signal, np.ones((1, len(signal.value))))[0])


def _resampled(rankings: GradedRankings, k: int | None, grade: int, drawn: Floats) -> Floats:
    signal = first_score(rankings, grade)
    if not signal.unanswerable.any():
        return np.full(len(drawn), np.nan)
    parts = [weighted_mean(signal, precision_values(signal, some), some, signal.answerable) for some in blocks(drawn)]
    return np.concatenate(parts)


MEASURE = MeasureFamily(
    "AUPRC",
    "average precision of the first score as a sign that there is an answer",
    auprc,
    resampled=_resampled,
    reads_judgments=False,
    reads_first=True,
    place=12,
)
