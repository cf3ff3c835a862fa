"""The relation list: neighbours, in the relation graph, of the first hits.

    fused = sum over lists of 1 / (60 + rank);   the first `seeds` of it are the seeds
    score = the greatest weight of an edge from a seed

The seeds are those of a fixed fusion (rrf, k 60, weights 1), so that replay need not search.

Source: docs/internals/specification.md, "lists".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline.evidence import RankedList
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.retrievers import Retriever, SearchRequest

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


def search(request: SearchRequest) -> Iterable[tuple[str, float]]:
    """Each neighbour with its score."""
    return neighbours(request.lists, request.config, request.resources).items()


RETRIEVER = Retriever("relations", search)
