"""The relation list: neighbours, in the relation graph, of the first hits; and the memories that may be among these.

    fused = sum over lists of 1 / (60 + rank);   the first `seeds` of it are the seeds
    score = the greatest weight of an edge from a seed

The seeds of the list are those of a fixed fusion (rrf, k 60, weights 1), so that replay need not search. Under `relations.mode: each`
replay follows the edges of every possible seed: every memory that is one under some share of a hybrid list.

    a chunk scores share / (k + rank by meaning) + (1 - share) / (k + rank by ts_rank), which falls with either rank

so a memory is no seed under any share, k or depth if each of its chunks is behind chunks of `seeds` others in both ranks.

Source: docs/internals/specification.md, "lists"; Börzsönyi, Kossmann, Stocker, "The Skyline Operator" (2001); its k-skyband is used here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline.evidence import Hit, RankedList
from cems_workbench.pipeline.nested import chunk_ranks
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.retrievers import passing, ranked_list
from cems_workbench.store import Filter

SEED_RRF_K = 60


def neighbours(
    lists: Sequence[RankedList], config: PipelineConfig, resources: Resources, *, without: str | None = None
) -> dict[str, float]:
    """The greatest weight of an edge by which a seed leads to each neighbour, as if the memory `without` were not in the store."""
    fused: dict[str, float] = {}
    for ranked in lists:
        for rank, memory_id in enumerate(dict.fromkeys(hit.memory_id for hit in ranked.hits), 1):
            fused[memory_id] = fused.get(memory_id, 0.0) + 1 / (SEED_RRF_K + rank)
    section = config.lists.relations
    seeds = sorted(fused, key=lambda memory_id: (-fused[memory_id], memory_id))[: section.seeds]
    best: dict[str, float] = {}
    taken: Counter[str] = Counter()
    for seed, neighbour, weight in resources.store.relations.neighbours(
        seeds, section.per_seed + (without is not None)
    ):
        if neighbour == without or taken[seed] >= section.per_seed:
            continue
        taken[seed] += 1
        best[neighbour] = max(weight, best.get(neighbour, 0.0))
    return best


def relation_list(
    lists: Sequence[RankedList], config: PipelineConfig, resources: Resources, where: Filter, depth: int
) -> RankedList:
    """The neighbours of the first hits of these lists that pass the filter."""
    return ranked_list("relations", passing(neighbours(lists, config, resources), where, resources), depth)


def possible_seeds(lists: Sequence[RankedList], seeds: int) -> list[str]:
    """Ids of the memories that may be among the first `seeds` of the hybrid or of the vector list of the original query."""
    of_source = {ranked.source: ranked.hits for ranked in lists if ranked.variant == 0}
    by_meaning, by_text = of_source.get("vector", ()), of_source.get("ts_rank", ())
    if "ts_rank" not in of_source:
        return list(dict.fromkeys(hit.memory_id for hit in by_meaning))[:seeds]
    return _possibly_first(by_meaning, by_text, seeds)


def _possibly_first(by_meaning: Sequence[Hit], by_text: Sequence[Hit], seeds: int) -> list[str]:
    """Memories of which fewer than `seeds` others are ahead in both lists (the k-skyband): the first of any weights are among them."""
    ranks = chunk_ranks(by_meaning, by_text)
    memories = list(dict.fromkeys(memory_id for memory_id, _ in ranks))
    code = {memory_id: i for i, memory_id in enumerate(memories)}
    owner = np.array([code[memory_id] for memory_id, _ in ranks], dtype=np.int64)
    first, second = np.array(list(ranks.values()), dtype=np.float64).reshape(-1, 2).T
    # A chunk of the same memory cannot displace that memory from the seeds.
    ahead = (first[:, None] <= first) & (second[:, None] <= second) & (owner[:, None] != owner)
    # A memory counts once, however many of its chunks are ahead.
    order = np.argsort(owner, kind="stable")
    starts = np.flatnonzero(np.concatenate(([True], owner[order][1:] != owner[order][:-1]))) if len(order) else order
    others = np.logical_or.reduceat(ahead[order], starts, axis=0).sum(axis=0) if len(order) else order
    possible = set(owner[others < seeds].tolist())
    return [memory_id for memory_id in memories if code[memory_id] in possible]
