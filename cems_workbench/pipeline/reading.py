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
    """The candidates that may be read of R queries, (R, H) in the order of their ranks, the `inside` of each first; a unit makes the score
    `base + share * unit`."""

    inside: Bools
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
    """What is known of the units of R queries by those read: L⁻¹ and L⁻¹ k, L the Cholesky factor of their covariances, a row each.
    Of `taken`, (R, n), those are read that are `there`; the others make rows of 0."""

    def __init__(self, covariances: Floats) -> None:
        rows, _, width = covariances.shape
        self.covariances, self.taken = covariances, np.zeros((rows, 0), dtype=np.int64)
        self.there = np.zeros((rows, 0), dtype=bool)
        self.inverse, self.across = np.zeros((rows, 0, 0)), np.zeros((rows, 0, width))
        self.variance = covariances.diagonal(axis1=1, axis2=2) + NUGGET

    def keep(self, rows: Bools) -> None:
        """Go on with some of the queries."""
        if not rows.all():
            for name, values in vars(self).items():
                setattr(self, name, values[rows])

    def add(self, places: Ints, there: Bools) -> None:
        """Read those of (R, m) that are there too."""
        (rows, m), n = places.shape, self.taken.shape[1]
        own_rows, columns = np.arange(rows)[:, None], np.arange(m)
        covariances = np.where(there[:, :, None], self.covariances[own_rows, places], 0.0)
        shared = np.where(there[:, :, None], self.across.swapaxes(1, 2)[own_rows, places], 0.0)
        among = covariances[own_rows[:, :, None], columns[:, None], places[:, None]]
        among = np.where(there[:, None], among, 0.0) - shared @ shared.swapaxes(1, 2)
        among[:, columns, columns] += np.where(there, NUGGET, 1.0)
        own = np.linalg.inv(np.linalg.cholesky(among))
        added = own @ (covariances - shared @ self.across)
        inverse = np.zeros((rows, n + m, n + m))
        inverse[:, :n, :n], inverse[:, n:, n:], inverse[:, n:, :n] = self.inverse, own, -own @ (shared @ self.inverse)
        self.inverse, self.across = inverse, np.concatenate([self.across, added], axis=1)
        self.variance = self.variance - (added * added).sum(axis=1)
        self.taken = np.concatenate([self.taken, places], axis=1)
        self.there = np.concatenate([self.there, there], axis=1)

    def of(self, unit: Floats) -> tuple[Floats, Floats]:
        """(R, H) expected units, and their variances, where those read have `unit`."""
        seen, count = np.where(self.there, along(unit, self.taken), 0.0), self.there.sum(axis=1, keepdims=True)
        mean = seen.sum(axis=1, keepdims=True) / count
        off = (self.inverse @ np.where(self.there, seen - mean, 0.0)[:, :, None]).swapaxes(1, 2)
        spread = (off * off).sum(axis=2) / np.maximum(count - 1, 1)
        return mean + (off @ self.across)[:, 0], spread * self.variance


def read_promising(
    head: Head, raw: Floats, known: Bools, to_unit: ToUnit, limits: Ints, misses: Floats, steps: Ints
) -> Reading:
    """The reading of queries by the rule of this module, (R, H) each; `raw` is NaN for a score that failed, `known` has
    those too. (R) each are the number of results, `rerank.expected_misses` and `rerank.read_step`. If every score of
    the first step of a query failed, nothing can be estimated and all are read."""
    read, wanted, skipped = (np.zeros(raw.shape, dtype=bool) for _ in range(3))
    failed, places = np.isnan(raw), np.arange(raw.shape[1])
    last = head.inside.sum(axis=1, keepdims=True) - LOWEST
    first = head.inside & ((places < limits[:, None]) | (places >= last))
    chosen = np.argsort(~first, axis=1, kind="stable")[:, : first.sum(axis=1).max()]
    own, at, estimate = along(first, chosen), np.arange(len(raw)), _Estimate(head.kernel)
    while len(at):
        cells = at[:, None], chosen
        read[cells] |= own & known[cells]
        wanted[cells] |= own & ~known[cells]
        go = (known[cells] | ~own).all(axis=1)
        estimate.keep(go)
        at, chosen, own = at[go], chosen[go], own[go]
        estimate.add(chosen, own & ~failed[at[:, None], chosen])
        blind = at[~estimate.there.any(axis=1)]
        read[blind], wanted[blind] = head.inside[blind] & known[blind], head.inside[blind] & ~known[blind]
        unread = head.inside[at] & ~read[at] & ~wanted[at]
        go = unread.any(axis=1)
        estimate.keep(go)
        at, unread = at[go], unread[go]
        unit = to_unit(raw[at], read[at] & ~failed[at], read[at] & failed[at])
        chance = np.where(unread, _chances(head.base[at], head.share[at], estimate, unit, limits[at]), 0.0)
        # Rounded, as the last digits depend on the other queries of a batch: ties are broken by rank.
        decided: Bools = chance.sum(axis=1).astype(np.float32) < misses[at].astype(np.float32)
        skipped[at[decided]] = unread[decided]
        promise = (chance / np.sqrt(head.cost[at])).astype(np.float32).astype(np.float64)
        most = np.maximum(steps[at], read[at].sum(axis=1) // STEP_SHARE)[:, None]
        chosen = np.argsort(-promise, axis=1, kind="stable")[:, : most.max(initial=0)]
        own = (along(promise, chosen) > 0) & (np.arange(chosen.shape[1]) < most)
        go = ~decided & own.any(axis=1)
        estimate.keep(go)
        at, chosen, own = at[go], chosen[go], own[go]
    return Reading(read, wanted, skipped)


def _chances(base: Floats, share: Floats, estimate: _Estimate, unit: Floats, limits: Ints) -> Floats:
    """(R, H) by candidate the chance to enter the first of `limits` (R), for those that have no `unit` yet."""
    expected, variance = estimate.of(unit)
    score = np.sort(np.where(np.isnan(unit), -np.inf, base + share * unit), axis=1)
    over = along(score, (score.shape[1] - limits)[:, None]) - base
    needed = np.divide(over, share, out=np.where(over > 0, np.inf, -np.inf), where=share > 0)
    return _normal((expected - needed) / np.sqrt(np.maximum(variance, TINY)))


def _normal(x: Floats) -> Floats:
    """The distribution function of the standard normal, to 0.00014 (Bowling et al. 2009)."""
    bounded = np.clip(x, -8.0, 8.0)
    chance: Floats = 1 / (1 + np.exp(-(1.5976 * bounded + 0.07056 * bounded**3)))
    return chance
