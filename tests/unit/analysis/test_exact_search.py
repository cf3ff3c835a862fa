"""The exact answer of a vector search and the recall of another one, on vectors made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.analysis import vector_origins as exact_search
from cems_workbench.analysis.vector_origins import (
    ExactRanking,
    Missed,
    exact_ranking,
    largest_difference,
    recall_at,
)
from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.gather import Request, search_filter
from cems_workbench.store import Filter

VECTORS: dict[str, list[float]] = {"a": [3, 4], "b": [4, 3], "c": [0, 2], "d": [1, 0]}
"""Cosines with (1, 0): d 1, b 0.8, a 0.6, c 0."""


def embeddings(ids: Sequence[str]) -> Mapping[str, Float32]:
    return {key: np.array(VECTORS[key], np.float32) for key in ids if key in VECTORS}


def ranking(*cosines: float) -> ExactRanking:
    return ExactRanking(tuple(f"m{i}" for i in range(1, len(cosines) + 1)), np.array(cosines))


def test_every_embedding_is_ranked_by_its_cosine() -> None:
    found = exact_ranking(np.array([2, 0], np.float32), ["a", "b", "c", "d", "bare"], embeddings)
    assert found.ids == ("d", "b", "a", "c")
    assert found.cosines.tolist() == pytest.approx([1, 0.8, 0.6, 0])


def test_blocks_give_the_same_and_say_how_far_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_search, "BLOCK_ROWS", 3)
    said: list[tuple[str, int, int]] = []
    found = exact_ranking(np.array([1, 0], np.float32), list("abcd"), embeddings, lambda *report: said.append(report))
    assert found.ids == ("d", "b", "a", "c")
    assert said == [("comparing embeddings", 3, 4), ("comparing embeddings", 4, 4)]


def test_nothing_to_rank_is_nothing_missed() -> None:
    found = exact_ranking(np.array([1, 0], np.float32), ["bare"], embeddings)
    assert (len(found), recall_at(found, [], 10).value) == (0, 1.0)


def test_who_was_missed_is_named_with_rank_and_cosine() -> None:
    found = recall_at(ranking(0.9, 0.8, 0.7, 0.6), [("m1", 0.9), ("m3", 0.7), ("m4", 0.6)], 3)
    assert (found.k, found.found, found.value) == (3, 2, pytest.approx(2 / 3))
    assert found.missed == (Missed("m2", 2, 0.8),)


def test_only_the_first_k_of_the_answer_count() -> None:
    assert recall_at(ranking(0.9, 0.8, 0.7), [("m3", 0.7), ("m2", 0.8), ("m1", 0.9)], 1).missed == (
        Missed("m1", 1, 0.9),
    )


def test_of_memories_that_tie_with_the_last_place_any_will_do() -> None:
    exact = ranking(0.9, 0.5, 0.5, 0.5)
    assert recall_at(exact, [("m1", 0.9), ("m4", 0.5)], 2).missed == ()
    assert recall_at(exact, [("m1", 0.9)], 3) == exact_search.Recall(3, 1, (Missed("m2", 2, 0.5), Missed("m3", 3, 0.5)))


def test_k_counts_no_further_than_there_are_memories() -> None:
    assert recall_at(ranking(0.9, 0.8), [("m2", 0.8), ("m1", 0.9)], 150).k == 2


def test_the_largest_difference_of_scores_is_found() -> None:
    exact = ranking(0.9, 0.8)
    assert largest_difference(exact, [("m1", 0.9), ("m2", 0.75), ("elsewhere", 3.0)]) == pytest.approx(0.05)
    assert largest_difference(exact, []) == 0


def test_the_filter_is_that_of_the_search() -> None:
    config = with_values(PipelineConfig(), {"query.scope": "shared"})
    assert search_filter(Request("q", "p", None, True), config) == Filter("p", True, "shared")


@given(st.lists(st.integers(0, 6), min_size=1, max_size=12), st.data())
def test_found_and_missed_add_up_and_a_perfect_answer_misses_nothing(levels: list[int], data: st.DataObject) -> None:
    exact = ranking(*(level / 10 for level in sorted(levels, reverse=True)))
    pairs = list(zip(exact.ids, exact.cosines.tolist(), strict=True))
    k = data.draw(st.integers(1, 15))
    assert recall_at(exact, pairs, k).missed == ()
    some = data.draw(st.lists(st.sampled_from(pairs), unique=True))
    found = recall_at(exact, some, k)
    assert found.found + len(found.missed) == found.k == min(k, len(pairs))
    assert not {missed.memory_id for missed in found.missed} & {memory_id for memory_id, _ in some[:k]}
