"""A search over chunks is what ranking every chunk would give, whatever the memories are cut into."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.store.search.entries import (
    best_per_memory,
    group_starts,
    search_visible,
    top_memories,
    truncate_to_memories,
)

SCORES = st.integers(-2, 4).map(float)
"""Few values, so that ties are many."""
CORPORA = st.lists(st.lists(SCORES, min_size=1, max_size=5), max_size=8)


def rows_of(corpus: list[list[float]]) -> tuple[list[str], list[int], np.ndarray]:
    ids = [f"m{number}" for number, chunks in enumerate(corpus) for _ in chunks]
    chunks = [chunk for memory in corpus for chunk in range(len(memory))]
    return ids, chunks, np.array([score for memory in corpus for score in memory], np.float32)


@given(CORPORA, st.integers(0, 12), st.sampled_from([-np.inf, 0.0]))
def test_search_equals_brute_force_over_chunks(corpus: list[list[float]], k: int, above: float) -> None:
    ids, chunks, scores = rows_of(corpus)
    ranked = sorted((-score, ids[i], chunks[i]) for i, score in enumerate(scores.tolist()) if score > above)
    expected = truncate_to_memories([(name, -score, chunk) for score, name, chunk in ranked], k) if k else []
    found = top_memories(scores, group_starts(ids), k, above)
    assert [(ids[i], float(scores[i]), chunks[i]) for i in found.tolist()] == expected
    best: dict[str, float] = {}
    for score, name, _ in ranked:
        best.setdefault(name, -score)
    assert best_per_memory(expected) == sorted(best.items(), key=lambda hit: (-hit[1], hit[0]))[:k]


@given(CORPORA, st.integers(1, 12), st.sets(st.integers(0, 8)))
def test_hidden_memories_leave_room_for_the_next(corpus: list[list[float]], k: int, gone: set[int]) -> None:
    ids, chunks, scores = rows_of(corpus)
    hidden = {f"m{number}" for number in gone}
    starts = group_starts(ids)

    def search(depth: int) -> list[tuple[str, float, int | None]]:
        return [(ids[i], float(scores[i]), chunks[i]) for i in top_memories(scores, starts, depth).tolist()]

    everything = [hit for hit in search(len(corpus) + 1) if hit[0] not in hidden]
    assert search_visible(search, k, hidden) == truncate_to_memories(everything, k)
