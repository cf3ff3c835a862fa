"""Which query-memory pairs to judge, and in what order: pools of the top k of several configs.

A pool holds what any of the configs ranks within the first `depth` (Sparck Jones and van Rijsbergen, 1975). It can be judged a query
after another; from the top; shuffled, so that the place in the queue says nothing of the rank; the most uncertain by a model judge
first; or the most decisive first (`evaluation.labelling.queue`). Every order is a function of its arguments: the same pool and seed
give the same queue.

How much of what some configs return is judged: Judged@k by query and config, and the pairs that nobody judged.

Judged@k is the share of the first k results that have a judgment. What is not judged counts as not relevant in every measure, so a
config whose results were never pooled is measured too low.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from cems_workbench.errors import InputError
from cems_workbench.records import Judgment

Pair = tuple[str, str]
"""(qid, memory_id)."""
Ranked = Mapping[str, Sequence[str]]
"""Results by qid, best first."""
Strategy = Literal["query", "top", "shuffled", "decisive", "uncertain"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


@dataclass(frozen=True, slots=True)
class PooledPair:
    """A pair with its rank, from 1, under each config that has it within the depth."""

    qid: str
    memory_id: str
    ranks: dict[str, int]

    @property
    def pair(self) -> Pair:
        """The pair itself."""
        return self.qid, self.memory_id

    @property
    def best_rank(self) -> int:
        """The best rank that any config gives it."""
        return min(self.ranks.values())


def pool(rankings: Mapping[str, Ranked], depth: int) -> list[PooledPair]:
    """What the configs (by name) rank within the first `depth`, by query, then best rank. Raises InputError for depth < 1."""
    if depth < 1:
        raise InputError(f"depth: must be at least 1, found {depth}")
    ranks: dict[Pair, dict[str, int]] = {}
    for name, ranked in rankings.items():
        for qid, results in ranked.items():
            for rank, memory_id in enumerate(results[:depth], start=1):
                ranks.setdefault((qid, memory_id), {}).setdefault(name, rank)
    pairs = [PooledPair(qid, memory_id, found) for (qid, memory_id), found in ranks.items()]
    return sorted(pairs, key=lambda pair: (pair.qid, pair.best_rank, pair.memory_id))


def query_by_query(pairs: Sequence[PooledPair], seed: int | str) -> list[PooledPair]:
    """A query after another, by qid; within one, in an order drawn by the seed, which says nothing of the rank."""
    return sorted(shuffled(pairs, seed), key=lambda pair: pair.qid)


def top_first(pairs: Iterable[PooledPair]) -> list[PooledPair]:
    """Everything ranked first, then everything ranked second …; what more configs have before what fewer have."""
    return sorted(pairs, key=lambda pair: (pair.best_rank, -len(pair.ranks), pair.qid, pair.memory_id))


def shuffled(pairs: Sequence[PooledPair], seed: int | str) -> list[PooledPair]:
    """The pairs in an order drawn by the seed, independent of the input order."""
    drawn = sorted(pairs, key=lambda pair: pair.pair)
    random.Random(f"{seed}").shuffle(drawn)
    return drawn


def uncertain_first(pairs: Iterable[PooledPair], scores: Mapping[Pair, float], threshold: float) -> list[PooledPair]:
    """Those whose model judge's score is nearest to its threshold first; those without a score last, from the top."""

    def doubt(pair: PooledPair) -> float:
        score = scores.get(pair.pair)
        return math.inf if score is None or not math.isfinite(score) else abs(score - threshold)

    return sorted(top_first(pairs), key=doubt)


def without_judged(
    pairs: Iterable[PooledPair], judgments: Iterable[Judgment], people_only: bool = True
) -> list[PooledPair]:
    """The pairs that nobody judged yet; a model's judgment does not count unless `people_only` is False."""
    judged: Collection[Pair] = {
        (judgment.qid, judgment.memory_id) for judgment in judgments if judgment.kind == "human" or not people_only
    }
    return [pair for pair in pairs if pair.pair not in judged]


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


def mean_judged(queries: Collection[QueryCoverage]) -> dict[str, float]:
    """The mean Judged@k of each config over the queries it has results for."""
    names = list(dict.fromkeys(name for query in queries for name in query.judged))
    shares = {name: [query.judged[name] for query in queries if name in query.judged] for name in names}
    return {name: sum(values) / len(values) for name, values in shares.items()}
