"""Traces of a pipeline: spans that say which lists and stages each query went through, as JSON lines or a JSON document.

`spans.py` has the forms of a span, `traced.py` how the spans of a trace become a query with its lists and stages. Children may
come before their parents, and traces may be interleaved. `import` brings them in as external traces (`jobs/traces.py`); read here they are
queries with recorded answers and the recorded lists, as a recording for `fidelity` is.

A file of spans is one of traces if a span of it is a reranker with documents or a stage of `cems_trace`, or if among the
first rows a retriever is below another that returned something else. A file of plain retriever spans is a log (`openinference_spans`),
unless this format is asked for.
"""

from __future__ import annotations

import mmap
import pickle
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import Sample, open_file, read_records
from cems_workbench.formats.base.format import described
from cems_workbench.formats.base.records import Trace, TracedQuery, Traces, reported
from cems_workbench.formats.logs import Asked, Asking, parsed_log
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory, ParsedInput, RowError
from workbench_tools.exports import are_spans, spans_of
from workbench_tools.spans import SEARCHERS, Documents, Span, read_span
from workbench_tools.traced import queries_of

NAME = "openinference-traces"
MARKS = (b"workbench.stage.", b"reranker.output_documents", b'"RERANKER"')
"""What a file of spans with stages has somewhere."""
PORTION_TRACES = 256
MAX_SPANS = 20_000
"""Of a portion, and of a trace; further ones of that are left out."""


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read every query of a file into memory; raises InputError when it cannot be read. `import` reads a file of any size."""
    errors: list[RowError] = []
    traces: dict[str, list[Span]] = {}
    for span in read_spans(path, errors, progress):
        traces.setdefault(span.trace_id, []).append(span)
    found = [query for spans in traces.values() for query in queries_of(spans)]
    memories = {
        key: Memory(key, document.content, title=document.title)
        for query in found
        for key, document in query.contents.items()
        if document.content is not None
    }
    parsed = parsed_log(path, NAME, map(answer_of, found), errors, warning_notes(found))
    return replace(parsed, memories=tuple(memories.values()))


def read_spans(path: Path, errors: list[RowError], progress: Progress = silent) -> Iterator[Span]:
    """The spans of a file in its order; those that cannot be used go to `errors`. Raises InputError when the file cannot be read."""
    for number, row in read_records(path, errors, progress):
        for where, values in spans_of(row):
            with reported(errors, str(path), number, where):
                span = read_span(number, values)
                if span.query is None and span.lost is not None and span.has_documents and not span.parent_id:
                    reason = f"has no words of a query: {span.lost}"
                    errors.append(RowError(str(path), number, reason, f"{where}input.value"))
                yield span


def read_traces(path: Path, source: str, file: IO[bytes], errors: list[RowError], progress: Progress) -> Traces:
    """The traces of a file of any size: its spans are written to `file`, and read back a trace at a time. 24 bytes a
    span and the ids of traces stay in memory, and a portion of at most `PORTION_TRACES` traces and `MAX_SPANS` spans. A
    trace of more spans is cut there, and reported. Raises InputError when the file cannot be read."""
    spilled = _Spill(file, errors, source)
    for span in read_spans(path, errors, progress):
        spilled.add(span)
    return Traces(len(spilled), _portions(spilled.traces()))


def _portions(traces: Iterator[list[Span]]) -> Iterator[list[Trace]]:
    portion: list[Trace] = []
    spans = 0
    for trace in traces:
        if portion and (len(portion) >= PORTION_TRACES or spans + len(trace) > MAX_SPANS):
            yield portion
            portion, spans = [], 0
        documents = [document for span in trace for document in (*(span.output or ()), *(span.input or ()))]
        portion.append(Trace(documents, partial(queries_of, trace)))
        spans += len(trace)
    if portion:
        yield portion


class _Spill:
    """Spans in a temporary file, read back by trace in the order in which the traces began."""

    def __init__(self, file: IO[bytes], errors: list[RowError], source: str) -> None:
        self._file, self._errors, self._source = file, errors, source
        self._traces: dict[str, int] = {}
        self._trace, self._start, self._length = array("q"), array("q"), array("q")
        self._end = 0

    def add(self, span: Span) -> None:
        line = pickle.dumps(span)  # which this process alone reads back
        self._file.write(line)
        self._trace.append(self._traces.setdefault(span.trace_id, len(self._traces)))
        self._start.append(self._end)
        self._length.append(len(line))
        self._end += len(line)

    def traces(self) -> Iterator[list[Span]]:
        """The spans of one trace after the other, each in the order of the file."""
        number = np.frombuffer(self._trace, dtype=np.int64) if self._trace else np.zeros(0, dtype=np.int64)
        order = np.argsort(number, kind="stable")
        bounds = np.flatnonzero(np.diff(number[order], prepend=-1)).tolist()
        for first, after in zip(bounds, [*bounds[1:], len(order)], strict=True):
            places = order[first:after].tolist()
            if len(places) > MAX_SPANS:
                reason = f"a trace of {len(places):,} spans; its first {MAX_SPANS:,} are read"
                self._errors.append(RowError(self._source, 0, reason))
                places = places[:MAX_SPANS]
            spans: list[Span] = []
            for place in places:
                self._file.seek(self._start[place])
                spans.append(pickle.loads(self._file.read(self._length[place])))  # noqa: S301
            yield spans

    def __len__(self) -> int:
        return len(self._traces)


def answer_of(query: TracedQuery) -> Asked:
    """A traced query as a recorded answer with its lists, or without where its trace does not say what was returned."""
    answer = query.recorded.answer(query.row, query.qid, query.query, query.asked_at)
    return answer or Asking(query.row, query.qid, query.query, None, query.asked_at)


def warning_notes(queries: Iterable[TracedQuery]) -> list[str]:
    """How many queries have stages that contradict themselves, and the first such line."""
    warned = [query for query in queries if query.warnings]
    if not warned:
        return []
    stage, lines = next(iter(warned[0].warnings.items()))
    several = "1 query has" if len(warned) == 1 else f"{len(warned):,} queries have"
    return [f"{several} stages that contradict themselves, which its trace names: {stage}: {lines[0]}"]


def has_stages(path: Path) -> bool:
    """Whether a file of spans says anywhere that it has stages. Raises InputError when it cannot be read."""
    with open_file(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return any(content.find(mark) >= 0 for mark in MARKS)


def sniff(sample: Sample) -> bool:
    """Spans of which one is a stage."""
    return are_spans(sample.rows) and (has_stages(sample.path) or _nested(sample))


def _nested(sample: Sample) -> bool:
    found: dict[str, Span] = {}
    for row in sample.rows:
        for _, values in spans_of(row):
            with suppress(FieldError):
                span = read_span(0, values)
                if span.kind in SEARCHERS and span.output:
                    found[span.span_id] = span
    return any(
        (above := found.get(span.parent_id)) is not None and not _same(above.output or (), span.output or ())
        for span in found.values()
    )


def _same(one: Documents, other: Documents) -> bool:
    """Whether two lists have the same documents: by their texts where one of them has no ids, as DSPy's outer span."""
    ids = [[document.id for document in documents] for documents in (one, other)]
    if all(None not in each for each in ids):
        return ids[0] == ids[1]
    return [document.content for document in one] == [document.content for document in other]


FORMAT = described(__file__, NAME, sniff, read, traces=read_traces)
