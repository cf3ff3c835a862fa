"""Keeping deleted memories out of indexes that have not been refreshed since the deletion."""

from __future__ import annotations

from collections.abc import Callable, Set

Hits = list[tuple[str, float]]


def visible_hits(search: Callable[[int], Hits], k: int, hidden: Set[str]) -> Hits:
    """The first k hits of `search(depth)` that are not hidden; searches a second time only when some were."""
    hits = search(k)
    if hidden.isdisjoint(memory_id for memory_id, _ in hits):
        return hits
    hits = search(k + len(hidden))
    return [hit for hit in hits if hit[0] not in hidden][:k]
