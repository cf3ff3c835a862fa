"""A retriever: memories by how many of the query's words their title has."""

from __future__ import annotations

from collections.abc import Sequence

from cems_workbench.pipeline.retrievers import Retriever, SearchRequest


def search(request: SearchRequest) -> Sequence[tuple[str, float]]:
    """(memory id, share of the query's words in its title) of each memory whose title has one."""
    words = set(request.query.lower().split())
    scores = {
        memory_id: len(words & set((memory.title or "").lower().split())) / max(1, len(words))
        for memory_id, memory in request.resources.store.memories.read().items()
    }
    return [(memory_id, score) for memory_id, score in scores.items() if score > 0]


RETRIEVER = Retriever("titles", search)
