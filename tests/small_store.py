"""Fixtures for tests of the store: one in a temporary directory, what is put into it, and an embedder that needs no model."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from cems_workbench.models.protocol import Float32
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Judgment, Memory, ParsedInput, Query, Relation
from cems_workbench.store import Store


class HashEmbedder:
    """Unit vectors drawn by the hash of the text: equal texts are equal, others nearly orthogonal."""

    def __init__(self, model_id: str = "hash-16", dimension: int = 16) -> None:
        self.model_id = model_id
        self.dimension = dimension
        self.texts: list[str] = []

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        self.texts.extend(texts)
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") for text in texts]
        rows = [np.random.default_rng(seed).normal(size=self.dimension) for seed in seeds]
        vectors = np.array(rows, np.float32).reshape(-1, self.dimension)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def embedder() -> HashEmbedder:
    return HashEmbedder()


@pytest.fixture
def other_embedder() -> HashEmbedder:
    return HashEmbedder("hash-8", 8)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store, closed: a copy of it opens in a fraction of the time that making one takes."""
    folder = tmp_path_factory.mktemp("empty") / "store"
    Store.open(folder).close()
    return folder


@pytest.fixture
def store(empty_store: Path, tmp_path: Path) -> Iterator[Store]:
    with Store.open(shutil.copytree(empty_store, tmp_path / "store")) as opened:
        yield opened


def parsed(
    memories: Sequence[Memory] = (),
    relations: Sequence[Relation] = (),
    queries: Sequence[Query] = (),
    judgments: Sequence[Judgment] = (),
) -> ParsedInput:
    return ParsedInput("test", "test", tuple(memories), tuple(relations), tuple(queries), tuple(judgments))


@pytest.fixture
def rows() -> Callable[..., ParsedInput]:
    return parsed
