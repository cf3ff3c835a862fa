"""Decisive first: the pairs whose label could change which of two configs is better on nDCG@k.

The difference of two configs on a query, with gain g of memory m and discount d(r) = 1 / log2(1 + r) up to rank k and 0 beyond, is

    DCG_A - DCG_B = sum over m of g(m) * (d(rank of m under A) - d(rank of m under B))

so a memory that both rank alike cannot decide, whatever its grade, and a query that both rank alike needs no label at all. A label is
worth |d_A - d_B| times the chance that the memory is relevant, over the gain already known to be there (which nDCG divides by). The
labels that are known narrow that: a pair judged needs none, and its gain makes the rest of its query worth less.

Source: Carterette, Allan and Sitaraman, "Minimal Test Collections for Retrieval Evaluation" (SIGIR 2006), there for average precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cems_workbench.evaluation.pooling import Pair, PooledPair

CUT = 10


def discount(rank: int | None, k: int = CUT) -> float:
    """1 / log2(1 + rank) within the first k, else 0; None is not ranked."""
    return float(1 / np.log2(1 + rank)) if rank is not None and rank <= k else 0.0


def swing(one: PooledPair, first: str, second: str, k: int = CUT) -> float:
    """What a relevant label adds to the DCG of config `first` less that of `second`; 0: it cannot decide."""
    return discount(one.ranks.get(first), k) - discount(one.ranks.get(second), k)


def by_rank(one: PooledPair) -> float:
    """The chance of being relevant where no model says it: falling with the best rank."""
    return 1 / (1 + one.best_rank)


def decisive_first(
    pairs: Sequence[PooledPair],
    first: str,
    second: str,
    grades: Mapping[Pair, int] | None = None,
    chances: Mapping[Pair, float] | None = None,
    k: int = CUT,
) -> list[PooledPair]:
    """The pairs without a grade that could decide between two configs, the most decisive first, ties by query and memory.

    `grades` are the labels known, `chances` the chance, 0 to 1, that a pair is relevant (a calibrated judge's, say); by rank where
    there is none. Pairs that cannot decide are left out.
    """
    known = grades or {}
    undecided = [one for one in pairs if one.pair not in known and swing(one, first, second, k) != 0]
    undecided.sort(key=lambda one: one.pair)
    order = by_worth(undecided, stakes(undecided, first, second, chances, k), gains(known))
    return [undecided[at] for at in order]


def stakes(
    pairs: Sequence[PooledPair], first: str, second: str, chances: Mapping[Pair, float] | None = None, k: int = CUT
) -> NDArray[np.float64]:
    """What a label of each pair is worth while its query has no gain yet: |swing| times the chance that it is relevant."""

    def stake(one: PooledPair) -> float:
        chance = (chances or {}).get(one.pair)
        return abs(swing(one, first, second, k)) * (by_rank(one) if chance is None else chance)

    return np.array([stake(one) for one in pairs], np.float64)


def gains(grades: Mapping[Pair, int]) -> dict[str, float]:
    """The gain that is known to be there, by qid: the sum of its grades."""
    gained: dict[str, float] = {}
    for (qid, _), grade in grades.items():
        gained[qid] = gained.get(qid, 0.0) + max(grade, 0)
    return gained


def by_worth(pairs: Sequence[PooledPair], stake: NDArray[np.float64], gained: Mapping[str, float]) -> list[int]:
    """The places of the pairs, most worth first, ties in their order; cheap enough to be asked after every label."""
    over = np.array([1 + gained.get(one.qid, 0.0) for one in pairs], np.float64)
    return [int(at) for at in np.argsort(-stake / over, kind="stable")]
