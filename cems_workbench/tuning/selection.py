"""Which of the tried configs is proposed: of those that the best is not significantly better than, the closest to the baseline.

A search tries many configs, and the best of many is partly luck. Among those that a paired t-test (one-sided, over the same queries)
cannot tell from the best, the one that changes least is proposed: it is as good as far as anybody knows, and easier to trust.

    t = mean(d) / (sd(d) / sqrt(Q)),   d = best - other per query;   not told apart when t < t(1 - alpha; Q - 1)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cems_workbench.pipeline.table import Bools, Floats

ALPHA = 0.05


def chosen(scores: Sequence[Floats], distances: Sequence[float], alpha: float = ALPHA) -> int:
    """Index of the proposed config. `scores` are (Q) per config; ties go to the nearer, then the better, then the first."""
    means = np.array([values.mean() for values in scores])
    best = int(means.argmax())
    equal = np.flatnonzero(not_told_apart(scores[best], scores, alpha))
    return min(equal.tolist(), key=lambda i: (round(distances[i], 9), -means[i], i))


def not_told_apart(best: Floats, others: Sequence[Floats], alpha: float = ALPHA) -> Bools:
    """Which of the others the best is not significantly better than, on the same queries (Q)."""
    from scipy.special import stdtrit

    if len(best) < 2:
        return np.ones(len(others), dtype=bool)
    difference = best - np.stack(others)
    mean, spread = difference.mean(axis=1), difference.std(axis=1, ddof=1)
    limit = float(stdtrit(len(best) - 1, 1 - alpha))
    told: Bools = mean > limit * spread / np.sqrt(len(best)) + 1e-12
    return ~told
