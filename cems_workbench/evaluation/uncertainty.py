"""How sure a mean over queries is: bootstrap confidence intervals, and bounds for what nobody judged.

The bootstrap draws as many queries as there are, with replacement, `RESAMPLES` times with a fixed seed, and takes the percentiles of
the means (Efron & Tibshirani 1993; Sakai, Evaluating evaluation metrics based on the bootstrap, 2006).

Point values count an unjudged result as not relevant, as trec_eval does. The bounds let each unjudged result within the measure's
cut-off be either not relevant or of the highest grade that the judgments have. For a number m of them relevant, a measure is
highest with the first m and lowest with the last m, so trying every m gives the exact worst and best case. The lowest lies below the
point value only for measures that ask for all relevant (recall, AP, nDCG): what turns out relevant further down is then missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from cems_workbench.evaluation.metrics.measure import Measure
from cems_workbench.evaluation.metrics.rankings import NO_GRADE, GradedRankings
from cems_workbench.pipeline.table import Bools, Floats

RESAMPLES = 1000
LEVEL = 0.95


def means(values: Floats) -> Floats:
    """(M) mean of each column of (Q, M) values over the queries where it is defined; NaN where it nowhere is."""
    defined = ~np.isnan(values)
    count = defined.sum(axis=0)
    total = np.where(defined, values, 0.0).sum(axis=0)
    found: Floats = np.divide(total, count, out=np.full(values.shape[1], np.nan), where=count > 0)
    return found


def bootstrap(values: Floats, seed: int = 0, resamples: int = RESAMPLES, level: float = LEVEL) -> Floats:
    """(2, M) lower and upper end of the confidence interval of each column's mean; NaN where there is no mean."""
    defined = ~np.isnan(values)
    if not len(values):
        return np.full((2, values.shape[1]), np.nan)
    drawn = _draws(len(values), resamples, seed)
    total, count = drawn @ np.where(defined, values, 0.0), drawn @ defined.astype(float)
    sampled = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    out = np.full((2, values.shape[1]), np.nan)
    for m in np.flatnonzero(defined.any(axis=0)):
        out[:, m] = np.nanpercentile(sampled[:, m], [50 * (1 - level), 50 * (1 + level)])
    return out


@lru_cache(maxsize=4)
def _draws(queries: int, resamples: int, seed: int) -> Floats:
    """(resamples, queries) how often each query was drawn."""
    chosen = np.random.default_rng(seed).integers(0, queries, size=(resamples, queries))
    chosen += np.arange(resamples)[:, None] * queries
    counted = np.bincount(chosen.ravel(), minlength=resamples * queries)
    return counted.reshape(resamples, queries).astype(float)


def bounds(rankings: GradedRankings, measures: Sequence[Measure]) -> Floats:
    """(2, M) mean of each measure over the queries in the worst and in the best case of what is not judged."""
    out = np.zeros((2, len(measures)))
    highest = int(rankings.ideal.max(initial=1))
    for m, measure in enumerate(measures):
        if measure.family == "Judged":
            out[:, m] = means(measure.values(rankings)[:, None])[0]
            continue
        out[:, m] = _worst_and_best(rankings, measure, max(highest, measure.grade))
    return out


def _worst_and_best(rankings: GradedRankings, measure: Measure, highest: int) -> tuple[float, float]:
    point = measure.values(rankings)
    unjudged = (rankings.filled & ~rankings.judged)[:, : measure.k]
    concerned = np.flatnonzero(unjudged.any(axis=1) & ~np.isnan(point))
    low, high = point.copy(), point.copy()
    if len(concerned):
        part = GradedRankings(
            rankings.grade[concerned], rankings.judged[concerned], rankings.filled[concerned], rankings.ideal[concerned]
        )
        loose = unjudged[concerned]
        order, count = np.cumsum(loose, axis=1), loose.sum(axis=1, keepdims=True)
        for m in range(1, int(count.max()) + 1):
            for chosen in (loose & (order <= m), loose & (order > count - m)):
                value = measure.values(_with(part, chosen, highest))
                low[concerned] = np.minimum(low[concerned], value)
                high[concerned] = np.maximum(high[concerned], value)
    return float(means(low[:, None])[0]), float(means(high[:, None])[0])


def _with(rankings: GradedRankings, chosen: Bools, grade: int) -> GradedRankings:
    """The rankings with the chosen results judged, all of them `grade`; no grade is higher."""
    pad = np.zeros((len(chosen), rankings.grade.shape[1] - chosen.shape[1]), dtype=bool)
    all_chosen = np.concatenate([chosen, pad], axis=1)
    added = np.where(np.arange(chosen.shape[1]) < chosen.sum(axis=1, keepdims=True), grade, NO_GRADE)
    ideal = np.sort(np.concatenate([added, rankings.ideal], axis=1), axis=1)[:, ::-1]
    return GradedRankings(
        np.where(all_chosen, grade, rankings.grade), rankings.judged | all_chosen, rankings.filled, ideal
    )
