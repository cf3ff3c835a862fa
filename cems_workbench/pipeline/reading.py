"""Which candidates a reranker reads: those that may still enter the results, a few at a time, until hardly one can.

The `limit` first by retrieval are read, and the LOWEST last, which tell how low scores are. After every step the units of the unread are
estimated from those read, by kriging (a Gaussian process) over the candidates of the query:

    k(i, j)   exp((cos(i, j) - 1) / LENGTH) + LINEAR * f_i * f_j, and NUGGET more for i = j
    mean      of the units read + k_u' (K + NUGGET I)^-1 (units - their mean)
    variance  s² (k(u, u) + NUGGET - k_u' (K + NUGGET I)^-1 k_u),  s² estimated from the units read
    enters    Phi((mean - the unit with which u would be as high as the last result) / sd)

cos are the cosines of the memories, f the score before reranking, spread over 0..1. Reading ends once the chances of all unread candidates
add up to less than `rerank.expected_misses`; else the `rerank.read_step` with the highest chance, divided by the root of what reading them
costs, are next, of a long head more at a time. Nothing is known of the reranker: the estimate has the scale of what it gave to this query,
so that it holds for any model.
What is read depends on the scores of what was read alone, never on a cache, so that a replay reads what the gather read.

LENGTH, LINEAR and NUGGET have the highest likelihood on every second query of the sample set, the scale left to each query.
Source: Rasmussen & Williams, Gaussian Processes for Machine Learning, 2006, section 2.2; docs/internals/specification.md, "rerank".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cems_workbench.pipeline.table import Bools, Floats, Ints

LENGTH = 0.65
LINEAR = 4.7
NUGGET = 0.01
LOWEST = 3
"""Candidates read from the end before anything is estimated."""
STEP_SHARE = 8
"""A step reads at least one in so many of those read before it, so that few steps read a long head."""
TINY = 1e-12
"""Variance of an estimate that has none."""


@dataclass(frozen=True, eq=False)
class Reading:
    """Of the candidates that may be read, (Q, C) each: those whose scores count, those to be scored next, and those not worth reading.

    A candidate that is none of them was not decided on, because the scores of the next ones are missing.
    """

    read: Bools
    wanted: Bools
    skipped: Bools


@dataclass(frozen=True, eq=False)
class Head:
    """The candidates that may be read, in the order of their ranks: (Q, H), H the rerank depth; -1 in `column` past the end.

    A unit makes the score `base + share * unit`.
    """

    column: Ints
    base: Floats
    share: Floats
    cost: Floats
    """Above 0, in any measure."""
    kernel: Floats
    """(Q, H, H), without the nugget."""


def read_all(head: Bools, known: Bools) -> Reading:
    """Everything in the head is read."""
    return Reading(head & known, head & ~known, np.zeros_like(head))


ToUnit = Callable[[Floats, Bools, Bools], Floats]
"""(Q, H) raw scores, which of them are numbers and which failed, to units; NaN for a candidate without one."""


def kernel(similar: Floats, fused: Floats) -> Floats:
    """(Q, H, H) covariances by cosines and (Q, H) scores from 0 to 1, up to the scale of the units."""
    made: Floats = np.exp((similar - 1) / LENGTH) + LINEAR * fused[:, :, None] * fused[:, None, :]
    return made


def read_promising(
    head: Head, raw: Floats, known: Bools, to_unit: ToUnit, limit: int, misses: float, step: int
) -> Reading:
    """The reading of Q queries by the rule of this module, over (Q, H); `raw` is NaN for a score that failed, `known` has those too.

    If every score of the first step failed, nothing can be estimated and all are read.
    """
    queries, width = head.column.shape
    inside = head.column >= 0
    count = inside.sum(axis=1, keepdims=True)
    read, wanted, skipped = (np.zeros_like(inside) for _ in range(3))
    first = (np.arange(width) < limit) | (np.arange(width) >= count - LOWEST)
    promise = np.where(inside & first, 1.0, 0.0)
    going, size = np.arange(queries), min(width, limit + LOWEST)
    taken = np.full((queries, 0), -1)
    while len(going):
        order = np.argsort(-promise, axis=1, kind="stable")[:, :size]
        chosen = np.take_along_axis(promise, order, axis=1) > 0
        rows, places = going[np.nonzero(chosen)[0]], order[chosen]
        read[rows, places] = known[rows, places]
        wanted[rows, places] = ~known[rows, places]
        taken = np.concatenate([taken, np.where(chosen, order, -1)], axis=1)
        scored = (read & ~np.isnan(raw))[going].any(axis=1)
        blind = going[~scored & ~wanted[going].any(axis=1)]
        read[blind], wanted[blind] = (inside & known)[blind], (inside & ~known)[blind]
        on = scored & ~wanted[going].any(axis=1)
        going, taken = going[on], taken[on]
        chance = _chances(head, raw, read, to_unit, going, taken, limit)
        on = chance.sum(axis=1) >= misses
        skipped[going[~on]] = (inside & ~read)[going[~on]]
        going, taken = going[on], taken[on]
        promise = chance[on] / np.sqrt(head.cost[going])
        size = min(max(step, taken.shape[1] // STEP_SHARE), width)
    return Reading(read, wanted, skipped)


def _chances(head: Head, raw: Floats, read: Bools, to_unit: ToUnit, going: Ints, taken: Ints, limit: int) -> Floats:
    """(G, H) by query the chance of each unread candidate to enter the results; `taken` (G, n) are the places read, -1 for none."""
    good = read[going] & ~np.isnan(raw[going])
    unit = to_unit(raw[going], good, read[going] & ~good)
    rows, at, own = np.arange(len(going))[:, None], np.maximum(taken, 0), going[:, None]
    counts = (taken >= 0) & good[rows, at]
    number = counts.sum(axis=1, keepdims=True)
    seen = np.where(counts, unit[rows, at], 0.0)
    mean = seen.sum(axis=1, keepdims=True) / number
    off = np.where(counts, seen - mean, 0.0)
    across = np.where(counts[:, :, None], head.kernel[own, at], 0.0)
    among = np.where(counts[:, None, :], across[rows[:, :, None], np.arange(at.shape[1])[:, None], at[:, None, :]], 0.0)
    # A place that does not count is a row of the identity, which changes no other.
    among = among + np.eye(at.shape[1]) * np.where(counts, NUGGET, 1.0)[:, None, :]
    solved = np.linalg.solve(among, np.concatenate([off[:, :, None], across], axis=2))
    scale = (off * solved[:, :, 0]).sum(axis=1, keepdims=True) / np.maximum(number - 1, 1)
    expected = mean + (across * solved[:, :, :1]).sum(axis=1)
    variance = np.diagonal(head.kernel[going], axis1=1, axis2=2) + NUGGET - (across * solved[:, :, 1:]).sum(axis=1)
    deviation = np.sqrt(np.maximum(scale * variance, TINY))
    base, share = head.base[going], head.share[going]
    score = np.where(np.isnan(unit), -np.inf, base + share * unit)
    last = np.sort(score, axis=1)[:, -limit, None]
    needed = np.divide(last - base, share, out=np.where(last > base, np.inf, -np.inf), where=share > 0)
    unread = (head.column[going] >= 0) & ~read[going]
    return np.where(unread, _normal((expected - needed) / deviation), 0.0)


def _normal(x: Floats) -> Floats:
    """The distribution function of the standard normal, to 0.00014 (Bowling et al. 2009)."""
    bounded = np.clip(x, -8.0, 8.0)
    chance: Floats = 1 / (1 + np.exp(-(1.5976 * bounded + 0.07056 * bounded**3)))
    return chance
