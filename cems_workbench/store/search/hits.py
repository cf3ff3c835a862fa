"""Hit lists of both indexes: sorting, grouping by memory, and hiding memories deleted since the refresh."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

import numpy as np
from numpy.typing import NDArray

Hits = list[tuple[str, float]]
"""(memory id, score), best first, equal scores by id."""

ChunkHits = list[tuple[str, float, int | None]]
"""(memory id, score, chunk), best first, equal scores by id and chunk; the chunk is None for a whole memory."""


def top_k(scores: NDArray[np.float32], k: int, above: float = -np.inf) -> NDArray[np.intp]:
    """Positions of the k highest scores greater than `above`, best first, equal scores by position; at most k.

    Rows are sorted by id, so ties by position are ties by id. Linear in len(scores).
    """
    if k <= 0:
        return np.empty(0, np.intp)
    cut = np.partition(scores, len(scores) - k)[len(scores) - k] if len(scores) > k else above
    # Keep all ties with the k-th; the stable sort then puts lower positions first.
    candidates = np.flatnonzero(scores >= cut if cut > above else scores > above)
    order = np.argsort(-scores[candidates], kind="stable")[:k]
    return candidates[order]


def top_memories(
    scores: NDArray[np.float32], starts: NDArray[np.intp] | None, k: int, above: float = -np.inf
) -> NDArray[np.intp]:
    """Positions of the highest scores greater than `above`, best first, as many as cover k memories.

    A memory's rows are contiguous; `starts` has the first row of each memory, None if each has one row. With fewer than k memories, all
    positions are returned. Equal scores by position.
    """
    if starts is None or k <= 0 or not len(scores):
        return top_k(scores, k, above)
    best = np.maximum.reduceat(scores, starts)
    cut = np.partition(best, len(best) - k)[len(best) - k] if len(best) > k else above
    candidates = np.flatnonzero(scores >= cut if cut > above else scores > above)
    order = candidates[np.argsort(-scores[candidates], kind="stable")]
    # The position of each memory's first row in `order`; the k-th smallest ends the list.
    _, first = np.unique(np.searchsorted(starts, order, side="right"), return_index=True)
    return order if len(first) < k else order[: np.sort(first)[k - 1] + 1]


def group_starts(ids: Sequence[str]) -> NDArray[np.intp] | None:
    """The first row of each memory, for rows sorted by id; None if each has one row."""
    starts = [i for i, memory_id in enumerate(ids) if not i or memory_id != ids[i - 1]]
    return None if len(starts) == len(ids) else np.array(starts, np.intp)


def truncate_to_memories(hits: ChunkHits, k: int) -> ChunkHits:
    """The first hits that cover k memories; all if there are fewer."""
    seen: set[str] = set()
    for position, (memory_id, _, _) in enumerate(hits):
        seen.add(memory_id)
        if len(seen) >= k:
            return hits[: position + 1]
    return hits


def best_per_memory(hits: ChunkHits) -> Hits:
    """Each memory's best hit."""
    best: dict[str, float] = {}
    for memory_id, score, _ in hits:
        best.setdefault(memory_id, score)
    return list(best.items())


def search_visible(search: Callable[[int], ChunkHits], k: int, hidden: Set[str]) -> ChunkHits:
    """The hits of the first k visible memories of `search(depth)`; searches again only if some were hidden."""
    hits = search(k)
    if hidden.isdisjoint(memory_id for memory_id, _, _ in hits):
        return hits
    # At worst all hidden memories rank first.
    hits = search(k + len(hidden))
    return truncate_to_memories([hit for hit in hits if hit[0] not in hidden], k)
