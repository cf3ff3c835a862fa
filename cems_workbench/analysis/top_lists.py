"""How alike two top-k lists of results are.

tau   Kendall's: 1 - 2·K / pairs over the union of both; a pair in opposite orders costs 1, a pair of which only one list knows
      the order 1/2, a pair that neither knows together 1 (Fagin et al. 2003, p = 1/2)
rbo   rank-biased overlap, extrapolated, p = 0.9: a change at the top weighs more (Webber et al. 2010, eq. 32)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

RBO_PERSISTENCE = 0.9


def kendall(old: Sequence[str], new: Sequence[str]) -> float:
    """Kendall's tau of two top-k lists, 1 to -1; 1 for lists of fewer than two."""
    first, second = ({key: rank for rank, key in enumerate(results)} for results in (old, new))
    pairs = list(combinations(sorted(first.keys() | second.keys()), 2))
    return 1 - 2 * sum(_cost(a, b, first, second) for a, b in pairs) / len(pairs) if pairs else 1.0


def _cost(a: str, b: str, first: dict[str, int], second: dict[str, int]) -> float:
    """0 for the same order, 1 for opposite orders, 1/2 if a list has neither; a list ranks its members before others."""
    orders = []
    for ranks in (first, second):
        if a not in ranks and b not in ranks:
            return 0.5
        orders.append(ranks.get(a, len(ranks)) < ranks.get(b, len(ranks)))
    return float(orders[0] != orders[1])


def rbo(old: Sequence[str], new: Sequence[str], p: float = RBO_PERSISTENCE) -> float:
    """Rank-biased overlap, 0 to 1; 1 for empty lists. Memories beyond the end of the shorter list are not shared."""
    depth = max(len(old), len(new))
    if not depth:
        return 1.0
    total, agreement = 0.0, 0.0
    for d in range(1, depth + 1):
        agreement = len(set(old[:d]) & set(new[:d])) / d
        total += agreement * p**d
    return min(1.0, (1 - p) / p * total + agreement * p**depth)
