"""External traces, as a format reads them: queries with the lists and stages that another pipeline recorded of each.

`Format.traces` gives them a portion at a time. Which memory a document is, is found for all documents of a portion at once, before its
queries are made: `Trace.queries` takes the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from cems_workbench.formats.base.fields import FieldError, identifier
from cems_workbench.formats.base.records import derived_id
from cems_workbench.progress import Progress
from cems_workbench.records import RankedIds, RowError


class TracedDocument(NamedTuple):
    """A document of a span, in its order; `id` is the span's, as text. One without id and content is not in the file (`Span.lost`)."""

    id: str | None
    score: float | None = None
    content: str | None = None
    title: str | None = None
    parent: str | None = None
    """The id of the document that it is a part of, by its metadata."""


NameOf = Callable[[TracedDocument], str]
"""The memory of a document."""


@dataclass(frozen=True, slots=True)
class TracedQuery:
    """One query of a trace. `recorded` is the note of evidence, as `pipeline/recorded.py` reads it."""

    row: int
    qid: str
    query: str
    asked_at: datetime | None
    recorded: dict[str, Any]
    warnings: dict[str, list[str]]
    contents: Mapping[str, TracedDocument]
    """By memory id the documents with a text."""
    remarks: dict[str, list[str]] = field(default_factory=dict)
    own_ids: dict[str, Any] = field(default_factory=dict)
    """The `stage` that joined lists, how many `texts` several of its lists found, under how many it has several ids (`apart`), and the
    `ids` of one of these; empty if there are none."""
    asked: dict[str, str] = field(default_factory=dict)
    """By list or reranker the text that it was given, at most 80 characters, where that is not the query."""

    texts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By list the texts that it returned, by stage those that it read, by memory id."""

    @property
    def lists(self) -> dict[str, tuple[RankedIds, ...]]:
        """The lists as a recording has them; a score that is missing is 0."""
        found = self.recorded["lists"]
        return {one["name"]: (tuple((key, score or 0.0) for key, score in one["hits"]),) for one in found}

    @property
    def ids(self) -> set[str]:
        """Every memory that a list or a stage names."""
        found = {key for one in self.recorded["lists"] for key, _ in one["hits"]}
        for stage in self.recorded["stages"]:
            found |= {key for key, _ in (*stage["output"], *stage.get("input", ()))}
        return found

    @property
    def is_answered(self) -> bool:
        """Whether the trace says what was returned."""
        return not self.recorded.get("unknown")

    @property
    def results(self) -> list[tuple[str, float | None]]:
        """What was returned, empty where that is not known."""
        return [(key, score) for key, score in self.recorded["stages"][-1]["output"]]


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace: its documents, and its queries once the memory of each document is known, in the order in which they began."""

    documents: Iterable[TracedDocument]
    queries: Callable[[NameOf], Iterator[TracedQuery]]


@dataclass(frozen=True, slots=True)
class Traces:
    """The traces of a file: how many, and some at a time."""

    count: int
    portions: Iterator[Sequence[Trace]]


TracesReader = Callable[[Path, str, IO[bytes], list[RowError], Progress], Traces]
"""Reads the traces of a file, called by a name in messages, with an empty temporary file to sort them in; raises InputError."""


def memory_id_of(document: TracedDocument) -> str:
    """The id of a document; one of its text where it has none, one of the id where no store could hold that."""
    if document.id is None:
        return derived_id("traced", document.content or "")
    return _storable_id(document.id)


@lru_cache(maxsize=10_000)
def _storable_id(given: str) -> str:
    try:
        return identifier({"id": given}, "id")
    except FieldError:
        return derived_id("traced", given)
