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
    """The H candidates of a query that may be read, in the order of their ranks. A unit makes the score `base + share * unit`."""

    base: Floats
    share: Floats
    cost: Floats
    """Above 0, in any measure."""
    kernel: Floats
    """(H, H), without the nugget."""


def read_all(head: Bools, known: Bools) -> Reading:
    """Everything in the head is read."""
    return Reading(head & known, head & ~known, np.zeros_like(head))


ToUnit = Callable[[Floats, Bools, Bools], Floats]
"""(1, H) raw scores, which of them are numbers and which failed, to units; NaN for a candidate without one."""


def similarity_part(similar: Floats) -> Floats:
    """The part of covariances that cosines decide."""
    made: Floats = np.exp((similar - 1) / LENGTH)
    return made


def kernel(of_cosines: Floats, fused: Floats) -> Floats:
    """(H, H) covariances by their part of the cosines and (H) scores from 0 to 1, up to the scale of the units."""
    made: Floats = of_cosines + LINEAR * fused[:, None] * fused
    return made


class _Estimate:
    """What is known of the units of all by those read: L⁻¹ and L⁻¹ k, L the Cholesky factor of their covariances, a row each."""

    def __init__(self, covariances: Floats) -> None:
        self.covariances, self.taken = covariances, np.zeros(0, dtype=np.int64)
        self.inverse, self.across = np.zeros_like(covariances), np.zeros_like(covariances)
        self.variance = covariances.diagonal() + NUGGET

    def add(self, places: Ints) -> None:
        """Read these too."""
        n, m = len(self.taken), len(self.taken) + len(places)
        covariances, across = self.covariances[places], self.across[:n]
        shared = across[:, places].T
        among = covariances[:, places] - shared @ shared.T
        among.flat[:: len(places) + 1] += NUGGET
        own = np.linalg.inv(np.linalg.cholesky(among))
        self.inverse[n:m, :n], self.inverse[n:m, n:m] = -own @ (shared @ self.inverse[:n, :n]), own
        self.across[n:m] = added = own @ (covariances - shared @ across)
        self.variance = self.variance - np.einsum("ij,ij->j", added, added)
        self.taken = np.concatenate([self.taken, places])

    def of(self, unit: Floats) -> tuple[Floats, Floats]:
        """(H) expected units, and their variances, where those read have `unit`."""
        n = len(self.taken)
        seen = unit[self.taken]
        mean = seen.sum() / n
        off = self.inverse[:n, :n] @ (seen - mean)
        return mean + off @ self.across[:n], (off @ off) / max(n - 1, 1) * self.variance


def read_promising(
    head: Head, raw: Floats, known: Bools, to_unit: ToUnit, limit: int, misses: float, step: int
) -> Reading:
    """The reading of a query by the rule of this module, (H) each; `raw` is NaN for a score that failed, `known` has those too.

    If every score of the first step failed, nothing can be estimated and all are read.
    """
    width = len(raw)
    read, wanted, skipped = (np.zeros(width, dtype=bool) for _ in range(3))
    failed, estimate = np.isnan(raw), _Estimate(head.kernel)
    chosen, taken = np.arange(width), 0
    if width > limit + LOWEST:
        chosen = np.concatenate([chosen[:limit], chosen[-LOWEST:]])
    while True:
        there = known[chosen]
        taken += len(chosen)
        read[chosen], wanted[chosen] = there, ~there
        if not there.all():
            break
        good = chosen[~failed[chosen]]
        if len(good):
            estimate.add(good)
        if taken >= width:
            break
        if not len(estimate.taken):
            return Reading(known, ~known, skipped)
        chance = _chances(head, estimate, to_unit(raw[None], (read & ~failed)[None], (read & failed)[None])[0], limit)
        chance[read] = 0.0
        if chance.sum() < misses:
            skipped = ~read
            break
        promise = chance / np.sqrt(head.cost)
        chosen = np.argsort(-promise, kind="stable")[: max(step, taken // STEP_SHARE)]
        chosen = chosen[promise[chosen] > 0]
    return Reading(read, wanted, skipped)


def _chances(head: Head, estimate: _Estimate, unit: Floats, limit: int) -> Floats:
    """(H) by candidate the chance to enter the results, for those that have no `unit` yet."""
    expected, variance = estimate.of(unit)
    score = np.where(np.isnan(unit), -np.inf, head.base + head.share * unit)
    last = np.partition(score, -limit)[-limit]
    over = last - head.base
    needed = np.divide(over, head.share, out=np.where(over > 0, np.inf, -np.inf), where=head.share > 0)
    return _normal((expected - needed) / np.sqrt(np.maximum(variance, TINY)))


def _normal(x: Floats) -> Floats:
    """The distribution function of the standard normal, to 0.00014 (Bowling et al. 2009)."""
    bounded = np.clip(x, -8.0, 8.0)
    chance: Floats = 1 / (1 + np.exp(-(1.5976 * bounded + 0.07056 * bounded**3)))
    return chance
