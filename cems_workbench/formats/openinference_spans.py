"""Retriever spans of OpenInference or OTel GenAI, as JSON or as a CSV of Phoenix's DataFrame: what was asked, when, and what came back.

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

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cems_workbench.formats.base.csv_table import DELIMITERS, columns_of, open_table, read_rows
from cems_workbench.formats.base.exports import are_spans, spans_of
from cems_workbench.formats.base.files import Sample, read_records
from cems_workbench.formats.base.format import Format
from cems_workbench.formats.base.span_logs import spans_log
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, RowError

NAME = "openinference-spans"
CSV = (".csv", ".tsv")


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the retriever spans of a file; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    rows = _csv(path, errors, progress) if path.suffix.lower() in CSV else read_records(path, errors, progress)
    spans = ((number, where, span) for number, row in rows for where, span in spans_of(row))
    return spans_log(path, NAME, spans, errors)


def _csv(path: Path, errors: list[RowError], progress: Progress) -> Iterator[tuple[int, Mapping[str, Any]]]:
    table = open_table(path, ("attributes.input.value",))
    for line, row in read_rows(table, errors, progress):
        yield line, {name: cell for name, cell in row.items() if cell.strip()}


def sniff(sample: Sample) -> bool:
    """Exports of OTLP, rows with the attributes and the context or begin of a span, or the header of Phoenix's table of spans."""
    if sample.rows or not sample.lines:
        return are_spans(sample.rows)
    columns = [{*columns_of(sample.lines[0], delimiter)} for delimiter in DELIMITERS]
    return any({"attributes.input.value", "span_kind"} <= names for names in columns)


FORMAT = Format(
    NAME,
    "retriever spans of OpenInference: JSON lines of spans, or OTLP JSON",
    order=2,
    sniff=sniff,
    read=read,
    suffixes=(".jsonl", ".ndjson", ".json", ".csv", ".tsv"),
    place=0,
    answers=True,
    shape="spans: objects with attributes and a context or start_time, or OTLP JSON",
    needs=(("attributes", "resourceSpans"), ("context", "start_time", "resourceSpans")),
)
