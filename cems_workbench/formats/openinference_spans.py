"""Retriever spans of OpenInference or OTel GenAI, as JSON lines or a JSON document: what was asked, when, and the documents that came back.

Each retrieval is a query with its recorded answer (`base/span_logs.py`); spans with stages are `openinference_traces`, which links them.
What is read (`base/spans.py` has the forms of a span, `base/documents.py` those of a document):

    openinference.span.kind   RETRIEVER; other spans are counted and passed over
    input.value               the query; of a JSON object its `query`, `input` or the like, of a chat what its last user said
    retrieval.documents.N.document.id | content | score | metadata   in the order of N; without them those of `output.value`
    gen_ai.…                  the same of the searches of OTel GenAI

The start of a span is the moment of its query. A span that ended in an error answered nothing, and is reported. One that does not say
what it returned has no recorded answer.
"""

from __future__ import annotations

from pathlib import Path

from cems_workbench.formats.base.exports import are_spans, spans_of
from cems_workbench.formats.base.files import Sample, read_records
from cems_workbench.formats.base.format import Format
from cems_workbench.formats.base.span_logs import spans_log
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, RowError

NAME = "openinference-spans"


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the retriever spans of a file; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    rows = read_records(path, errors, progress)
    spans = ((number, where, span) for number, row in rows for where, span in spans_of(row))
    return spans_log(path, NAME, spans, errors)


def sniff(sample: Sample) -> bool:
    """Exports of OTLP, or rows with the attributes and the context or begin of a span."""
    return are_spans(sample.rows)


FORMAT = Format(
    NAME,
    "retriever spans of OpenInference: JSON lines of spans, or OTLP JSON",
    order=2,
    sniff=sniff,
    read=read,
    suffixes=(".jsonl", ".ndjson", ".json"),
    place=0,
    answers=True,
    shape="spans: objects with attributes and a context or start_time, or OTLP JSON",
    needs=(("attributes", "resourceSpans"), ("context", "start_time", "resourceSpans")),
)
