"""What a search of either index returns: hits in one order, without the memories that were deleted since its refresh."""

from __future__ import annotations

from collections.abc import Callable, Set

import numpy as np
from numpy.typing import NDArray

Hits = list[tuple[str, float]]
"""(memory id, score), best first, equal scores by id."""


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


def visible_hits(search: Callable[[int], Hits], k: int, hidden: Set[str]) -> Hits:
    """The first k hits of `search(depth)` that are not hidden; searches a second time only when some were."""
    hits = search(k)
    if hidden.isdisjoint(memory_id for memory_id, _ in hits):
        return hits
    hits = search(k + len(hidden))
    return [hit for hit in hits if hit[0] not in hidden][:k]
