"""Whose vectors a store has: another embedder, or another length, is refused, and the vectors of several stand side by side."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cems_workbench.errors import EmbedderMismatchError
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.store import Store
from tests.small_store import HashEmbedder

Rows = Callable[..., ParsedInput]


@pytest.fixture
def filled(store: Store, rows: Rows) -> Store:
    store.add(rows(memories=[Memory(id="a", content="blue kettle"), Memory(id="b", content="releases")]))
    return store


def test_a_store_without_vectors_takes_any_embedder(filled: Store) -> None:
    filled.indexes.check("any", 3)


def test_the_embedder_of_the_vectors_passes_with_its_length_or_none(filled: Store, embedder: HashEmbedder) -> None:
    filled.indexes.refresh(embedder)
    filled.indexes.check("hash-16", 16)
    filled.indexes.check("hash-16", None)


def test_another_model_is_refused_and_so_is_another_length(filled: Store, embedder: HashEmbedder) -> None:
    filled.indexes.refresh(embedder)
    with pytest.raises(
        EmbedderMismatchError, match=r"made by hash-16 \(16 values\), and the embedder configured is hash-8"
    ):
        filled.indexes.check("hash-8", 16)
    with pytest.raises(EmbedderMismatchError, match=r"hash-16 and have 16 values.*makes 8"):
        filled.indexes.check("hash-16", 8)


def test_vectors_of_two_embedders_stand_side_by_side(
    filled: Store, embedder: HashEmbedder, other_embedder: HashEmbedder
) -> None:
    filled.indexes.refresh(embedder)
    filled.indexes.rebuild(other_embedder)
    filled.indexes.check("hash-16", 16)
    filled.indexes.check("hash-8", 8)
    assert filled.indexes.refresh(embedder).embedded == 0


def test_a_model_of_ollama_pulled_anew_is_none_other(filled: Store) -> None:
    filled.indexes.refresh(HashEmbedder("ollama:nomic@sha256:1"))
    filled.indexes.check("ollama:nomic@sha256:2", 16)
    for other in ("ollama:bge@sha256:1", "openai:nomic@256"):
        with pytest.raises(EmbedderMismatchError):
            filled.indexes.check(other, 16)


def test_texts_are_not_added_to_vectors_of_another_length(filled: Store, embedder: HashEmbedder, rows: Rows) -> None:
    filled.indexes.refresh(embedder)
    filled.add(rows(memories=[Memory(id="c", content="a third")]))
    with pytest.raises(EmbedderMismatchError, match="makes 8"):
        filled.indexes.refresh(HashEmbedder("hash-16", 8))
    assert filled.indexes.refresh(embedder).embedded == 1
