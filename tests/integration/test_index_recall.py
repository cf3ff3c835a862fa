"""The exact search on the real store: the workbench's own list misses nothing, and a graph that misses is caught."""

from __future__ import annotations

import pytest

from cems_workbench.analysis.vector_origins import embeddings_of, exact_ranking, largest_difference, recall_at
from cems_workbench.pipeline.resources import Resources
from cems_workbench.store import ANY, Filter

pytestmark = [pytest.mark.models]
QUERIES = (
    "how do we roll back a failed deploy?",
    "how many different doctors did I visit?",
    "which database did the team choose?",
)


@pytest.mark.parametrize(
    "where", [ANY, Filter("harbor/api", True), Filter(scope="shared")], ids=("all", "project", "scope")
)
def test_the_list_of_a_small_store_is_the_exact_one(resources: Resources, where: Filter) -> None:
    vectors = resources.indexes.vectors
    ids = vectors.ids(where)
    assert ids == sorted(resources.store.memories.read()) or not where.trivial
    for text in QUERIES:
        query = resources.embedder.encode_query(text)
        exact = exact_ranking(query, ids, embeddings_of(vectors))
        assert len(exact) == len(ids)
        answer = vectors.search(query, 50, where)
        assert recall_at(exact, answer, 50).missed == ()
        assert [memory_id for memory_id, _ in answer[:5]] == list(exact.ids[:5])
        assert largest_difference(exact, answer) < 1e-6


def test_the_graph_alone_answers_within_the_filter_and_its_scores_are_cosines(resources: Resources) -> None:
    vectors, where = resources.indexes.vectors, Filter("harbor/api", True)
    query = resources.embedder.encode_query(QUERIES[0])
    exact = exact_ranking(query, vectors.ids(where), embeddings_of(vectors))
    answer = vectors.approximate(query, 20, where)
    assert len(answer) == 20
    assert {memory_id for memory_id, _ in answer} <= set(exact.ids)
    assert largest_difference(exact, answer) < 1e-5
    assert vectors.approximate(query, 20, Filter("nobody/here", True)) == []


def test_an_answer_with_a_hole_is_caught(resources: Resources) -> None:
    vectors = resources.indexes.vectors
    query = resources.embedder.encode_query(QUERIES[1])
    exact = exact_ranking(query, vectors.ids(), embeddings_of(vectors))
    answer = vectors.search(query, 50)
    holed = [hit for place, hit in enumerate(answer, 1) if place not in (2, 31)]
    assert [missed.rank for missed in recall_at(exact, holed, 50).missed] == [2, 31]
    assert [missed.rank for missed in recall_at(exact, holed, 10).missed] == [2]


def test_a_deleted_memory_is_not_looked_for(resources: Resources) -> None:
    vectors = resources.indexes.vectors
    first = vectors.search(resources.embedder.encode_query(QUERIES[0]), 1)[0][0]
    resources.store.memories.delete(first)
    assert first not in vectors.ids()
    assert first not in resources.indexes.vectors.ids()
