"""Possible seeds: every memory that is a seed under some share of a hybrid list, so that replay may need its relations.

    a chunk scores share / (k + rank by meaning) + (1 - share) / (k + rank by ts_rank), which falls with either rank

so a memory is no seed under any share, k or depth if each of its chunks is behind chunks of `seeds` others in both ranks.

Source: Börzsönyi, Kossmann, Stocker, "The Skyline Operator" (2001); its k-skyband is used here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cems_workbench.pipeline.evidence import Hit, RankedList
from cems_workbench.pipeline.nested import chunk_ranks


def possible_seeds(lists: Sequence[RankedList], seeds: int) -> list[str]:
    """Ids of the memories that may be among the first `seeds` of the hybrid or of the vector list of the original query."""
    of_source = {ranked.source: ranked.hits for ranked in lists if ranked.variant == 0}
    by_meaning, by_text = of_source.get("vector", ()), of_source.get("ts_rank", ())
    if "ts_rank" not in of_source:
        return list(dict.fromkeys(hit.memory_id for hit in by_meaning))[:seeds]
    return _skyband(by_meaning, by_text, seeds)


def _skyband(by_meaning: Sequence[Hit], by_text: Sequence[Hit], seeds: int) -> list[str]:
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
