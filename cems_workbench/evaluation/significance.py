"""Is the difference between two configs more than chance? A paired randomisation test over queries, corrected for many tests.

    p = share of sign patterns s in {-1, +1}^Q with |mean(s * d)| >= |mean(d)|,    d the differences per query

Two-sided. With at most `EXACT` queries that differ at all every pattern is tried; else `DRAWS` patterns are drawn with a seed and the
observed one is counted among them, so that p is never 0. Holm's step-down correction keeps the chance of one false finding in a
whole table at the level of one test. The effect size is Cohen's d of paired values: mean(d) / sd(d).

Source: Fisher 1935; Smucker, Allan & Carterette, A comparison of statistical significance tests for IR evaluation, 2007; Holm 1979.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cems_workbench.pipeline.table import Floats

DRAWS = 10_000
EXACT = 13
AT_A_TIME = 500
SAME = 1e-12


def randomisation_test(differences: Floats, seed: int = 0, draws: int = DRAWS) -> Floats:
    """(M) two-sided p of each column of (Q, M) differences; queries whose difference is NaN are left out of that column."""
    d = np.where(np.isnan(differences), 0.0, differences)
    observed = np.abs(d.sum(axis=0))
    p = np.ones(d.shape[1])
    moved = np.abs(d) > SAME
    few = moved.sum(axis=0) <= EXACT
    for m in np.flatnonzero(few & moved.any(axis=0)):
        p[m] = _exact(d[moved[:, m], m])
    many = np.flatnonzero(~few)
    if len(many):
        rows = moved[:, many].any(axis=1)
        p[many] = _drawn(d[np.ix_(rows, many)], observed[many], seed, draws)
    return p


def _exact(d: Floats) -> float:
    patterns = (np.arange(2 ** len(d))[:, None] >> np.arange(len(d))) & 1
    sums = np.abs((2 * patterns - 1) @ d)
    return float((sums >= abs(d.sum()) - SAME).mean())


def _drawn(d: Floats, observed: Floats, seed: int, draws: int) -> Floats:
    rng = np.random.default_rng(seed)
    total, least = d.sum(axis=0), observed - SAME
    reached = np.ones(d.shape[1])
    for start in range(0, draws, AT_A_TIME):
        count = min(AT_A_TIME, draws - start)
        bits = np.unpackbits(rng.integers(0, 256, size=(count, -(-len(d) // 8)), dtype=np.uint8), axis=1)[:, : len(d)]
        sums = 2 * (bits.astype(np.float64) @ d) - total  # sum of +d where the bit is set, -d elsewhere
        reached += (np.abs(sums) >= least).sum(axis=0)
    found: Floats = reached / (draws + 1)
    return found


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p of each test, in the order given."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    worst = 0.0
    for place, i in enumerate(order):
        worst = max(worst, min(1.0, (len(p) - place) * p[int(i)]))
        adjusted[i] = worst
    return [float(value) for value in adjusted]


def effect_size(differences: Floats) -> float:
    """Cohen's d of paired differences (Q), NaN left out; 0 where nothing differs, inf where all differ alike."""
    d = differences[~np.isnan(differences)]
    if len(d) < 2 or not d.any():
        return 0.0
    spread = float(d.std(ddof=1))
    return float(d.mean()) / spread if spread > SAME else float(np.copysign(np.inf, d.mean()))
