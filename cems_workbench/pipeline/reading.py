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

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass

import numpy as np

from cems_workbench.pipeline.table import Bools, Floats, Ints, along

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
    """Of the candidates that may be read, (Q, C) each: those whose scores count, those to be scored next, and those not
    worth reading. A candidate that is none of them was not decided on, because the scores of the next ones are
    missing."""

    read: Bools
    wanted: Bools
    skipped: Bools


@dataclass(frozen=True, eq=False)
class Head:
    """The H candidates that may be read of R queries, (R, H) in the order of their ranks; a unit makes the score `base + share * unit`."""

    base: Floats
    share: Floats
    cost: Floats
    """Above 0, in any measure."""
    kernel: Floats
    """(R, H, H), without the nugget."""


def read_all(head: Bools, known: Bools) -> Reading:
    """Everything in the head is read."""
    return Reading(head & known, head & ~known, np.zeros_like(head))


ToUnit = Callable[[Floats, Bools, Bools], Floats]
"""(R, H) raw scores, which of them are numbers and which failed, to units; NaN for a candidate without one."""


def similarity_part(similar: Floats) -> Floats:
    """The part of covariances that cosines decide."""
    made: Floats = np.exp((similar - 1) / LENGTH)
    return made


def kernel(of_cosines: Floats, fused: Floats) -> Floats:
    """(R, H, H) covariances by their part of the cosines and (R, H) scores from 0 to 1, up to the scale of the units."""
    made: Floats = of_cosines + LINEAR * fused[:, :, None] * fused[:, None, :]
    return made


class _Estimate:
    """What is known of the units of R queries by those read: L⁻¹ and L⁻¹ k, L the Cholesky factor of their covariances, a row each."""

    def __init__(self, covariances: Floats) -> None:
        rows, _, width = covariances.shape
        self.covariances, self.taken = covariances, np.zeros((rows, 0), dtype=np.int64)
        self.inverse, self.across = np.zeros((rows, 0, 0)), np.zeros((rows, 0, width))
        self.variance = covariances.diagonal(axis1=1, axis2=2) + NUGGET

    def rows(self, chosen: Ints) -> _Estimate:
        """Those of some of the queries, ascending."""
        if len(chosen) == len(self.taken):
            return self
        some = copy(self)
        for name, values in vars(self).items():
            setattr(some, name, values[chosen])
        return some

    def add(self, places: Ints) -> None:
        """Read these (R, m) too."""
        (rows, m), n = places.shape, self.taken.shape[1]
        own_rows, columns = np.arange(rows)[:, None], np.arange(m)
        covariances = self.covariances[own_rows, places]
        shared = self.across.swapaxes(1, 2)[own_rows, places]
        among = covariances[own_rows[:, :, None], columns[:, None], places[:, None]] - shared @ shared.swapaxes(1, 2)
        among[:, columns, columns] += NUGGET
        own = np.linalg.inv(np.linalg.cholesky(among))
        added = own @ (covariances - shared @ self.across)
        inverse = np.zeros((rows, n + m, n + m))
        inverse[:, :n, :n], inverse[:, n:, n:], inverse[:, n:, :n] = self.inverse, own, -own @ (shared @ self.inverse)
        self.inverse, self.across = inverse, np.concatenate([self.across, added], axis=1)
        self.variance = self.variance - (added * added).sum(axis=1)
        self.taken = np.concatenate([self.taken, places], axis=1)

    def of(self, unit: Floats) -> tuple[Floats, Floats]:
        """(R, H) expected units, and their variances, where those read have `unit`."""
        n = self.taken.shape[1]
        seen = along(unit, self.taken)
        mean = seen.sum(axis=1, keepdims=True) / n
        off = (self.inverse @ (seen - mean)[:, :, None]).swapaxes(1, 2)
        spread = (off * off).sum(axis=2) / max(n - 1, 1)
        return mean + (off @ self.across)[:, 0], spread * self.variance


def read_promising(
    head: Head, raw: Floats, known: Bools, to_unit: ToUnit, limits: Ints, misses: Floats, steps: Ints
) -> Reading:
    """The reading of queries by the rule of this module, (R, H) each; `raw` is NaN for a score that failed, `known` has
    those too. (R) each are the number of results, `rerank.expected_misses` and `rerank.read_step`. If every score of
    the first step of a query failed, nothing can be estimated and all are read."""
    width = raw.shape[1]
    read, wanted, skipped = (np.zeros(raw.shape, dtype=bool) for _ in range(3))
    failed, groups = np.isnan(raw), list[tuple[Ints, Ints, int, _Estimate]]()
    for limit in np.unique(limits).tolist():
        first, own = np.arange(width), np.flatnonzero(limits == limit)
        if width > limit + LOWEST:
            first = np.concatenate([first[:limit], first[-LOWEST:]])
        groups.append((own, np.broadcast_to(first, (len(own), len(first))), 0, _Estimate(head.kernel[own])))
    # Queries that read as many at a step go on together.
    while groups:
        every, chosen, taken, before = groups.pop()
        at = every[:, None], chosen
        there, good = known[at], ~failed[at]
        taken += chosen.shape[1]
        read[at], wanted[at] = there, ~there
        for count, some in _by_count(good, np.all(there, axis=1)):
            own, estimate = every[some], before.rows(some)
            if count:
                estimate.add(chosen[some][good[some]].reshape(-1, count))
            if taken >= width:
                continue
            if not estimate.taken.shape[1]:
                read[own], wanted[own] = known[own], ~known[own]
                continue
            unit = to_unit(raw[own], read[own] & ~failed[own], read[own] & failed[own])
            chance = _chances(head.base[own], head.share[own], estimate, unit, int(limits[own[0]]))
            chance[read[own]] = 0.0
            decided: Bools = chance.sum(axis=1) < misses[own]
            skipped[own[decided]] = ~read[own[decided]]
            promise = chance / np.sqrt(head.cost[own])
            most = np.maximum(steps[own], taken // STEP_SHARE)[:, None]
            order = np.argsort(-promise, axis=1, kind="stable")[:, : most.max()]
            likely = (along(promise, order) > 0) & (np.arange(order.shape[1]) < most)
            for more, alike in _by_count(likely, ~decided):
                groups.append((own[alike], order[alike, :more], taken, estimate.rows(alike)))
    return Reading(read, wanted, skipped)


def _by_count(which: Bools, among: Bools) -> Iterator[tuple[int, Ints]]:
    """Some of the rows (R), those with as many true (R, m) together."""
    counts = which.sum(axis=1)
    for count in set(counts[among].tolist()):
        yield count, np.flatnonzero(among & (counts == count))


def _chances(base: Floats, share: Floats, estimate: _Estimate, unit: Floats, limit: int) -> Floats:
    """(R, H) by candidate the chance to enter the results, for those that have no `unit` yet."""
    expected, variance = estimate.of(unit)
    score = np.where(np.isnan(unit), -np.inf, base + share * unit)
    over = np.partition(score, -limit, axis=1)[:, -limit, None] - base
    needed = np.divide(over, share, out=np.where(over > 0, np.inf, -np.inf), where=share > 0)
    return _normal((expected - needed) / np.sqrt(np.maximum(variance, TINY)))


def _normal(x: Floats) -> Floats:
    """The distribution function of the standard normal, to 0.00014 (Bowling et al. 2009)."""
    bounded = np.clip(x, -8.0, 8.0)
    chance: Floats = 1 / (1 + np.exp(-(1.5976 * bounded + 0.07056 * bounded**3)))
    return chance
