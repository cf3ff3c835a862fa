"""The row types every layer shares: memories, relations, queries and judgments, and the scale a judge is read by.

They are plain frozen dataclasses with no behaviour beyond (de)serialisation, so that formats can produce them, the store
can keep them and the pipeline can read them without importing one another. Field names follow `memories.jsonl`
(docs/formats.md). Times are timezone-aware UTC datetimes; text files carry them as ISO 8601.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Memory:
    """One memory. `content` is untrusted text and is only ever shown literally."""

    id: str
    content: str
    title: str | None = None
    category: str | None = None
    project: str | None = None
    session: str | None = None
    author: str | None = None
    tags: tuple[str, ...] = ()
    priority: float = 1.0
    pinned: bool = False
    importance: str = "normal"
    created_at: datetime | None = None
    last_accessed: datetime | None = None
    access_count: int = 0
    relevant_count: int = 0
    noise_count: int = 0
    scope: str = "personal"
    source_ref: str | None = None


@dataclass(frozen=True, slots=True)
class Relation:
    """A directed edge between two memories; `weight` in 0..1 is its strength."""

    source_id: str
    target_id: str
    kind: str = "related"
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a query set. `as_of` is the moment ages are counted from; `type` groups queries in reports."""

    qid: str
    query: str
    project: str | None = None
    as_of: datetime | None = None
    type: str | None = None


@dataclass(frozen=True, slots=True)
class Judgment:
    """A relevance grade of one memory for one query: 0 not relevant .. 3 perfect (TREC qrels keep any integer)."""

    qid: str
    memory_id: str
    grade: int
    judge: str = "human"
    kind: str = "human"


@dataclass(frozen=True, slots=True)
class JudgeScale:
    """Where a judge's raw scores mean relevant (above `threshold`), and the lower ends of the bands, highest first:
    highly relevant, relevant, weak."""

    threshold: float
    bands: tuple[float, ...]


MS_MARCO = JudgeScale(-10.0, (-8.0, -10.0, -12.0))
"""How the ACE document reads the logits of ms-marco cross-encoders."""


@dataclass(frozen=True, slots=True)
class RowError:
    """One input row that was not imported, and why. `row` is the 1-based line or record number."""

    source: str
    row: int
    reason: str
    field: str | None = None

    def __str__(self) -> str:
        where = f"{self.source}:{self.row}"
        return f"{where}: {self.field}: {self.reason}" if self.field else f"{where}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ParsedInput:
    """What a reader got out of one input: the good rows of each kind and the rows it had to leave out."""

    source: str
    format: str
    memories: tuple[Memory, ...] = ()
    relations: tuple[Relation, ...] = ()
    queries: tuple[Query, ...] = ()
    judgments: tuple[Judgment, ...] = ()
    errors: tuple[RowError, ...] = ()
    notes: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)


def indexed_text(memory: Memory) -> str:
    """The text of a memory that is embedded and searched: `title. content`, or the content when the title opens it."""
    title = (memory.title or "").strip()
    if not title or memory.content.lstrip().startswith(title):
        return memory.content
    return f"{title}. {memory.content}"
