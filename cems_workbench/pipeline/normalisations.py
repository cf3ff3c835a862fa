"""Normalisations: how the raw scores of a list become comparable with those of other lists.

    max             s / largest                                  as they are where the largest is not positive
    minmax          (s - least) / (largest - least)              `lists.equal_scores` where all are equal
    saturating      s / (1 + s)                                  0 for s <= 0
    logistic        1 / (1 + exp(-slope * (s - midpoint)))       0 for s <= 0; midpoint and slope by the number of the query's words
    exponential     0.5 ** (age / half_life_days)                of dates (recency); above 1 for a memory written after the query's moment
    smoothed_share  (n + 1) / (max(largest, 1) + 1)              of counts (access)

Each takes (Q, L, C) scores and the mask of the hits that it scales. A list is cut to its depth first, so extremes are those of its hits.

Source: CEMS plan, phase 2 (max, which its documents call min-max); mem0 2.2.1 (logistic); engram, memory_recall (exponential,
smoothed_share, 0.5 for equal scores); docs/internals/specification.md, "lists".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from cems_workbench.config.sections.gathering import ListsConfig
from cems_workbench.pipeline.table import Bools, CandidateTable, Floats, Ints

DAY = 86400.0
MOST_DOUBLINGS = 100.0
"""Half-lives into the future that count: a wrong date must not make a score infinite."""


def _largest(raw: Floats, mask: Bools) -> Floats:
    """(Q, L, 1) the largest score of each list, -inf for an empty one."""
    largest: Floats = np.where(mask, raw, -np.inf).max(axis=2, keepdims=True, initial=-np.inf)
    return largest


def _max(raw: Floats, mask: Bools, config: ListsConfig, table: CandidateTable) -> Floats:
    high = _largest(raw, mask)
    # Without a positive maximum, division would flip the order or fail: the raw scores stay.
    normalised: Floats = np.divide(raw, high, out=raw.copy(), where=np.isfinite(high) & (high > 0))
    return normalised


def _minmax(raw: Floats, mask: Bools, config: ListsConfig, table: CandidateTable) -> Floats:
    high = _largest(raw, mask)
    low = np.where(mask, raw, np.inf).min(axis=2, keepdims=True, initial=np.inf)
    # An empty list has low inf and high -inf; their difference must not become a spread.
    spread = np.where(high > low, high - low, 0.0)
    normalised: Floats = np.divide(
        raw - np.where(mask, low, 0.0), spread, out=np.full_like(raw, config.equal_scores), where=spread > 0
    )
    return normalised


def _saturating(raw: Floats, mask: Bools, config: ListsConfig, table: CandidateTable) -> Floats:
    safe = np.where(mask & (raw > 0), raw, 0.0)
    normalised: Floats = safe / (1 + safe)
    return normalised


def _logistic(raw: Floats, mask: Bools, config: ListsConfig, table: CandidateTable) -> Floats:
    midpoint, slope = (values[:, :, None] for values in logistic_of(table.lists.words, config))
    # exp overflows to inf far below the midpoint, which is the right 0.
    with np.errstate(over="ignore"):
        normalised: Floats = np.where(mask & (raw > 0), 1 / (1 + np.exp(-slope * (raw - midpoint))), 0.0)
    return normalised


def logistic_of(words: Ints, config: ListsConfig) -> tuple[Floats, Floats]:
    """Midpoint and slope for numbers of words, of any one shape: the first band that covers a number, else the last.

    0 without bands.
    """
    midpoint, slope = np.zeros(words.shape), np.zeros(words.shape)
    for i, band in reversed(list(enumerate(config.logistic.bands))):
        last = i == len(config.logistic.bands) - 1
        covers = np.ones(words.shape, dtype=bool) if last or band.max_words is None else words <= band.max_words
        midpoint, slope = np.where(covers, band.midpoint, midpoint), np.where(covers, band.slope, slope)
    return midpoint, slope


def _exponential(raw: Floats, mask: Bools, config: ListsConfig, table: CandidateTable) -> Floats:
    # Without a moment there is no age, and nothing is older than another.
    age = np.nan_to_num(table.as_of[:, None, None] - raw, nan=0.0) / DAY
    normalised: Floats = 0.5 ** np.maximum(age / config.recency.half_life_days, -MOST_DOUBLINGS)
    return normalised


def _smoothed_share(raw: Floats, mask: Bools, config: ListsConfig, table: CandidateTable) -> Floats:
    normalised: Floats = (raw + 1) / (np.maximum(_largest(raw, mask), 1.0) + 1)
    return normalised


NORMALISATIONS: Mapping[str, Callable[[Floats, Bools, ListsConfig, CandidateTable], Floats]] = {
    "max": _max,
    "minmax": _minmax,
    "saturating": _saturating,
    "logistic": _logistic,
    "exponential": _exponential,
    "smoothed_share": _smoothed_share,
}
"""Every normalisation but none, by the name that `lists.<source>.normalization` gives it."""
