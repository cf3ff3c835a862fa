"""What a source is: a running system whose memories are taken as they are, and whose own searches are asked.

A source is only ever read. It is opened with `opening.open_source`, says what it is (`probe`), gives its memories with their vectors
in batches (`snapshot`), and answers a query with its own lists (`search`). It knows neither the store nor the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import WorkbenchError
from cems_workbench.records import Relation, TakenChunk, TakenMemory

__all__ = ["TakenChunk", "TakenMemory"]
Vector = NDArray[np.float32]
"""Shape (dimension,)."""
Distance = Literal["cosine", "l2", "ip"]
ListName = Literal["vector", "ts_rank"]
"""Which of the workbench's lists an engine's list is the like of."""

BATCH_ROWS = 4_000
"""Memories that a batch has at most."""
BATCH_BYTES = 32_000_000
"""Bytes of texts and vectors past which a batch ends."""

MAX_TEXT_BYTES = 2_000_000
"""UTF-8 bytes of a memory's content that is taken, and half of what its chunks may have together, which overlap: the store's database
holds 2,048 texts in memory at once when it writes them to its file."""


class SourceError(WorkbenchError):
    """A source that cannot be reached or read; the line names it without any secret."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of the engine that decides what its search finds, e.g. `hnsw.ef_search` = "40".

    `unit` says what it counts. `tries` are values worth trying, the present one left out; empty when it cannot be set for one search.
    """

    name: str
    value: str
    unit: str = ""
    tries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """What a source is, as far as it can be seen without reading its memories."""

    kind: str
    engine: str
    """Product and version, e.g. "PostgreSQL 18.3, pgvector 0.8.2"."""
    memories: int
    vectors: int
    """Rows with a vector: chunks where memories have them."""
    dimension: int | None
    distance: Distance = "cosine"
    index: str | None = None
    """The vector index in the engine's own words; None: every search is exact."""
    model: str | None = None
    """The embedding model, where the source says."""
    lists: tuple[ListName, ...] = ("vector",)
    """The lists it can be asked for."""
    settings: tuple[Setting, ...] = ()
    missing: tuple[str, ...] = ()
    """What a full source of this kind has and this one lacks, a sentence each that says what follows."""
    notes: tuple[str, ...] = ()

    @property
    def index_line(self) -> str:
        """The index, or what follows from there being none."""
        return self.index or "none: every search is exact"

    @property
    def facts(self) -> list[tuple[str, str]]:
        """All of it in words, as (name, value); what is missing and the notes stand last, one by one."""
        return [
            ("memories", f"{self.memories:,}"),
            ("vectors", f"{self.vectors:,} of {self.dimension or '?'} numbers, {self.distance} distance"),
            *([("model", self.model)] if self.model else []),
            *self.engine_facts,
            *[("missing", each) for each in self.missing],
            *[("note", each) for each in self.notes],
        ]

    @property
    def engine_facts(self) -> list[tuple[str, str]]:
        """The index and each setting, as (name, value)."""
        settings = [(each.name, f"{each.value} {each.unit}".strip()) for each in self.settings]
        return [("index", self.index_line), *settings]


@dataclass(frozen=True, slots=True)
class RowProblem:
    """A row that was not taken, or not whole: its id, the field, and why."""

    memory_id: str
    field: str
    reason: str


def too_long(memory_id: str, content: int, chunks: int = 0) -> RowProblem | None:
    """Why a memory with so many bytes of content and chunks is not taken; None when it is."""
    for field_, size, most in (("content", content, MAX_TEXT_BYTES), ("chunks", chunks, 2 * MAX_TEXT_BYTES)):
        if size > most:
            return RowProblem(
                memory_id, field_, f"{size:,} bytes are more than the {most:,} that are taken; it was left out"
            )
    return None


@dataclass(frozen=True, slots=True)
class Batch:
    """Part of a snapshot: the ids that were seen to be there, and those among them that were read because they are new or changed."""

    seen: Sequence[str] = ()
    taken: Sequence[TakenMemory] = ()
    problems: Sequence[RowProblem] = ()


Changed = Callable[[Sequence[str], Sequence[str]], Sequence[str]]
"""Given ids and their markers, the ids that are new or whose marker is another one than at the last snapshot."""


class Snapshot(Protocol):
    """The memories of a source as of one moment, where the engine can hold one."""

    @property
    def total(self) -> int:
        """Memories that are there."""

    def batches(self, changed: Changed) -> Iterator[Batch]:
        """Every id once as seen, and the memories that `changed` asks for, in batches of bounded size. Raises SourceError."""

    def relations(self) -> Iterator[Sequence[Relation]]:
        """All edges between memories, in portions; none where the source has no such thing. Raises SourceError."""


@dataclass(frozen=True, slots=True)
class EngineHit:
    """A hit of the engine's own search; `seq` is the source's number of the chunk, None for a whole memory."""

    memory_id: str
    score: float
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class EngineList:
    """One list as the engine answered it, best first, in its order.

    `score` of the vector list is the cosine (for other distances: the negated distance), of ts_rank the rank. `asked` rows were
    asked for.
    """

    name: ListName
    asked: int
    hits: tuple[EngineHit, ...]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class EngineQuery:
    """What an engine is asked: the text, its vector, and how many rows of each list."""

    text: str
    vector: Vector
    depths: Mapping[ListName, int]
    scope: str | None = None
    """"personal" or "shared"; None for both."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How a search differs from the engine's present settings.

    `settings` by name for this search alone; `exact` asks the engine for the exact list, without its approximate index.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False


NO_TRIAL = Trial()


class Source(Protocol):
    """An open source; a context manager. Methods may be called from any thread, one at a time."""

    @property
    def address(self) -> str:
        """Where it is, without any secret: what may be kept, shown and logged."""

    def probe(self) -> SourceInfo:
        """What it is. Raises SourceError."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Its memories. Raises SourceError."""

    def search(self, query: EngineQuery, trial: Trial = NO_TRIAL) -> tuple[EngineList, ...]:
        """The engine's own lists, all of one moment where the engine can do that. Raises SourceError."""

    def close(self) -> None:
        """Let go of connections."""


def bounded(rows: Sequence[int], most_rows: int = BATCH_ROWS, most_bytes: int = BATCH_BYTES) -> Iterator[slice]:
    """Slices of rows of these sizes (bytes), each within both bounds; a row larger than the bound is a slice by itself."""
    start = size = 0
    for position, each in enumerate(rows):
        if position > start and (position - start >= most_rows or size + each > most_bytes):
            yield slice(start, position)
            start, size = position, 0
        size += each
    if start < len(rows):
        yield slice(start, len(rows))
