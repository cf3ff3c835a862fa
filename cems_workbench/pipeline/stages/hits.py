"""The hits that fusion sums, as flat arrays: most of (query, list, candidate) is empty, and only what is there costs.

Nothing here depends on a weight, so that these arrays are found once and serve every config with the same lists and ties.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cems_workbench.pipeline.evidence import SOURCES
from cems_workbench.pipeline.table import Bools, CandidateTable, Floats, Ints, ListArrays

# Looked up by source index; the last entry is for padding, whose source is -1.
NOT_RELEVANCE = np.array([source in ("recency", "access") for source in SOURCES] + [False])


@dataclass(frozen=True, eq=False)
class Hits:
    """The H hits that are fused, in the order of query, candidate, list, and what follows from where they stand.

    `slot` is q·L + list and `cell` q·C + candidate; `first` marks the first hit of each of the `cells`.
    """

    slot: Ints
    cell: Ints
    rank: Floats
    """Whole numbers, kept as what they are computed with."""
    score: Floats
    cells: Ints
    first: Ints
    top: Ints
    """Which of the hits stand at ranks 1 to 3."""
    alive: Bools
    queries: Ints
    """The queries with a hit, ascending; `starts` says where the `cells` of each begin."""
    starts: Ints
    lists: Ints
    """(Q, C) in how many lists."""
    best_rank: Ints
    """(Q, C) best rank, the largest integer for who is in none."""


def find_hits(table: CandidateTable, lists: ListArrays, rrf: bool, dense: Bools) -> Hits:
    """The hits of the lists; without `rrf` not those of recency and access. `dense` (sources + 1): do ties share a rank."""
    source = table.lists.source
    member = lists.present if rrf else lists.present & ~NOT_RELEVANCE[source][:, :, None]
    queries, width = table.shape
    q, c, i = np.nonzero(member.transpose(0, 2, 1))
    rank = np.where(dense[source[q, i]], table.lists.dense[q, i, c], table.lists.position[q, i, c])
    cell = q * width + c
    cells, first = np.unique(cell, return_index=True)
    alive: Bools = np.any(member, axis=1)
    found, starts = np.unique(cells // width if width else cells, return_index=True)
    best = np.full(queries * width, np.iinfo(np.int64).max)
    if len(cells):
        best[cells] = np.minimum.reduceat(rank, first)
    return Hits(
        slot=q * source.shape[1] + i, cell=cell, rank=rank.astype(np.float64), score=lists.score[q, i, c], cells=cells, first=first,
        top=np.flatnonzero(rank <= 3), alive=alive, queries=found, starts=starts, lists=member.sum(axis=1),
        best_rank=best.reshape(table.shape),
    )  # fmt: skip
