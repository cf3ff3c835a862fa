"""What the store reports back: imports, refreshes, the state of an index, saved experiments."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cems_workbench.records import GradeScale, RowError


@dataclass(frozen=True, slots=True)
class RowCounts:
    """How the good rows of one kind met what the store already had."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0

    @property
    def total(self) -> int:
        """Rows that are now in the store because of, or in agreement with, the input."""
        return self.added + self.updated + self.unchanged


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The outcome of importing one input: counts per kind, every row that was left out, notes, and the query sets that are new
    or have a new version because of it."""

    source: str
    format: str
    memories: RowCounts = RowCounts()
    relations: RowCounts = RowCounts()
    queries: RowCounts = RowCounts()
    judgments: RowCounts = RowCounts()
    errors: tuple[RowError, ...] = ()
    notes: tuple[str, ...] = ()
    content_version: int = 0
    query_sets: tuple[QuerySet, ...] = ()


@dataclass(frozen=True, slots=True)
class QuerySet:
    """One version of a named set of queries.

    `sources` are the inputs its queries came from, `size` is how many it has, `digest` the SHA-256 of scale and queries.
    """

    name: str
    version: int
    created_at: datetime
    digest: str
    scale: GradeScale
    size: int
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelEvent:
    """One change of a judgment: `action` is label, undo, remove or import, `grade` what it set (None: taken away).

    A skip of a pair and a query called unclear (its memory_id is empty) are events too, and change no judgment.
    `before` is the state it replaced, with grade, note, judged_at, source and shown; None when there was no judgment.
    `undoes` is the id of the event that an undo took back.
    """

    id: int
    qid: str
    memory_id: str
    judge: str
    kind: str
    action: str
    grade: int | None
    note: str | None
    source: str
    before: dict[str, Any] | None
    undoes: int | None
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class Decision:
    """The grade a named person decided on where labels conflict; None when they took an earlier decision back."""

    qid: str
    memory_id: str
    grade: int | None
    decided_by: str
    note: str | None
    decided_at: datetime


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """A kept labelling queue: its pairs (qid, memory_id) in order, how many reviewers each is for, how it was made.

    `rankings` are the results within the depth by config and qid, best first, as they were when it was made.
    """

    name: str
    created_at: datetime
    overlap: int
    settings: dict[str, Any]
    pairs: tuple[tuple[str, str], ...] = ()
    rankings: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """What a refresh of the derived indexes did; `seconds` is wall time.

    `embedded` texts were encoded and written, `relabelled` only changed project or scope, `removed` left the index.
    """

    content_version: int
    embedded: int = 0
    relabelled: int = 0
    removed: int = 0
    lexical_rebuilt: bool = False
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexState:
    """One derived index: `version` is the content it was built from (None: never), `fresh` whether that is today's."""

    name: str
    version: int | None
    content_version: int
    fresh: bool
    rows: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A saved configuration with its note and its evidence card."""

    id: int
    name: str
    config_yaml: str
    note: str
    created_at: datetime
    evidence: dict[str, Any] = field(default_factory=dict)
