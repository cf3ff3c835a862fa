"""Late interaction's formula against hand-computed numbers, with token vectors written by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cems_workbench.models.late_interaction import (
    OVERHEAD_BYTES,
    LateInteraction,
    TokenMemory,
    WordpieceFrequencies,
    max_sim,
)
from cems_workbench.models.protocol import CAUSES

VOCABULARY = {"redis": (1, [1.0, 0.0]), "cache": (2, [0.0, 1.0]), "slow": (3, [0.6, 0.8]), "warm": (4, [-1.0, 0.0])}


class HandMadeEmbedder:
    """Token vectors in two dimensions; words it does not know have no wordpiece."""

    model_id, batch = "hand-made", 32

    def wordpieces(self, texts: Sequence[str]) -> list[list[int]]:
        return [[VOCABULARY[word][0] for word in text.split() if word in VOCABULARY] for text in texts]

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        return [len(text.split()) > 40 for text in texts]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [next(word for word, (number, _) in VOCABULARY.items() if number == token) for token in ids]

    def token_vectors(self, texts: Sequence[str]) -> list[tuple[list[int], Any]]:
        rows = [[VOCABULARY[word][1] for word in text.split() if word in VOCABULARY] for text in texts]
        vectors = [np.array(row, dtype=np.float32).reshape(-1, 2) for row in rows]
        return list(zip(self.wordpieces(texts), vectors, strict=True))


def reranker(documents: int = 10, **counts: int) -> LateInteraction:
    frequencies = WordpieceFrequencies(documents, {VOCABULARY[word][0]: count for word, count in counts.items()})
    return LateInteraction(HandMadeEmbedder(), frequencies)  # type: ignore[arg-type]


def raws(model: LateInteraction, query: str, texts: Sequence[str]) -> list[float | None]:
    return [score.raw for score in model.score(query, texts)]


@pytest.mark.parametrize(
    ("df", "idf"), [(0, math.log(1 + 10.5 / 0.5)), (1, math.log(1 + 9.5 / 1.5)), (10, math.log(1 + 0.5 / 10.5))]
)
def test_idf(df: int, idf: float) -> None:
    assert WordpieceFrequencies(10, {7: df}).idf(7) == pytest.approx(idf, rel=1e-15)


def test_frequencies_count_memories_not_occurrences() -> None:
    counted = WordpieceFrequencies.of(HandMadeEmbedder(), ["redis redis cache", "redis", "unknown"])  # type: ignore[arg-type]
    assert counted.documents == 3
    assert counted.counts == {1: 2, 2: 1}


def test_the_score_is_the_idf_weighted_mean_of_each_query_tokens_best_cosine() -> None:
    """Document "slow warm": redis meets slow at 0.6 (warm at −1), cache meets slow at 0.8."""
    model = reranker(redis=1, cache=4)
    redis, cache = math.log(1 + 9.5 / 1.5), math.log(1 + 6.5 / 4.5)
    expected = (redis * 0.6 + cache * 0.8) / (redis + cache)
    assert raws(model, "redis cache", ["slow warm"]) == [pytest.approx(expected, rel=1e-3)]


def test_a_text_that_says_the_same_scores_one() -> None:
    assert raws(reranker(), "redis cache", ["cache redis"]) == [pytest.approx(1.0)]


def test_a_repeated_query_word_counts_each_time() -> None:
    assert raws(reranker(), "redis redis cache", ["redis"]) == [pytest.approx(2 / 3)]


def test_the_best_cosine_may_be_negative() -> None:
    assert raws(reranker(), "redis", ["warm"]) == [pytest.approx(-1.0)]


def test_a_query_or_text_without_wordpieces_has_no_score() -> None:
    assert raws(reranker(), "redis", ["", "unknown", "redis"]) == [None, None, pytest.approx(1.0)]
    assert raws(reranker(), "unknown", ["redis"]) == [None]
    failed, _ = reranker().score("redis", ["unknown", "redis"])
    assert failed.error is not None and failed.error.split(":")[0] in CAUSES
    assert max_sim(np.zeros((0, 1)), np.zeros(0)) is None


def test_scores_are_those_of_the_texts_in_their_order_across_batches() -> None:
    texts = ["redis", "warm"] * 40
    assert raws(reranker(), "redis", texts) == pytest.approx([1.0, -1.0] * 40)


def test_the_cache_key_changes_with_what_the_score_depends_on_and_with_nothing_else() -> None:
    key = reranker(redis=1).cache_model("redis")
    assert reranker(redis=1, cache=5).cache_model("redis") == key  # another word's frequency is no matter
    assert reranker(redis=2).cache_model("redis") != key
    assert reranker(11, redis=1).cache_model("redis") != key
    assert "hand-made" in key


def test_a_text_the_model_does_not_read_to_its_end_says_so() -> None:
    whole, cut = reranker().score("redis", ["redis", "redis " * 50])
    assert whole.detail is not None and "truncated" not in whole.detail
    assert cut.detail is not None and cut.detail["truncated"] is True


def test_the_alignment_says_which_token_of_the_text_each_query_token_met() -> None:
    (score,) = reranker(redis=1, cache=4).score("redis cache", ["slow warm"])
    assert score.detail is not None
    met = [(pair["query"], pair["text"], pair["cosine"]) for pair in score.detail["alignment"]]
    assert met == [("redis", "slow", pytest.approx(0.6, rel=1e-3)), ("cache", "slow", pytest.approx(0.8, rel=1e-3))]
    weights = [pair["idf"] for pair in score.detail["alignment"]]
    total = sum(w * cosine for w, (_, _, cosine) in zip(weights, met, strict=True)) / sum(weights)
    assert score.raw == pytest.approx(total, abs=1e-3)


def test_a_text_is_read_once_however_often_it_is_scored() -> None:
    embedder = HandMadeEmbedder()
    read: list[str] = []
    vectors = embedder.token_vectors

    def counted(texts: Sequence[str]) -> list[tuple[list[int], Any]]:
        read.extend(texts)
        return vectors(texts)

    embedder.token_vectors = counted  # type: ignore[method-assign]
    model = LateInteraction(embedder, WordpieceFrequencies(10, {}))  # type: ignore[arg-type]
    first = model.score("redis", ["slow", "warm", "slow"])
    assert model.score("redis", ["warm", "slow"]) == [first[1], first[0]]
    assert [text for text in read if text != "redis"] == ["slow", "warm"]


def test_what_was_read_is_kept_within_a_bound_the_last_used_longest() -> None:
    one = OVERHEAD_BYTES + len("redis") + 4 + 2 * 2
    memory = TokenMemory(HandMadeEmbedder(), limit=2 * one)  # type: ignore[arg-type]
    memory.read(["redis", "cache"])
    first = memory.read(["redis"])[0]
    assert (len(memory), memory.nbytes) == (2, 2 * one)
    memory.read(["cache!"])  # no word of it is known: it takes less, and still "cache" has to go
    assert memory.read(["redis"])[0] is first
    assert memory.nbytes <= 2 * one
