"""Sparse BM25 vectors: terms by hand, scores by hand and by Qdrant's own arithmetic (qdrant-client 1.20, local mode)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from qdrant_client import QdrantClient, models

from cems_workbench.platform.sparse_terms import SparseAnalysis
from pg_text_search.parser import stem
from workbench_engines.sparse import SparseIndex, SparseWeighting, term_number

TEXTS = ("deploy the api", "the api of the api gateway", "logs of the gateway", "")
ACE = SparseWeighting(k1=1.5, b=0.75, mean_length=50, idf="none", query_weight="document")
FASTEMBED = SparseWeighting(k1=1.2, b=0.75, mean_length=256, idf="lucene", query_weight="document")


def test_identifiers_part_at_capitals_and_underscores_and_lose_short_words() -> None:
    analysis = SparseAnalysis("identifiers", stop_words=frozenset({"the"}), min_length=2)
    assert analysis.terms("The getUserById of HTTPServer, MAX_CONN_2: a Gdańsk") == [
        *("get", "user", "by", "id", "of", "httpserver", "max", "conn", "gda", "sk")
    ]


def test_words_are_unicode_runs_cut_by_length_before_they_are_stemmed() -> None:
    analysis = SparseAnalysis("words", "english", frozenset({"the"}), max_length=8)
    assert analysis.terms("The getUserById of Gdańsk's _ logs, memories_x deploying") == ["of", "gdańsk", "s", "log"]
    assert analysis.terms("added running") == ["ad", "run"]


def test_whole_doubles_is_the_rule_of_2019() -> None:
    assert (stem("added"), stem("added", whole_doubles=False), stem("hopped", whole_doubles=False)) == (
        *("add", "ad"),
        "hop",
    )


def test_weight_without_idf_counts_frequency_and_the_constant_length_alone() -> None:
    index = SparseIndex([text.split() for text in TEXTS], ACE)
    rows, scores = index.search(["api", "unknown"])

    def weight(frequency: int, length: int) -> float:
        return frequency * 2.5 / (frequency + 1.5 * (0.25 + 0.75 * length / 50))

    asked = weight(1, 2)
    assert rows.tolist() == [1, 0]
    assert scores.tolist() == pytest.approx([asked * weight(2, 6), asked * weight(1, 3)])


def test_query_weight_one_ignores_repetitions_and_the_true_mean_is_that_of_the_texts() -> None:
    index = SparseIndex([text.split() for text in TEXTS], SparseWeighting(mean_length=None, idf="none"))
    assert index.mean_length == 13 / 4
    assert index.query_weights(["api", "api", "gateway"]) == {"api": 1.0, "gateway": 1.0}
    assert index.search(["api", "api"])[1].tolist() == index.search(["api"])[1].tolist()


def test_equal_scores_stand_by_row_and_a_text_without_terms_counts_in_n() -> None:
    index = SparseIndex([["a"], ["b"], ["a"], []], FASTEMBED)
    assert index.search(["a"])[0].tolist() == [0, 2]
    asked = 2.2 / (1 + 1.2 * (0.25 + 0.75 / 256))
    assert index.query_weights(["a"]) == {"a": pytest.approx(asked * math.log(1 + 2.5 / 2.5))}


def test_contributions_sum_to_the_score() -> None:
    index = SparseIndex([text.split() for text in TEXTS], FASTEMBED)
    rows, scores = index.search(["gateway", "api", "the"])
    for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
        parts = index.contributions(row, ["gateway", "api", "the"])
        assert sum(parts.values()) == pytest.approx(score, rel=1e-6)
    assert set(index.contributions(2, ["api", "gateway"])) == {"gateway"}


@pytest.mark.parametrize("weighting", [ACE, FASTEMBED])
def test_scores_are_those_of_qdrant(weighting: SparseWeighting) -> None:
    texts = [text.split() for text in TEXTS[:3]]
    client = QdrantClient(":memory:")
    modifier = models.Modifier.IDF if weighting.idf == "lucene" else None
    client.create_collection(
        "memories", vectors_config={}, sparse_vectors_config={"bm25": models.SparseVectorParams(modifier=modifier)}
    )

    def vector(words: list[str]) -> models.SparseVector:
        weights = {word: weighting.weight(words.count(word), len(words), 1.0 * weighting.mean_length) for word in words}  # type: ignore[operator]
        return models.SparseVector(indices=[term_number(word) for word in weights], values=list(weights.values()))

    points = [models.PointStruct(id=row, vector={"bm25": vector(words)}) for row, words in enumerate(texts)]
    client.upsert("memories", points)
    asked = ["api", "gateway", "api", "the"]
    found = client.query_points("memories", query=vector(asked), using="bm25", limit=10).points
    rows, scores = SparseIndex(texts, weighting).search(asked)
    assert {point.id: point.score for point in found} == pytest.approx(
        dict(zip(rows.tolist(), scores.tolist(), strict=True)), rel=1e-6
    )
    assert np.all(np.diff(scores) <= 0)
