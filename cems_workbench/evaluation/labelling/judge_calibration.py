"""People against a model judge: where its scores should mean relevant, how far its probabilities hold, and where the two differ most.

A person's grade counts as relevant from `relevant_from` on, a model's score above a threshold t. Cohen's kappa of the two is computed
for every t that tells two scores apart, from cumulative counts, and the best t is the one of highest kappa; of a stretch of equal ones
its middle. Intervals are percentiles over queries resampled with replacement: each draw has its own best threshold, and the
kappa of every fixed threshold. The interval of the threshold says how far it can move without the labels saying otherwise.

Reliability: pairs in bins of equal count by the judge's probability, against the share that people call relevant, with Wilson's
interval; the calibration error is sum over bins of (pairs in it / pairs) * |mean probability - share|.

Sources: Cohen 1960; DeGroot and Fienberg 1983; Wilson 1927; Naeini et al., "Obtaining Well Calibrated Probabilities" (2015).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cems_workbench.evaluation.grades import Grades
from cems_workbench.evaluation.labelling.agreement import INTERVAL_PERCENTILES, RESAMPLES, Estimate, weighted_kappa
from cems_workbench.evaluation.labelling.pooling import Pair
from cems_workbench.evaluation.labelling.prejudging import band, grade_of
from cems_workbench.pipeline.stages.judge import BANDS
from cems_workbench.records import JudgeScale

Floats = NDArray[np.float64]
MAX_THRESHOLDS = 400
"""Thresholds that are tried; of more scores, evenly many between each two."""
BINS = 10


@dataclass(frozen=True, slots=True)
class GradedScore:
    """A pair with the grade people agreed on and the judge's raw score."""

    qid: str
    memory_id: str
    grade: int
    raw: float

    @property
    def pair(self) -> Pair:
        """Query and memory."""
        return self.qid, self.memory_id


@dataclass(frozen=True, slots=True)
class Calibration:
    """The threshold of highest agreement with its 95% interval, its kappa, and the kappa of the present threshold.

    `thresholds` and `kappas` are the whole curve, thresholds rising. None where kappa is not defined: people called all pairs
    relevant, or none, or there are no two scores.
    """

    threshold: float | None
    low: float | None
    high: float | None
    kappa: Estimate
    present: Estimate
    thresholds: Floats
    kappas: Floats


@dataclass(frozen=True, slots=True)
class Bin:
    """Pairs of like probability: their mean probability, and the share people call relevant with its 95% interval."""

    probability: float
    share: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True, slots=True)
class Difference:
    """A pair on which people and the judge differ: `steps` between the person's grade and the grade of the judge's band."""

    scored: GradedScore
    band: str
    steps: int
    distance: float
    """How far the score is from the threshold."""


def graded_scores(grades: Grades, scores: Mapping[Pair, float]) -> list[GradedScore]:
    """The pairs that both graded, by query and memory."""
    both = [(pair, raw) for pair, raw in sorted(scores.items()) if pair[1] in grades.get(pair[0], {})]
    return [GradedScore(qid, memory_id, grades[qid][memory_id], raw) for (qid, memory_id), raw in both]


def band_confusion(pairs: Sequence[GradedScore], scale: JudgeScale) -> dict[int, list[int]]:
    """How many pairs of each grade, highest first, the judge put in each of BANDS."""
    found: dict[int, list[int]] = {
        grade: [0] * len(BANDS) for grade in sorted({pair.grade for pair in pairs}, reverse=True)
    }
    for pair in pairs:
        found[pair.grade][band(pair.raw, scale)] += 1
    return found


def calibrate(
    pairs: Sequence[GradedScore], present: float, relevant_from: int, draws: int = RESAMPLES, seed: int = 0
) -> Calibration:
    """The threshold on which the judge agrees best with people, and the agreement at `present`, the threshold it has."""
    raw = np.array([pair.raw for pair in pairs], np.float64)
    relevant = np.array([pair.grade >= relevant_from for pair in pairs], bool)
    thresholds = _between(raw)
    numbers = {qid: n for n, qid in enumerate(sorted({pair.qid for pair in pairs}))}
    query = np.array([numbers[pair.qid] for pair in pairs], np.intp)
    per_query = _confusions(raw, relevant, query, len(numbers), np.append(thresholds, present))
    kappas = weighted_kappa(per_query.sum(0))
    best = _best(kappas[:-1]) if relevant.any() and not relevant.all() else None
    drawn = _drawn_kappas(per_query, draws, seed)
    there = _estimate(kappas[-1], drawn[:, -1], len(pairs))
    if best is None:
        return Calibration(
            None, None, None, _estimate(np.nan, drawn[:, -1], len(pairs)), there, thresholds, kappas[:-1]
        )
    winners = [thresholds[at] for row in drawn if (at := _best(row[:-1])) is not None]
    low, high = np.percentile(winners, INTERVAL_PERCENTILES) if winners else (thresholds[best], thresholds[best])
    kappa = _estimate(kappas[best], drawn[:, best], len(pairs))
    return Calibration(float(thresholds[best]), float(low), float(high), kappa, there, thresholds, kappas[:-1])


def _between(raw: Floats) -> Floats:
    """A threshold between each two neighbouring scores, in as few digits as tell them apart."""
    scores = np.unique(raw)
    at = np.arange(len(scores) - 1)
    if len(at) > MAX_THRESHOLDS:
        at = np.unique(np.linspace(0, len(scores) - 2, MAX_THRESHOLDS).round().astype(np.intp))
    return np.array([_short(float(scores[i]), float(scores[i + 1])) for i in at], np.float64)


def _short(low: float, high: float) -> float:
    """A number of few digits with low <= number < high: a score above it, as the judge reads a threshold, is `high` or more."""
    middle = (low + high) / 2
    for digits in range(17):
        number = round(middle, digits)
        if low <= number < high:
            return number
    return low


def _confusions(
    raw: Floats, relevant: NDArray[np.bool_], query: NDArray[np.intp], queries: int, thresholds: Floats
) -> Floats:
    """(queries, thresholds, 2, 2) pairs by person (0 not, 1 relevant) and judge, from counts that rise with the threshold."""
    order = np.argsort(thresholds, kind="stable")
    below = np.searchsorted(thresholds[order], raw, side="left")  # the first threshold that the score is not above
    said = np.zeros((queries, len(thresholds) + 1, 2))
    np.add.at(said, (query, below, relevant.astype(np.intp)), 1.0)
    not_above = np.cumsum(said, axis=1)[:, :-1]
    total = said.sum(axis=1, keepdims=True)
    rising = np.stack([not_above, total - not_above], axis=-1)
    return rising[:, np.argsort(order, kind="stable")]


def _drawn_kappas(per_query: Floats, draws: int, seed: int) -> Floats:
    """(draws, thresholds) kappa of each threshold over queries drawn with replacement."""
    queries = len(per_query)
    if not queries:
        return np.full((draws, per_query.shape[1]), np.nan)
    times = np.random.default_rng(seed).multinomial(queries, np.full(queries, 1 / queries), draws).astype(np.float64)
    flat = per_query.reshape(queries, -1)
    return weighted_kappa((times @ flat).reshape(draws, *per_query.shape[1:]))


def _best(kappas: Floats) -> int | None:
    """The place of the highest kappa, the middle one of several; None where none is defined."""
    if not np.isfinite(kappas).any():
        return None
    highest = np.flatnonzero(kappas >= np.nanmax(kappas) - 1e-12)
    return int(highest[len(highest) // 2])


def _estimate(value: float | np.floating, drawn: Floats, pairs: int) -> Estimate:
    usable = drawn[np.isfinite(drawn)]
    if not np.isfinite(value) or not len(usable):
        return Estimate(None, None, None, pairs)
    low, high = np.percentile(usable, INTERVAL_PERCENTILES)
    return Estimate(float(value), float(low), float(high), pairs)


def probabilities(pairs: Sequence[GradedScore]) -> tuple[Floats, bool]:
    """The judge's scores as probabilities, and whether they are its own: scores within 0 to 1 are, others go through a sigmoid."""
    raw = np.array([pair.raw for pair in pairs], np.float64)
    if len(raw) and raw.min() >= 0 and raw.max() <= 1:
        return raw, True
    return np.asarray(1 / (1 + np.exp(-np.clip(raw, -700, 700)))), False


def reliability(probability: Floats, relevant: Sequence[bool], bins: int = BINS) -> list[Bin]:
    """Bins of equal count by probability, lowest first; equal probabilities share a bin."""
    if not len(probability):
        return []
    called = np.asarray(relevant, bool)
    edges = np.unique(np.quantile(probability, np.linspace(0, 1, bins + 1)))
    place = np.searchsorted(edges[1:-1], probability, side="right")
    found = []
    for at in np.unique(place):
        inside = place == at
        low, high = wilson(int(called[inside].sum()), int(inside.sum()))
        found.append(Bin(float(probability[inside].mean()), float(called[inside].mean()), low, high, int(inside.sum())))
    return found


def calibration_error(bins: Sequence[Bin]) -> float | None:
    """The mean distance of probability and share over all pairs; None without pairs."""
    pairs = sum(each.pairs for each in bins)
    return sum(each.pairs * abs(each.probability - each.share) for each in bins) / pairs if pairs else None


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share of at least one trial."""
    from scipy.stats import binomtest

    found = binomtest(successes, trials).proportion_ci(0.95, "wilson")
    return float(found.low), float(found.high)


def differences(pairs: Sequence[GradedScore], scale: JudgeScale, relevant_from: int) -> list[Difference]:
    """The pairs that only one of the two calls relevant, those most steps apart first, then those furthest from the threshold."""
    found = [
        Difference(
            pair,
            BANDS[band(pair.raw, scale)],
            abs(pair.grade - grade_of(pair.raw, scale)),
            abs(pair.raw - scale.threshold),
        )
        for pair in pairs
        if (pair.grade >= relevant_from) != (pair.raw > scale.threshold)
    ]
    return sorted(found, key=lambda each: (-each.steps, -each.distance, each.scored.pair))
