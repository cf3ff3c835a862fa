"""Spans: what one query and each stage of it recorded, and the JSON line it is written as.

A line is an OpenTelemetry span with OpenInference attributes, as docs/use/tracing.md describes it. The innermost open span is in a
context variable, so that threads and asyncio tasks do not see one another's. Nothing here raises: what goes wrong is one warning.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from cems_trace.documents import Document, Key, UnreadableResultError, read_documents
from cems_trace.sink import Sink, current_sink, warn_once

KINDS = ("list", "fusion", "filter", "rerank", "adjust", "dedup", "assembly", "other")
"""What a stage does, `workbench.stage.kind`."""

_KIND_WORDS: tuple[tuple[str, str], ...] = (
    ("rerank", "rerank"), ("cross", "rerank"), ("fus", "fusion"), ("rrf", "fusion"), ("merge", "fusion"), ("ensemble", "fusion"),
    ("hybrid", "fusion"), ("combin", "fusion"), ("filter", "filter"), ("dedup", "dedup"), ("mmr", "dedup"), ("divers", "dedup"),
    ("boost", "adjust"), ("recency", "adjust"), ("decay", "adjust"), ("adjust", "adjust"), ("penal", "adjust"),
    ("assembl", "assembly"), ("pack", "assembly"), ("budget", "assembly"), ("truncat", "assembly"), ("top", "assembly"),
    ("bm25", "list"), ("vector", "list"), ("dense", "list"), ("sparse", "list"), ("lexical", "list"), ("keyword", "list"),
    ("fts", "list"), ("embed", "list"), ("semantic", "list"), ("knn", "list"), ("faiss", "list"), ("search", "list"),
    ("retriev", "list"), ("list", "list"),
)  # fmt: skip
"""The first word that a name contains says its kind where none is given."""

TEXT_LIMIT = 1000
"""Characters of an exception's message."""
HELD = 1000
"""Finished spans a query keeps in memory; more are written before its root ends."""


def kind_of(name: str) -> str:
    """The kind of a stage that was given none, by its name."""
    lower = name.lower()
    return next((kind for word, kind in _KIND_WORDS if word in lower), "other")


class Trace:
    """One query: its id, where its spans go, and the finished ones."""

    __slots__ = ("_lines", "_texts_written", "ended", "sink", "trace_id")

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.trace_id = os.urandom(16).hex()  # not `random`, whose state is the same in forked processes
        self.ended = False
        self._lines: deque[bytes] = deque()  # whose ends threads may use at once
        self._texts_written: set[str] = set()

    def takes_text(self, document_id: str) -> bool:
        """Whether the text of this document is to be written: once a query."""
        if not self.sink.texts or document_id in self._texts_written:
            return False
        self._texts_written.add(document_id)
        return True

    def add(self, line: bytes) -> None:
        """Keep a finished span; write those kept if the query is over, as after its root, or has many."""
        self._lines.append(line)
        if self.ended or len(self._lines) >= HELD:
            self.flush()

    def flush(self) -> None:
        """Write the spans kept."""
        lines = []
        with suppress(IndexError):
            while True:
                lines.append(self._lines.popleft())
        if lines:
            self.sink.write(b"".join(lines))


@dataclass(slots=True, eq=False, repr=False)
class Span:
    """An open span. The handle of a `with trace.stage(...)` block is one of these, and so is that of `trace.retrieval`."""

    trace: Trace
    parent: Span | None
    name: str
    kind: str | None
    query: str | None
    span_id: str = field(default_factory=lambda: os.urandom(8).hex())
    started: int = field(default_factory=time.time_ns)
    scope: object = None
    """The `with` block that opened it."""
    before: list[Document] | None = None
    """What the stage below this span that ended last returned."""
    _attributes: dict[str, Any] = field(default_factory=dict)
    _inputs: list[Document] | None = None
    _results: list[Document] | None = None

    def documents(self, results: Any, key: Key | None = None) -> None:
        """Record what the stage returned, best first; called again, it replaces what was recorded.

        Args:
            results: ids, (id, score) pairs, mappings or objects, as `cems_trace` lists them.
            key: from one result to one of those.
        """
        try:
            self._results = read_documents(results, key)
        except Exception as error:
            self._unreadable("what it returned", error)

    def input(self, results: Any, key: Key | None = None) -> None:
        """Record what the stage was given, if that is not what the stage before it returned."""
        try:
            self._inputs = read_documents(results, key)
        except Exception as error:
            self._unreadable("what it was given", error)

    def set(self, name: str, value: str | int | float | bool) -> None:
        """Record an attribute, such as `reranker.model_name`."""
        self._attributes[name] = value

    def _unreadable(self, what: str, error: Exception) -> None:
        reason = str(error) if isinstance(error, UnreadableResultError) else type(error).__name__
        self._attributes["workbench.stage.problem"] = f"{what} cannot be read: {reason}"
        warn_once(f"trace: {self.name}: {what} cannot be read: {reason}; pass key= or results=, see cems_trace")

    def end(self, error: BaseException | None = None) -> None:
        """Close the span; with the root, write the query. Does not raise."""
        try:
            self.trace.add(self._line(error))
            if self.parent is None:
                self.trace.ended = True
                self.trace.flush()
            elif self._results is not None:
                self.parent.before = self._results
        except Exception as failure:
            warn_once(f"trace: {self.name}: a span was lost: {failure!r}")

    def _line(self, error: BaseException | None) -> bytes:
        attributes = self._flat()
        span = {
            "trace_id": self.trace.trace_id,
            "span_id": self.span_id,
            "parent_id": self.parent.span_id if self.parent else None,
            "name": self.name,
            "start_time": iso(self.started),
            "end_time": iso(max(self.started, time.time_ns())),
            "status_code": "ERROR" if error else "OK",
        }
        if error is not None:
            message = f"{error}"[:TEXT_LIMIT]
            span["status_message"] = f"{type(error).__name__}: {message}"
            attributes["exception.type"] = type(error).__name__
            attributes["exception.message"] = message
        return json_line(span | {"attributes": attributes})

    def _flat(self) -> dict[str, Any]:
        reranks = self.kind == "rerank"
        kinds = {"list": "RETRIEVER", "rerank": "RERANKER"}
        flat: dict[str, Any] = {"openinference.span.kind": kinds.get(self.kind or "", "CHAIN")}
        if self.kind is not None:
            flat["workbench.stage.name"] = self.name
            flat["workbench.stage.kind"] = self.kind
        if self.kind is None or self.kind == "list":
            flat["gen_ai.operation.name"] = "retrieval"
        if self.query is not None:
            flat["input.value"] = self.query
            if reranks:
                flat["reranker.query"] = self.query
        flat |= self._attributes
        before = self.parent.before if self.parent else None
        if self._inputs is not None and (reranks or before is None or ids(self._inputs) != ids(before)):
            place = "reranker.input_documents" if reranks else "workbench.stage.input"
            flat.update(self._documents(place, self._inputs))
        if self._results is not None:
            flat["workbench.stage.results"] = len(self._results)
            place = "reranker.output_documents" if reranks else "retrieval.documents"
            flat.update(self._documents(place, self._results))
        return flat

    def _documents(self, place: str, documents: Sequence[Document]) -> chain[tuple[str, Any]]:
        return chain.from_iterable(self._document(f"{place}.{n}.document.", one) for n, one in enumerate(documents))

    def _document(self, prefix: str, document: Document) -> list[tuple[str, Any]]:
        fields: list[tuple[str, Any]] = [(f"{prefix}id", document.id)]
        if document.score is not None:
            fields.append((f"{prefix}score", document.score))
        if document.text is not None and self.trace.takes_text(document.id):
            fields.append((f"{prefix}content", document.text))
            if document.metadata:
                fields.append((f"{prefix}metadata", json.dumps(document.metadata, ensure_ascii=False, default=str)))
        return fields


class Ignored(Span):
    """The handle where nothing is traced: it takes everything and does nothing."""

    __slots__ = ()

    def __init__(self) -> None:
        """Has no span."""

    def documents(self, results: Any, key: Key | None = None) -> None:
        """Nothing."""

    def input(self, results: Any, key: Key | None = None) -> None:
        """Nothing."""

    def set(self, name: str, value: str | int | float | bool) -> None:
        """Nothing."""

    def end(self, error: BaseException | None = None) -> None:
        """Nothing."""


IGNORED = Ignored()

CURRENT: ContextVar[Span | None] = ContextVar("cems_workbench_trace_span", default=None)
"""The innermost open span of this thread or task."""

QUERY_ID: ContextVar[str | None] = ContextVar("cems_workbench_trace_query_id", default=None)
"""The id of the query that begins next, `workbench.query.id`."""

_open_roots: set[str] = set()


def begin(name: str, kind: str | None, query: str | None = None, parent: Span | None = None) -> Span:
    """A span below `parent`, by default the innermost open one; without any, the root of a query, if anything is traced.

    A kind of None is a whole retrieval.
    """
    parent = parent or CURRENT.get()
    if parent is not None and not (kind is None and parent.trace.ended):  # a task may outlive the query that started it
        return Span(parent.trace, parent, name, kind, query if query is not None else parent.query)
    sink = current_sink()
    if sink is None:
        return IGNORED
    if kind is not None and _open_roots:
        warn_once(
            f"trace: {name} ran in a thread that does not know its query, and is recorded as a query of its own; "
            "submit trace.carry(function) instead of the function"
        )
    span = Span(Trace(sink), None, name, kind, query)
    query_id = QUERY_ID.get()
    if query_id is not None:
        span.set("workbench.query.id", query_id)
    _open_roots.add(span.span_id)
    return span


def finish(span: Span, error: BaseException | None = None) -> None:
    """End the span. A stop by the caller, as of a generator, is no error of the stage."""
    if span is not IGNORED:
        _open_roots.discard(span.span_id)
        span.end(None if isinstance(error, GeneratorExit) else error)


def ids(documents: Sequence[Document]) -> list[str]:
    """The ids in their order."""
    return [document.id for document in documents]


def iso(nanoseconds: int) -> str:
    """A moment as ISO 8601 in UTC with microseconds."""
    return datetime.fromtimestamp(nanoseconds // 1000 / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def json_line(span: Mapping[str, Any]) -> bytes:
    """One line. Half a surrogate pair, which UTF-8 has no bytes for, becomes a question mark."""
    return json.dumps(span, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8", "replace") + b"\n"
