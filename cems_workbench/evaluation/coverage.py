"""How much of what some configs return is judged: Judged@k by query and config, and the pairs that nobody judged.

Judged@k is the share of the first k results that have a judgment. What is not judged counts as not relevant in every measure, so a
config whose results were never pooled is measured too low.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cems_workbench.errors import InputError
from cems_workbench.evaluation.pooling import Pair, Ranked


@dataclass(frozen=True, slots=True)
class QueryCoverage:
    """One query: Judged@k by config (a config without results of it is absent), and the results without a judgment, best first."""

    qid: str
    judged: dict[str, float]
    unjudged: tuple[str, ...]


def coverage(rankings: Mapping[str, Ranked], judged: Collection[Pair], k: int) -> list[QueryCoverage]:
    """The coverage of every query, those with most unjudged results first, then by qid. Raises InputError for k < 1."""
    if k < 1:
        raise InputError(f"k: must be at least 1, found {k}")
    known = set(judged)
    found = []
    for qid in sorted({qid for ranked in rankings.values() for qid in ranked}):
        shares: dict[str, float] = {}
        missing: dict[str, int] = {}
        for name, ranked in rankings.items():
            results = ranked.get(qid, ())[:k]
            if not results:
                continue
            shares[name] = sum((qid, memory_id) in known for memory_id in results) / len(results)
            for rank, memory_id in enumerate(results, 1):
                if (qid, memory_id) not in known:
                    missing[memory_id] = min(rank, missing.get(memory_id, rank))
        found.append(QueryCoverage(qid, shares, tuple(sorted(missing, key=lambda one: (missing[one], one)))))
    return sorted(found, key=lambda one: (-len(one.unjudged), one.qid))


def mean_judged(found: Collection[QueryCoverage]) -> dict[str, float]:
    """The mean Judged@k of each config over the queries it has results for."""
    names = list(dict.fromkeys(name for one in found for name in one.judged))
    shares = {name: [one.judged[name] for one in found if name in one.judged] for name in names}
    return {name: sum(values) / len(values) for name, values in shares.items()}
