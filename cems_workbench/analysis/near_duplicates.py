"""Near duplicates: pairs of memories with close embeddings, found in blocks of a matrix product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Memory
from cems_workbench.store import Selection

BLOCK_ROWS = 512
"""Rows per block; each is compared with all later ones."""
MAX_MEMORIES = 5_000
"""Maximum number of memories compared; of a larger store the newest."""
MAX_PAIRS = 30


@dataclass(frozen=True)
class NearPairs:
    """The closest pairs of distinct memories as (id, id, cosine), closest first, and how many reach the threshold."""

    pairs: tuple[tuple[str, str, float], ...]
    total: int


@dataclass(frozen=True)
class NearDuplicates:
    """The near pairs of a store, the memories in them by id, and how many memories were compared."""

    closest: NearPairs
    memories: Mapping[str, Memory]
    compared: int


def near_duplicates(resources: Resources, threshold: float) -> NearDuplicates:
    """Pairs of a store's newest memories with cosine ≥ `threshold`, by the embeddings in its index."""
    newest = resources.store.memories.find(Selection(), MAX_MEMORIES).memories
    by_id = {memory.id: memory for memory in newest}
    vectors = resources.indexes.vectors.embeddings(list(by_id))
    ids = list(vectors)
    matrix = np.stack(list(vectors.values())) if ids else np.empty((0, 1), np.float32)
    matrix = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    closest = near_pairs(ids, matrix, [by_id[name].content for name in ids], threshold, MAX_PAIRS)
    return NearDuplicates(closest, {name: by_id[name] for pair in closest.pairs for name in pair[:2]}, len(ids))


def near_pairs(ids: Sequence[str], vectors: Float32, contents: Sequence[str], threshold: float, most: int) -> NearPairs:
    """Pairs with cosine ≥ `threshold`, at most `most` of them, ties by the order of `ids`. `vectors` are unit vectors,
    shape (len(ids), dimension). Pairs of equal content are excluded: they are exact duplicates, which are listed
    separately."""
    _, same = np.unique(np.asarray(contents, object), return_inverse=True)
    total = 0
    best = np.empty((0, 3))
    for start in range(0, len(ids), BLOCK_ROWS):
        left, right, cosines = _block(vectors, np.asarray(same).reshape(-1), start, threshold)
        total += len(cosines)
        best = np.vstack([best, np.column_stack([left, right, cosines])])
        best = best[np.lexsort((best[:, 1], best[:, 0], -best[:, 2]))][:most]
    return NearPairs(tuple((ids[int(a)], ids[int(b)], float(cosine)) for a, b, cosine in best), total)


def _block(
    vectors: Float32, same: NDArray[np.intp], start: int, threshold: float
) -> tuple[NDArray[np.intp], NDArray[np.intp], Float32]:
    """The pairs (i, j > i) of BLOCK_ROWS rows from `start` with the rows from there on."""
    rows = vectors[start : start + BLOCK_ROWS]
    cosines = np.minimum(rows @ vectors[start:].T, 1.0)
    cosines[same[start : start + BLOCK_ROWS, None] == same[None, start:]] = -1.0
    left, right = np.nonzero(cosines >= threshold)
    later = right > left
    left, right = left[later], right[later]
    return left + start, right + start, cosines[left, right]
