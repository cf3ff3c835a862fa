"""How much a change disturbs the results of this query, apart from the memory it is meant for.

    tau   Kendall's tau of two top-k lists: 1 - 2·K / pairs over the union of both; a pair in opposite orders costs 1, a pair
          of which only one list knows the order 1/2, a pair that neither knows together 1 (Fagin et al. 2003, p = 1/2)
    rbo   rank-biased overlap, extrapolated, p = 0.9: a change at the top weighs more (Webber et al. 2010, eq. 32)

The memory is taken out of both lists. Where it comes in, the one result that has to make room for it costs nothing; every
further result that is gone does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

P = 0.9


@dataclass(frozen=True, slots=True)
class Disturbance:
    """tau and rbo are 1 when the other results stay as they are; `gone` of them, beyond the one that makes room, are not there."""

    tau: float
    rbo: float
    gone: int = 0


def disturbance(before: Sequence[str], after: Sequence[str], memory_id: str) -> Disturbance:
    """What happened to the results other than `memory_id`."""
    old, new = ([key for key in results if key != memory_id] for results in (before, after))
    if memory_id in after and memory_id not in before and len(old) > len(new):
        old = old[:-1]
    return Disturbance(kendall(old, new), rbo(old, new), len(set(old) - set(new)))


def kendall(old: Sequence[str], new: Sequence[str]) -> float:
    """Kendall's tau of two top-k lists, 1 to -1; 1 for lists of fewer than two."""
    first, second = ({key: rank for rank, key in enumerate(results)} for results in (old, new))
    pairs = list(combinations(sorted(first.keys() | second.keys()), 2))
    return 1 - 2 * sum(_cost(a, b, first, second) for a, b in pairs) / len(pairs) if pairs else 1.0


def _cost(a: str, b: str, first: dict[str, int], second: dict[str, int]) -> float:
    """0 for one order, 1 for two, 1/2 where a list knows neither; a list ranks what it holds before what it lacks."""
    orders = []
    for ranks in (first, second):
        if a not in ranks and b not in ranks:
            return 0.5
        orders.append(ranks.get(a, len(ranks)) < ranks.get(b, len(ranks)))
    return float(orders[0] != orders[1])


def rbo(old: Sequence[str], new: Sequence[str], p: float = P) -> float:
    """Rank-biased overlap, 0 to 1; 1 for empty lists. What the shorter list has no rank for, it does not share."""
    depth = max(len(old), len(new))
    if not depth:
        return 1.0
    total, agreement = 0.0, 0.0
    for d in range(1, depth + 1):
        agreement = len(set(old[:d]) & set(new[:d])) / d
        total += agreement * p**d
    return min(1.0, (1 - p) / p * total + agreement * p**depth)
