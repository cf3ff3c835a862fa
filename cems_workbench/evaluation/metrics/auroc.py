"""AUROC: how likely an answerable query has a better first score than one that nothing answers; ties count half.

The signal is the final score of the first result, and a query without results is below all; or it is a signal of abstain. Source: Hanley
& McNeil, The meaning and use of the area under a receiver operating characteristic (ROC) curve, 1982; scikit-learn's roc_auc_score.
"""

from __future__ import annotations

import numpy as np

from cems_workbench.evaluation.metrics.measure import MeasureFamily
from cems_workbench.evaluation.metrics.rankings import GradedRankings
from cems_workbench.evaluation.metrics.signal import ConfidenceSignal, blocks, roc_values, weighted_mean
from cems_workbench.pipeline.table import Floats


def auroc(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) of an answerable query the share of unanswerable ones that it is above; their mean is the area. `k` has no part in it."""
    signal = first_score(rankings, grade)
    return signal.spread(roc_values(signal, np.ones((1, len(signal.value))))[0])


def first_score(rankings: GradedRankings, grade: int) -> ConfidenceSignal:
    """The score of the first result, or the chosen signal, as the signal of an answer; a query without a value has no part in it."""
    value = rankings.signal()
    known = ~np.isnan(value)
    return ConfidenceSignal(value, rankings.answerable(grade) & known, rankings.without_answer(grade) & known)


def _resampled(rankings: GradedRankings, k: int | None, grade: int, drawn: Floats) -> Floats:
    signal = first_score(rankings, grade)
    parts = [weighted_mean(signal, roc_values(signal, some), some, signal.answerable) for some in blocks(drawn)]
    return np.concatenate(parts)


MEASURE = MeasureFamily(
    "AUROC",
    "how surely the first score tells queries with an answer from those without",
    auroc,
    resampled=_resampled,
    reads_judgments=False,
    reads_first=True,
    place=11,
)
