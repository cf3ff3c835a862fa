"""What a search of either index returns: hits in one order, without the memories that were deleted since its refresh."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

import numpy as np
from numpy.typing import NDArray

Hits = list[tuple[str, float]]
"""(memory id, score), best first, equal scores by id."""

ChunkHits = list[tuple[str, float, int | None]]
"""(memory id, score, chunk), best first, equal scores by id and chunk; the chunk is None where a memory was found whole."""


def top_k(scores: NDArray[np.float32], k: int, above: float = -np.inf) -> NDArray[np.intp]:
    """Positions of the k highest scores greater than `above`, best first, equal scores by position; at most k.

    Rows are kept in the order of their ids, so ties by position are ties by id. Takes time linear in len(scores).
    """
    if k <= 0:
        return np.empty(0, np.intp)
    cut = np.partition(scores, len(scores) - k)[len(scores) - k] if len(scores) > k else above
    # All that tie with the k-th stay in until the stable sort has put the lower positions first.
    candidates = np.flatnonzero(scores >= cut if cut > above else scores > above)
    order = np.argsort(-scores[candidates], kind="stable")[:k]
    return candidates[order]


def top_memories(
    scores: NDArray[np.float32], starts: NDArray[np.intp] | None, k: int, above: float = -np.inf
) -> NDArray[np.intp]:
    """Positions of the highest scores greater than `above`, best first, down to the one that brings the k-th memory.

    The rows of a memory stand together; `starts` says where each memory's begin, None that each has one. All positions are there when
    there are fewer memories than k. Equal scores by position.
    """
    if starts is None or k <= 0 or not len(scores):
        return top_k(scores, k, above)
    best = np.maximum.reduceat(scores, starts)
    cut = np.partition(best, len(best) - k)[len(best) - k] if len(best) > k else above
    candidates = np.flatnonzero(scores >= cut if cut > above else scores > above)
    order = candidates[np.argsort(-scores[candidates], kind="stable")]
    _, first = np.unique(np.searchsorted(starts, order, side="right"), return_index=True)
    return order if len(first) < k else order[: np.sort(first)[k - 1] + 1]


def group_starts(ids: Sequence[str]) -> NDArray[np.intp] | None:
    """Where each memory's rows begin, of rows in the order of their ids; None when each has one."""
    starts = [i for i, memory_id in enumerate(ids) if not i or memory_id != ids[i - 1]]
    return None if len(starts) == len(ids) else np.array(starts, np.intp)


def truncate_to_memories(hits: ChunkHits, k: int) -> ChunkHits:
    """The hits down to the one that brings the k-th memory; all when there are fewer memories."""
    seen: set[str] = set()
    for position, (memory_id, _, _) in enumerate(hits):
        seen.add(memory_id)
        if len(seen) >= k:
            return hits[: position + 1]
    return hits


def best_per_memory(hits: ChunkHits) -> Hits:
    """Each memory once, by its best hit."""
    best: dict[str, float] = {}
    for memory_id, score, _ in hits:
        best.setdefault(memory_id, score)
    return list(best.items())


def search_visible(search: Callable[[int], ChunkHits], k: int, hidden: Set[str]) -> ChunkHits:
    """The hits of the first k memories of `search(depth)` that are not hidden; searches a second time only when some were."""
    hits = search(k)
    if hidden.isdisjoint(memory_id for memory_id, _, _ in hits):
        return hits
    hits = search(k + len(hidden))
    return truncate_to_memories([hit for hit in hits if hit[0] not in hidden], k)
