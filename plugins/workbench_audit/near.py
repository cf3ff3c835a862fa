"""The pairs of memories whose vectors are nearest to each other: all products, by square tiles, of which the closest pairs are kept.

Time is n² / 2 products, 40 s of the processor for 100,000 memories; beyond MAX_COMPARED the rest is left out. Memory is the vectors, a
tile, and the pairs that are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cems_workbench.progress import Progress
from cems_workbench.store.search.vector_index import VectorIndex

MAX_COMPARED = 150_000
"""Memories of which all pairs are compared."""
TILE = 2_048


@dataclass(frozen=True, slots=True)
class NearPairs:
    """The closest pairs with their cosines, closest first; `total` counts all of that cosine, `compared` the memories."""

    pairs: list[tuple[str, str, float]]
    total: int
    compared: int
    lacking: int
    """Memories without a vector."""


def near_pairs(index: VectorIndex, ids: Sequence[str], least: float, most: int, progress: Progress) -> NearPairs:
    """The `most` pairs of highest cosine, from `least` on, ties by their places among `ids`. A memory with chunks has the direction of
    their mean. Raises what `progress` raises."""
    known = index.embeddings(ids)
    lacking, names = len(ids) - len(known), [*known][:MAX_COMPARED]
    total, floor = 0, np.float32(least)
    kept, cosines = np.empty((0, 2), np.int32), np.empty(0, np.float32)
    vectors = np.stack([known[name] for name in names]) if names else np.empty((0, 1), np.float32)
    known.clear()
    for start in range(0, len(names), TILE):
        progress("comparing memories", start, len(names))
        for other in range(start, len(names), TILE):
            products = vectors[start : start + TILE] @ vectors[other : other + TILE].T
            if start == other:
                products[np.tril_indices(len(products))] = -1  # each pair once
            if products.max() < least:
                continue
            total += int(np.count_nonzero(products >= least))
            rows, columns = np.divmod(np.flatnonzero(products >= floor), products.shape[1])
            if len(rows):
                kept = np.concatenate([kept, np.stack([rows + start, columns + other], axis=1).astype(np.int32)])
                cosines = np.concatenate([cosines, products[rows, columns]])
            if len(cosines) > 4 * most:
                best = np.argpartition(-cosines, most)[:most]
                kept, cosines = kept[best], cosines[best]
                floor = cosines.min()
    order = np.lexsort((kept[:, 1], kept[:, 0], -cosines))[:most]
    pairs = [
        (names[one], names[two], float(cosine))
        for (one, two), cosine in zip(kept[order].tolist(), cosines[order], strict=True)
    ]
    return NearPairs(pairs, total, len(names), lacking)
