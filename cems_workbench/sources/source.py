"""The protocol of a live source: a system whose memories are imported with their vectors, and which answers queries itself.

`connect.open_source` opens one. `probe` describes it, `snapshot` yields its memories in batches, `search` returns its own (live) lists.
Sources are read-only, and know neither the store nor the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import WorkbenchError
from cems_workbench.records import Relation, RowProblem, TakenChunk, TakenMemory
from cems_workbench.sources.score_meanings import meaning_of

__all__ = ["RowProblem", "TakenChunk", "TakenMemory"]
Vector = NDArray[np.float32]
"""Shape (dimension,)."""
Distance = Literal["cosine", "l2", "ip"]
ListName = Literal["vector", "ts_rank", "ts_rank_cd", "fts5", "sparse", "source_hybrid"]
"""A live list. Each replaces the workbench's list of its name; `source_hybrid`, the engine's or library's own fused answer, is beside
ours."""

BATCH_ROWS = 4_000
"""Most memories in a batch."""
BATCH_BYTES = 32_000_000
"""Most bytes of texts and vectors in a batch, unless one memory is larger."""

MAX_TEXT_BYTES = 2_000_000
"""Most UTF-8 bytes of a memory's content; its chunks, which overlap, may have twice as many together.

DuckDB holds 2,048 texts in memory at once when it writes them to its file.
"""


class SourceError(WorkbenchError):
    """A source that cannot be reached or read; the message names it without any secret."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of the engine that changes its search results, e.g. `hnsw.ef_search` = "40". `unit` is what the value
    counts. `tries` are other values worth trying; empty if it cannot be set for one search. `changes` is the live list
    that it changes."""

    name: str
    value: str
    unit: str = ""
    tries: tuple[str, ...] = ()
    changes: ListName = "vector"


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Description of a source, known without reading its memories."""

    kind: str
    engine: str
    """Product and version, e.g. "PostgreSQL 18.3, pgvector 0.8.2"."""
    memories: int
    vectors: int
    """Rows with a vector: chunks where memories have them."""
    dimension: int | None
    distance: Distance = "cosine"
    index: str | None = None
    """The vector index as the engine describes it; None: every search is exact."""
    model: str | None = None
    """The embedding model, if the source names it."""
    lists: tuple[ListName, ...] = ("vector",)
    """The live lists that it can answer."""
    settings: tuple[Setting, ...] = ()
    missing: tuple[str, ...] = ()
    """What this source lacks of a complete one, a sentence each with the consequence."""
    notes: tuple[str, ...] = ()
    preset: str = ""
    """The preset of the program that writes it, where the rows say so and the kind does not."""

    @property
    def index_line(self) -> str:
        """The index, or the consequence of having none."""
        return self.index or "none: every search is exact"

    @property
    def facts(self) -> list[tuple[str, str]]:
        """(name, value) of everything; `missing` and notes last."""
        return [
            ("memories", f"{self.memories:,}"),
            ("vectors", f"{self.vectors:,} of {self.dimension or '?'} numbers, {self.distance} distance"),
            *([("model", self.model)] if self.model else []),
            *[("score", line) for line in self.score_lines],
            *self.engine_facts,
            *[("missing", each) for each in self.missing],
            *[("note", each) for each in self.notes],
        ]

    @property
    def score_lines(self) -> list[str]:
        """What the scores of each of its lists mean, where the engine was run: "vector: distance: 1 − cosine, lowest is best; …"."""
        rows = [(name, meaning_of(self.engine, self.distance, name)) for name in self.lists]
        return [f"{name}: {row.words}" for name, row in rows if row is not None]

    @property
    def engine_facts(self) -> list[tuple[str, str]]:
        """(name, value) of the index and each setting."""
        settings = [(each.name, f"{each.value} {each.unit}".strip()) for each in self.settings]
        return [("index", self.index_line), *settings]


def too_long(memory_id: str, content: int, chunks: int = 0) -> RowProblem | None:
    """The problem of a memory with too many bytes of content or chunks; None if it is not too long."""
    for field_, size, most in (("content", content, MAX_TEXT_BYTES), ("chunks", chunks, 2 * MAX_TEXT_BYTES)):
        if size > most:
            return RowProblem(memory_id, field_, f"{size:,} bytes exceed the limit of {most:,}; it was left out")
    return None


@dataclass(frozen=True, slots=True)
class Batch:
    """Part of a snapshot: ids that exist in the source, and the memories among them that were read because they changed."""

    seen: Sequence[str] = ()
    taken: Sequence[TakenMemory] = ()
    problems: Sequence[RowProblem] = ()


Changed = Callable[[Sequence[str], Sequence[str]], Sequence[str]]
"""(ids, markers) -> the ids that are new or whose marker differs from that of the last snapshot."""


class Snapshot(Protocol):
    """The memories of a source; of one point in time if the engine can do that."""

    @property
    def total(self) -> int:
        """Number of memories."""

    def batches(self, changed: Changed) -> Iterator[Batch]:
        """Every id once as seen, and the memories for which `changed` returns the id, in bounded batches. Raises SourceError."""

    def relations(self) -> Iterator[Sequence[Relation]]:
        """All relations between memories, in bounded parts; none if the source has no relations. Raises SourceError."""


@dataclass(frozen=True, slots=True)
class EngineHit:
    """A hit of a live list; `seq` is the source's number of the chunk, None for a whole memory."""

    memory_id: str
    score: float
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class EngineList:
    """One live list in the engine's order, best first. Scores of the vector list are cosines; of a source that compares
    by l2 the negated Euclidean distance (not its square), by ip the inner product. Of other lists they are the engine's
    own. `asked` is the number of rows requested. A row without a distance (NaN) may stay in."""

    name: ListName
    asked: int
    hits: tuple[EngineHit, ...]
    seconds: float = 0.0
    hidden: int = 0
    """Rows that the engine returned and its library hides."""
    notes: tuple[str, ...] = ()
    """What the answer is beside what was asked: a text that the engine refuses, a search that was widened."""


@dataclass(frozen=True, slots=True, eq=False)
class EngineQuery:
    """A query to an engine: text, vector, and the rows wanted of each list; other lists are not asked for."""

    text: str
    vector: Vector
    depths: Mapping[ListName, int]
    scope: str | None = None
    """"personal" or "shared"; None for both."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings for a single search. `settings` by name; `exact` requests the exact list, without the approximate
    index."""

    settings: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False


NO_TRIAL = Trial()


class Source(Protocol):
    """An open source; a context manager. Methods may be called from any thread, one at a time."""

    @property
    def address(self) -> str:
        """The address without any secret; it may be saved, shown and logged."""

    def probe(self) -> SourceInfo:
        """Describe it. Raises SourceError."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open a snapshot of its memories. Raises SourceError."""

    def search(self, query: EngineQuery, trial: Trial = NO_TRIAL) -> tuple[EngineList, ...]:
        """The engine's own lists; of one point in time if the engine can do that. Raises SourceError for a trial that it cannot do."""

    def close(self) -> None:
        """Release connections."""


def bounded(rows: Sequence[int], most_rows: int = BATCH_ROWS, most_bytes: int = BATCH_BYTES) -> Iterator[slice]:
    """Slices of rows of these sizes (bytes), each within both limits; a row larger than the limit is a separate slice."""
    start = size = 0
    for position, each in enumerate(rows):
        if position > start and (position - start >= most_rows or size + each > most_bytes):
            yield slice(start, position)
            start, size = position, 0
        size += each
    if start < len(rows):
        yield slice(start, len(rows))
