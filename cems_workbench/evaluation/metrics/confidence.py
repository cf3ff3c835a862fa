"""How well a signal, a number for each query, tells queries that have an answer from those that have none: AUROC, AUPRC, AURC.

Each is the mean over queries of a value that depends on the other queries: where a query stands among all, ordered by the signal. Queries
of one signal stand together. Weights w >= 0 say how often each query counts, which is what a bootstrap draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cems_workbench.evaluation.metrics import Compute, GradedRankings, Resampled, families
from cems_workbench.pipeline.table import Bools, Floats, Ints

BLOCK_SIZE = 2_000_000
"""Numbers that are summed at once."""


@dataclass(frozen=True, eq=False)
class ConfidenceSignal:
    """(Q) a number for each query, larger where an answer is more likely, -inf where there is none, and the kind of the query.

    A query that is neither answerable nor unanswerable has no part in anything.
    """

    value: Floats
    answerable: Bools
    unanswerable: Bools

    @cached_property
    def order(self) -> Ints:
        """(C) the queries that count, the largest signal first."""
        counts = np.flatnonzero(self.answerable | self.unanswerable)
        found: Ints = counts[np.argsort(-self.value[counts], kind="stable")]
        return found

    @cached_property
    def last(self) -> Ints:
        """(C) the place of the last query with the signal of this place's."""
        ordered = self.value[self.order]
        ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)) if len(ordered) else np.zeros(0, np.int64)
        found: Ints = ends[np.searchsorted(ends, np.arange(len(ordered)))]
        return found

    def above(self, kind: Floats, weights: Floats) -> Floats:
        """(B, C) the weight of the queries of this place's signal or a larger one, each times `kind` (Q)."""
        return np.cumsum(weights[:, self.order] * kind[self.order], axis=1)[:, self.last]

    def spread(self, values: Floats) -> Floats:
        """(Q) values by place (C) as values by query, NaN for those that do not count."""
        found = np.full(len(self.value), np.nan)
        found[self.order] = values
        return found


def roc_values(signal: ConfidenceSignal, loss: Floats, weights: Floats) -> Floats:
    """(B, C) by place: of an answerable query, the share of the unanswerable ones with a smaller signal, half of those with the same.

    AUROC: how likely an answerable query has a better first score than one that nothing answers; ties count half.

    The signal is the final score of the first result, and a query without results is below all; or it is a signal of abstain.
    Source: Hanley & McNeil, The meaning and use of the area under a receiver operating characteristic (ROC) curve, 1982;
    scikit-learn's roc_auc_score.
    """
    negative = signal.unanswerable.astype(float)
    own = weights[:, signal.order] * negative[signal.order]
    total = own.sum(axis=1, keepdims=True)
    until = signal.above(negative, weights)
    before = np.where(_first(signal) > 0, np.cumsum(own, axis=1)[:, _first(signal) - 1], 0.0)
    below = total - until + (until - before) / 2
    found: Floats = np.divide(below, total, out=np.full(below.shape, np.nan), where=total > 0)
    return found


def precision_values(signal: ConfidenceSignal, loss: Floats, weights: Floats) -> Floats:
    """(B, C) by place: of an answerable query, the share of answerable ones among those with at least its signal.

    AUPRC: the average precision of the first score as a sign that there is an answer.

        AUPRC = mean over answerable queries of  answerable / all,  among the queries with at least its signal

    Source: scikit-learn's average_precision_score. It depends on how many of the queries have an answer, which is its value for a signal
    that says nothing. (AP is the average precision of a ranking of memories.)
    """
    positive = signal.above(signal.answerable.astype(float), weights)
    return _share(positive, signal.above(np.ones(len(signal.value)), weights))


def risk_values(signal: ConfidenceSignal, loss: Floats, weights: Floats) -> Floats:
    """(B, C) by place: the mean loss (Q) of the queries with at least this one's signal.

    AURC@k: the area under the risk-coverage curve, of both kinds of queries, ordered by the score of the first result; lower is better.

        AURC = mean over queries of the mean loss among the queries with at least its signal

    The loss is 1 for an answerable query without anything relevant in the first k, 1 for an unanswerable one that gets a result, else 0.
    Source: Geifman, Uziel & El-Yaniv, Bias-reduced uncertainty estimation for deep neural classifiers, 2019.
    """
    return _share(signal.above(loss, weights), signal.above(np.ones(len(signal.value)), weights))


def weighted_mean(signal: ConfidenceSignal, values: Floats, weights: Floats, of: Bools) -> Floats:
    """(B) the mean of (B, C) values by place over the queries of a kind (Q); NaN where there is none, or a value is not defined."""
    own = weights[:, signal.order] * of[signal.order]
    total = own.sum(axis=1)
    summed = np.where(own > 0, values, 0.0) * own
    found: Floats = np.divide(summed.sum(axis=1), total, out=np.full(len(total), np.nan), where=total > 0)
    return found


def risk_coverage(signal: ConfidenceSignal, loss: Floats) -> tuple[Floats, Floats]:
    """The risk-coverage curve: the share of queries that are answered where all from some signal on are, and their mean loss.

    One point a distinct signal, the largest first. Source: El-Yaniv & Wiener, On the foundations of noise-free selective
    classification, 2010.
    """
    ends = np.unique(signal.last)
    risk = risk_values(signal, loss, np.ones((1, len(signal.value))))[0]
    return (ends + 1) / max(len(signal.order), 1), risk[ends]


def blocks(weights: Floats) -> list[Floats]:
    """(B, Q) weights in blocks of rows that are summed at once."""
    rows = max(1, BLOCK_SIZE // max(weights.shape[1], 1))
    return [weights[start : start + rows] for start in range(0, len(weights), rows)]


def _first(signal: ConfidenceSignal) -> Ints:
    """(C) the place of the first query with the signal of this place's."""
    found: Ints = np.searchsorted(signal.last, signal.last, side="left")
    return found


def _share(part: Floats, whole: Floats) -> Floats:
    found: Floats = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return found


def _area(values: Values, alone: bool, of_both: bool) -> tuple[Compute, Resampled]:
    """A measure by the values of its queries, each alone, and of draws. `alone`: it has values where every query is answerable;
    `of_both`: its mean is over both kinds of queries."""

    def defined(signal: ConfidenceSignal) -> bool:
        return alone or bool(signal.unanswerable.any())

    def compute(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
        signal = first_score(rankings, grade)
        if not defined(signal):
            return np.full(len(signal.value), np.nan)
        return signal.spread(values(signal, losses(rankings, k, grade), np.ones((1, len(signal.value))))[0])

    def resampled(rankings: GradedRankings, k: int | None, grade: int, drawn: Floats) -> Floats:
        signal, loss = first_score(rankings, grade), losses(rankings, k, grade)
        if not defined(signal):
            return np.full(len(drawn), np.nan)
        of = signal.answerable | signal.unanswerable if of_both else signal.answerable
        return np.concatenate([weighted_mean(signal, values(signal, loss, some), some, of) for some in blocks(drawn)])

    compute.__doc__ = values.__doc__
    return compute, resampled


def first_score(rankings: GradedRankings, grade: int) -> ConfidenceSignal:
    """The score of the first result, or the chosen signal, as the signal of an answer; a query without a value has no part in it."""
    value = rankings.signal()
    known = ~np.isnan(value)
    return ConfidenceSignal(value, rankings.answerable(grade) & known, rankings.without_answer(grade) & known)


def curve(rankings: GradedRankings, k: int | None, grade: int) -> tuple[Floats, Floats]:
    """The risk-coverage curve (`risk_coverage`): coverage and risk, a point each distinct score of a first result."""
    return risk_coverage(first_score(rankings, grade), losses(rankings, k, grade))


def losses(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) 1 where what is returned fails the query, 0 where it does not."""
    missed = ~rankings.relevant(grade)[:, :k].any(axis=1)
    return np.where(rankings.without_answer(grade), rankings.filled.any(axis=1), missed).astype(float)


Values = Callable[[ConfidenceSignal, Floats, Floats], Floats]
"""(signal, (Q) loss, (B, Q) weights) -> (B, C) values by place."""
MEASURE = families(
    AUROC=_area(roc_values, alone=True, of_both=False),
    AUPRC=_area(precision_values, alone=False, of_both=False),
    AURC=_area(risk_values, alone=False, of_both=True),
)
