"""Observations of Langfuse and runs of LangSmith, as JSON, JSON lines or CSV: what was asked, when, and the documents that came back.

Each retrieval, an observation of type RETRIEVER or a run of type retriever, is a query with its recorded answer (`base/span_logs.py`;
`base/exports.py` has their fields): its words are in the input, its documents in the output (`base/documents.py`), objects or JSON text.
A SPAN of Langfuse whose output is a list of documents is one too. An output without documents is not recorded; an empty list is an
empty answer.

Read as they come: rows, a page of the API (`data` and `meta`), several pages, the JSON of one trace (`observations`), or CSV of
Langfuse. Checked with what the SDKs of Langfuse 5.0 and LangSmith 0.15 write and read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cems_workbench.formats.base.csv_table import DELIMITERS, columns_of, open_table, read_rows
from cems_workbench.formats.base.exports import are_observations, spans_of
from cems_workbench.formats.base.files import Sample, read_records
from cems_workbench.formats.base.format import Format
from cems_workbench.formats.base.span_logs import spans_log
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, RowError

NAME = "observations"
CSV = (".csv", ".tsv")


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the retrievals of a file; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    rows = _csv(path, errors, progress) if path.suffix.lower() in CSV else read_records(path, errors, progress)
    spans = ((number, where, span) for number, row in rows for where, span in spans_of(row))
    return spans_log(path, NAME, spans, errors, documents="output")


def _csv(path: Path, errors: list[RowError], progress: Progress) -> Iterator[tuple[int, Mapping[str, Any]]]:
    table = open_table(path, ("id", "type", "input", "output"))
    for line, row in read_rows(table, errors, progress):
        yield line, {name: cell for name, cell in row.items() if cell.strip()}


def sniff(sample: Sample) -> bool:
    """Rows or pages of observations, or a header with their names."""
    if sample.rows:
        return are_observations(sample.rows)
    header = sample.lines[0] if sample.lines else ""
    return any(
        {"id", "type", "input", "output"} <= (names := {*columns_of(header, delimiter)})
        and bool(names & {"traceId", "trace_id"})
        for delimiter in DELIMITERS
    )


FORMAT = Format(
    NAME,
    "observations of Langfuse, runs of LangSmith: retrievals with their input and output",
    order=2,
    sniff=sniff,
    read=read,
    suffixes=(".jsonl", ".ndjson", ".json", ".csv", ".tsv"),
    answers=True,
    shape="observations with id, type, traceId, startTime, input and output, or runs with run_type, inputs and outputs",
    needs=(("type", "run_type"), ("input", "inputs"), ("output", "outputs")),
)
