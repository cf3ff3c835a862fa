"""Pairs of memories with close embeddings, found in blocks of a matrix product: n² / 2 cosines, and memory for a block of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent

BLOCK_ROWS, BLOCK_COLUMNS = 512, 16_384
"""Rows of a block, each compared with so many later ones at a time."""
READ_ROWS = 5_000
"""Vectors read at a time."""

Pair = tuple[str, str, float]


def vectors_of(resources: Resources, ids: Sequence[str], progress: Progress = silent) -> tuple[list[str], Float32]:
    """Those of the memories that have a vector, and their unit vectors (memories, dimension)."""
    known, blocks = list[str](), list[Float32]()
    for start in range(0, len(ids), READ_ROWS):
        progress("reading vectors", start, len(ids))
        some = resources.indexes.vectors.embeddings(ids[start : start + READ_ROWS])
        known += some
        blocks += [np.stack(list(some.values()))] if some else []
    vectors: Float32 = np.concatenate(blocks) if blocks else np.empty((0, 1), np.float32)
    return known, vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def near_pairs(
    known: Sequence[str], vectors: Float32, threshold: float, most: int, progress: Progress = silent
) -> tuple[list[Pair], int]:
    """The closest `most` pairs of these memories with a cosine of at least `threshold`, closest first, ties by their
    order, and how many there are. `vectors` are unit vectors, (memories, dimension). Raises what `progress` raises."""
    best, total = np.empty((0, 3)), 0
    for start in range(0, len(known), BLOCK_ROWS):
        progress("comparing memories", start, len(known))
        rows = vectors[start : start + BLOCK_ROWS]
        for first in range(start, len(known), BLOCK_COLUMNS):
            cosines = np.minimum(rows @ vectors[first : first + BLOCK_COLUMNS].T, 1.0)
            left, right = np.nonzero(cosines >= threshold)
            later = right + first > left + start
            left, right = left[later], right[later]
            total += len(left)
            best = np.vstack([best, np.column_stack([left + start, right + first, cosines[left, right]])])
            if len(best) > 2 * most:
                best = _closest(best, most)
    return [(known[int(a)], known[int(b)], float(cosine)) for a, b, cosine in _closest(best, most)], total


def _closest(pairs: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0], -pairs[:, 2]))][:most]
