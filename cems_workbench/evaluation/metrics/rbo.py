"""Rank-biased overlap: how alike two rankings are, the top counting most.

    RBO_ext = (1-p)/p * [ sum_{d=1..l} X_d/d * p^d + sum_{d=s+1..l} X_s (d-s)/(s d) * p^d ] + [ (X_l - X_s)/l + X_s/s ] * p^l

X_d is how many memories the first d of both have in common, s and l the lengths of the shorter and the longer ranking; the depths
beyond them are extrapolated. 1 for equal rankings, 0 for rankings with nothing in common, or when one alone is empty.

Source: Webber, Moffat & Zobel, A similarity measure for indefinite rankings, 2010, equation 32.
"""

from __future__ import annotations

import numpy as np

from cems_workbench.pipeline.table import Floats, Ints

PERSISTENCE = 0.9
"""The first ten ranks have 86 % of the weight."""


def rbo(first: Ints, second: Ints, p: float = PERSISTENCE) -> Floats:
    """(Q) overlap of Q pairs of rankings: (Q, R) items as numbers that mean the same in both, best first, -1 past the end."""
    depth = max(first.shape[1], second.shape[1])
    if not depth or not len(first):
        return np.ones(len(first))
    a, b = (first[:, :, None], second[:, None, :])
    place = np.maximum(np.arange(1, first.shape[1] + 1)[:, None], np.arange(1, second.shape[1] + 1)[None, :])
    met = np.where((a == b) & (a >= 0), place, 0).reshape(len(first), -1)  # the depth from which on a memory is in both
    lengths = (first >= 0).sum(axis=1), (second >= 0).sum(axis=1)
    short, long = np.minimum(*lengths), np.maximum(*lengths)
    rows = np.arange(len(first))
    at = np.bincount((rows[:, None] * (depth + 1) + met).ravel(), minlength=len(first) * (depth + 1))
    common = np.cumsum(at.reshape(len(first), depth + 1)[:, 1:], axis=1).astype(float)
    at_short = np.where(short > 0, common[rows, short - 1], 0.0)
    at_long = np.where(long > 0, common[rows, long - 1], 0.0)
    d = np.arange(1, depth + 1)[None, :]
    weight = np.where(d <= long[:, None], p**d, 0.0)
    agreed = (common / d * weight).sum(axis=1)
    beyond = np.where(d > short[:, None], at_short[:, None] * (d - short[:, None]) / (short[:, None].clip(1) * d), 0.0)
    rest = (at_long - at_short) / long.clip(1) + at_short / short.clip(1)
    overlap: Floats = (1 - p) / p * (agreed + (beyond * weight).sum(axis=1)) + rest * p**long
    return np.where(long == 0, 1.0, overlap)
