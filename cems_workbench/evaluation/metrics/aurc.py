"""AURC@k: the area under the risk-coverage curve, of both kinds of queries, ordered by the score of the first result; lower is better.

    AURC = mean over queries of the mean loss among the queries with at least its signal

The loss is 1 for an answerable query without anything relevant in the first k, 1 for an unanswerable one that gets a result, else 0.
Source: Geifman, Uziel & El-Yaniv, Bias-reduced uncertainty estimation for deep neural classifiers, 2019.
"""

from __future__ import annotations

import numpy as np

from cems_workbench.evaluation.metrics.auroc import first_score
from cems_workbench.evaluation.metrics.measure import MeasureFamily
from cems_workbench.evaluation.metrics.rankings import GradedRankings
from cems_workbench.evaluation.metrics.signal import ConfidenceSignal, blocks, risk_coverage, risk_values, weighted_mean
from cems_workbench.pipeline.table import Floats


def aurc(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) the risk at each query's coverage; NaN everywhere where no query is unanswerable."""
    signal, loss = first_score(rankings, grade), losses(rankings, k, grade)
    if not signal.unanswerable.any():
        return np.full(len(loss), np.nan)
    return signal.spread(risk_values(signal, loss, np.ones((1, len(loss))))[0])


def curve(rankings: GradedRankings, k: int | None, grade: int) -> tuple[Floats, Floats]:
    """The risk-coverage curve (`signal.risk_coverage`): coverage and risk, a point each distinct score of a first result."""
    return risk_coverage(first_score(rankings, grade), losses(rankings, k, grade))


def losses(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) 1 where what is returned fails the query, 0 where it does not."""
    missed = ~rankings.relevant(grade)[:, :k].any(axis=1)
    return np.where(rankings.without_answer(grade), rankings.filled.any(axis=1), missed).astype(float)


def _resampled(rankings: GradedRankings, k: int | None, grade: int, drawn: Floats) -> Floats:
    signal, loss = first_score(rankings, grade), losses(rankings, k, grade)
    if not signal.unanswerable.any():
        return np.full(len(drawn), np.nan)
    return np.concatenate([_mean(signal, risk_values(signal, loss, some), some) for some in blocks(drawn)])


def _mean(signal: ConfidenceSignal, values: Floats, weights: Floats) -> Floats:
    return weighted_mean(signal, values, weights, signal.answerable | signal.unanswerable)


MEASURE = MeasureFamily(
    "AURC",
    "area under the risk-coverage curve of the first score",
    aurc,
    needs_relevant=False,
    lower_is_better=True,
    resampled=_resampled,
    reads_judgments=False,
    place=13,
)
