"""A source whose memories are what a test says, and embedders that need no model."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import pytest

from cems_workbench.models.protocol import Float32
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory, Relation, TakenChunk, TakenMemory
from cems_workbench.sources import connect as sources
from cems_workbench.sources.source import (
    NO_TRIAL,
    Batch,
    Changed,
    EngineList,
    EngineQuery,
    RowProblem,
    SourceError,
    SourceInfo,
    Trial,
)

DIMENSION = 3
WORDS_DIMENSION = 64


def vector(*values: float) -> Float32:
    return np.array(values, np.float32)


@dataclass
class Planted:
    """A source whose memories are what a test says; `read` are the ids that were asked for."""

    memories: dict[str, TakenMemory] = field(default_factory=dict)
    edges: Sequence[Relation] = ()
    dimension: int | None = DIMENSION
    problems: Sequence[RowProblem] = ()
    fails_after: int | None = None
    address: str = "postgresql://me@here/cems"
    read: list[str] = field(default_factory=list)

    def probe(self) -> SourceInfo:
        return SourceInfo("planted", "a test", len(self.memories), len(self.memories), self.dimension)

    def snapshot(self) -> AbstractContextManager[Planted]:
        self.read = []
        return nullcontext(self)

    @property
    def total(self) -> int:
        return len(self.memories)

    def batches(self, changed: Changed) -> Iterator[Batch]:
        ids = list(self.memories)
        wanted = changed(ids, [self.memories[key].marker for key in ids])
        yield Batch(seen=ids, problems=self.problems)
        for i in range(0, len(wanted), 2):
            if self.fails_after is not None and i >= self.fails_after:
                raise SourceError("the connection was lost")
            self.read += wanted[i : i + 2]
            yield Batch(taken=[self.memories[key] for key in wanted[i : i + 2]])

    def relations(self) -> Iterator[Sequence[Relation]]:
        yield self.edges

    def search(self, query: EngineQuery, trial: Trial = NO_TRIAL) -> tuple[EngineList, ...]:
        return ()

    def close(self) -> None: ...


class Counting:
    """An embedder that answers [length of the text, 1, 0] and counts how many texts it was given."""

    model_id = "counting"
    line = "counting"
    dimension = DIMENSION

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        self.texts += texts
        return np.array([self.encode_query(text) for text in texts], np.float32)

    def encode_query(self, text: str) -> Float32:
        found = np.array([len(text), 1.0, 0.0], np.float32)
        return found / np.linalg.norm(found)


@dataclass
class Words:
    """An embedder whose vectors are sums of a random vector for each word: like texts are near each other."""

    seed: int = 0
    reads: int = 1_000
    model_id: str = "words"
    line: str = "words"
    dimension: int = WORDS_DIMENSION

    def __post_init__(self) -> None:
        self.texts: list[str] = []

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        self.texts += texts
        return np.stack([self.encode_query(text) for text in texts])

    def encode_query(self, text: str) -> Float32:
        words = text.split()[: self.reads]
        rows = [
            np.random.default_rng([self.seed, zlib.crc32(word.encode())]).normal(size=WORDS_DIMENSION) for word in words
        ]
        found = np.sum(rows, axis=0).astype(np.float32)
        return found / np.linalg.norm(found)

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        return [len(text.split()) > self.reads for text in texts]


def taken(name: str, text: str = "", marker: str = "1", chunks: Sequence[str] = (), **more: object) -> TakenMemory:
    content = text or f"{name} says something"
    made = tuple(
        TakenChunk(10 + i, chunk, vector(len(chunk), 1, 0), content.find(chunk)) for i, chunk in enumerate(chunks)
    )
    own = None if chunks else vector(len(content), 1, 0)
    return TakenMemory(Memory(name, content, **more), marker, made, own)  # type: ignore[arg-type]


class Shorter(Counting):
    """An embedder of another model and length, as the settings may name one."""

    model_id = line = "shorter"
    dimension = 2

    def encode_query(self, text: str) -> Float32:
        return super().encode_query(text)[:2]


def planted(monkeypatch: pytest.MonkeyPatch, *there: Planted) -> None:
    """Let these be the sources at their addresses."""
    by_address = {each.address: each for each in there}
    monkeypatch.setattr(sources, "open_source", lambda address, mapping=None, timeout=0: by_address[address.plain])
