"""Index check: the exact result of a vector search, and the recall of another result.

    cos(q, m) = q · m / (|q| |m|) for every embedding m that passes the query's filter, in blocks of numpy
    recall at k = found / k: of the k exactly nearest, those among the first k of the answer

If several memories tie with the k-th, any of them counts. Source: the recall of ANN-Benchmarks (Aumüller et al. 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cems_workbench.models.protocol import Float32
from cems_workbench.progress import Progress, silent
from cems_workbench.store.search.vectors.vector_index import VectorIndex

BLOCK_ROWS = 2_000
"""Embeddings per block."""
NEAR_DEPTH = 10
"""Depth of the separate recall of the first hits."""
COSINE_TOLERANCE = 1e-6
"""Cosines closer than this are equal: single precision has about 7 digits."""

Hits = Sequence[tuple[str, float]]
Embeddings = Callable[[Sequence[str]], Mapping[str, Float32]]
"""For each memory its vector, shape (dimension,), or those of its chunks, shape (chunks, dimension)."""


@dataclass(frozen=True, eq=False)
class ExactRanking:
    """Every memory that has an embedding, nearest first, ties by id, with its cosine (N)."""

    ids: tuple[str, ...]
    cosines: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Missed:
    """A memory that belongs to the first k and is not in the answer: its exact rank (1-based) and cosine."""

    memory_id: str
    rank: int
    cosine: float


@dataclass(frozen=True, slots=True)
class Recall:
    """How many of the `k` exactly nearest are among the first k of an answer, and the missed memories, nearest first."""

    k: int
    found: int
    missed: tuple[Missed, ...]

    @property
    def value(self) -> float:
        """found / k; 1 for k = 0."""
        return self.found / self.k if self.k else 1.0


@dataclass(frozen=True, slots=True)
class IndexComparison:
    """Hits compared with the exact ones: recall at `NEAR_DEPTH` and at their own depth, and the largest score difference."""

    near: Recall
    deep: Recall
    off: float


def embeddings_of(vectors: VectorIndex) -> Embeddings:
    """The vectors of the chunks of each memory, shape (chunks, dimension)."""
    return lambda ids: {key: np.stack(list(own.values())) for key, own in vectors.chunk_embeddings(ids).items()}


def exact_ranking(
    query: Float32, ids: Sequence[str], embeddings: Embeddings, progress: Progress = silent
) -> ExactRanking:
    """Rank all of `ids` by the cosine of their nearest chunk with `query` (shape (dimension,)); those without an embedding are left out.

    Raises what `progress` and `embeddings` raise.
    """
    asked = np.asarray(query, np.float64).reshape(-1)
    asked = asked / max(float(np.linalg.norm(asked)), 1e-12)
    names: list[str] = []
    blocks: list[NDArray[np.float64]] = []
    for start in range(0, len(ids), BLOCK_ROWS):
        found = embeddings(ids[start : start + BLOCK_ROWS])
        if found:
            parts = [np.atleast_2d(own) for own in found.values()]
            matrix = np.concatenate(parts).astype(np.float64)
            cosines = matrix @ asked / np.maximum(np.linalg.norm(matrix, axis=1), 1e-12)
            starts = np.cumsum([0, *(len(own) for own in parts[:-1])])
            blocks.append(np.maximum.reduceat(cosines, starts))
            names += found
        progress("comparing embeddings", min(start + BLOCK_ROWS, len(ids)), len(ids))
    cosines = np.concatenate(blocks) if blocks else np.empty(0)
    order = sorted(range(len(names)), key=lambda i: (-cosines[i], names[i]))
    return ExactRanking(tuple(names[i] for i in order), cosines[order])


def recall_at(exact: ExactRanking, answer: Hits, k: int) -> Recall:
    """The recall of the answer's first k hits; k is at most the number of memories."""
    k = max(0, min(k, len(exact)))
    if not k:
        return Recall(0, 0, ())
    last = float(exact.cosines[k - 1])
    given = {memory_id for memory_id, _ in answer[:k]}
    sure = int((exact.cosines > last + COSINE_TOLERANCE).sum())
    tied = range(sure, int((exact.cosines >= last - COSINE_TOLERANCE).sum()))
    places = k - sure
    filled = min(places, sum(exact.ids[i] in given for i in tied))
    absent = [i for i in range(sure) if exact.ids[i] not in given]
    absent += [i for i in tied if exact.ids[i] not in given][: places - filled]
    missed = tuple(Missed(exact.ids[i], i + 1, float(exact.cosines[i])) for i in absent)
    return Recall(k, k - len(absent), missed)


def largest_difference(exact: ExactRanking, answer: Hits) -> float:
    """The largest distance of a score in the answer from the exact cosine; 0 for an empty answer."""
    known = dict(zip(exact.ids, exact.cosines.tolist(), strict=True))
    return max((abs(score - known[memory_id]) for memory_id, score in answer if memory_id in known), default=0.0)


def compare(exact: ExactRanking, answer: Hits, depth: int) -> IndexComparison:
    """The hits of `depth` memories compared with the exact ones."""
    return IndexComparison(
        recall_at(exact, answer, NEAR_DEPTH), recall_at(exact, answer, depth), largest_difference(exact, answer)
    )
