"""Ollama's embedder against a server that answers as Ollama does, and in every wrong way."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from model_server import CUT, HTML, TRUNCATED, Answer, Reply, no_sleep, nobody, sent, serving

from cems_workbench.errors import ModelError
from cems_workbench.models.ollama import OllamaEmbedder
from cems_workbench.models.server_embedder import BATCH_SIZE


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


def embedding(*, length: int = 3, count: int | None = None) -> Answer:
    def answer(path: str, body: dict[str, Any], earlier: int) -> Reply:
        rows = [[float(len(text) + i) for i in range(length)] for text in body["input"]]
        return sent({"model": "m", "embeddings": rows if count is None else rows[:count]})

    return answer


def embedder(url: str, dimension: int | None = 3) -> OllamaEmbedder:
    return OllamaEmbedder(url, "minilm", dimension, timeout_s=20, sleep=no_sleep)


def test_vectors_have_length_one_and_stand_in_the_order_of_the_texts() -> None:
    with serving(embedding()) as server:
        vectors = embedder(server.url).encode(["abc", "a", "abc"])
    assert vectors.shape == (3, 3)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert np.allclose(vectors[0], np.array([3, 4, 5]) / math.sqrt(50))
    assert np.array_equal(vectors[0], vectors[2])


def test_texts_are_embedded_in_batches_once_each_with_progress() -> None:
    seen: list[tuple[str, int, int]] = []
    texts = [f"text {i}" for i in range(BATCH_SIZE + 8)]
    with serving(embedding()) as server:
        embedder(server.url).encode([*texts, *texts], lambda *step: seen.append(step))
        assert [len(body["input"]) for body in server.bodies("/api/embed")] == [BATCH_SIZE, 8]
    assert seen == [("embedding", BATCH_SIZE, BATCH_SIZE + 8), ("embedding", BATCH_SIZE + 8, BATCH_SIZE + 8)]


def test_the_dimension_is_asked_once_where_it_is_not_given() -> None:
    with serving(embedding(length=5)) as server:
        asking = embedder(server.url, dimension=None)
        assert (asking.dimension, asking.dimension) == (5, 5)
        assert len(server.asked) == 1
        assert asking.encode([]).shape == (0, 5)
        assert asking.encode_query("q").shape == (5,)


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (sent({"embeddings": [[1.0, 2.0]]}), "length 2; 3 was expected"),
        (sent({"embeddings": [[1.0, 2.0, 3.0, 4.0]]}), "length 4; 3 was expected"),
        (sent({"embeddings": [[1.0, float("nan"), 3.0]]}), "not finite"),
        (sent({"embeddings": [[1.0, float("inf"), 3.0]]}), "not finite"),
        (sent({"embeddings": [[0.0, 0.0, 0.0]]}), "zeros"),
        (sent({"embeddings": [[]]}), "0 vectors for 1 texts"),
        (sent({"embeddings": []}), "0 vectors for 1 texts"),
        (sent({"embeddings": [[1.0, 0.0, 0.0]] * 2}), "2 vectors for 1 texts"),
        (sent({"embeddings": [[1.0, "x", 3.0]]}), "bad reply"),
        (sent({"embeddings": [1.0, 2.0, 3.0]}), "bad reply"),
        (sent({"embedding": [1.0, 2.0, 3.0]}), "bad reply"),
        (sent({}), "bad reply"),
        (HTML, "bad reply"),
        (TRUNCATED, "bad reply"),
        (CUT, "server error"),
        (Reply(b"", 500), "server error"),
        (sent({"error": "model 'minilm' not found"}, 404), "model 'minilm' not found"),
    ],
)
def test_vectors_that_cannot_be_used_are_one_line(reply: Reply, told: str) -> None:
    with serving(lambda *_: reply) as server, pytest.raises(ModelError) as caught:
        embedder(server.url).encode(["text"])
    assert told in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_an_embedder_without_a_server_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="refused"):
        embedder(nobody()).encode(["text"])
    with pytest.raises(ModelError, match="no embedding model is set"):
        OllamaEmbedder("localhost:1", "").encode(["text"])


def test_the_embedder_is_named_by_model_and_revision() -> None:
    assert OllamaEmbedder("a", "m").model_id == "ollama:m"
    assert OllamaEmbedder("a", "m", revision="sha256:1").model_id == "ollama:m@sha256:1"
