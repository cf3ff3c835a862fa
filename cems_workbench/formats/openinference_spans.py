"""Retriever spans of OpenInference, as JSON lines or a JSON document: what was asked, when, and the documents that came back.

Each retriever span is a query with its recorded answer; spans with stages are `openinference_traces`, which links them. What is read
(`base/spans.py` has the forms of a span):

    openinference.span.kind   RETRIEVER; other spans are counted and passed over
    input.value               the query; of a JSON object its `query`, `input` or the like
    retrieval.documents.N.document.id | content | score | metadata   in the order of N; without an id `memory_id` or `id` of the metadata
    gen_ai.…                  the same of the searches of OTel GenAI

The start of a span is the moment of its query. A span that ended in an error answered nothing, and is reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from cems_workbench.formats.base import fields
from cems_workbench.formats.base.files import Sample, read_records
from cems_workbench.formats.base.format import Format
from cems_workbench.formats.base.logs import parsed_log
from cems_workbench.formats.base.spans import (
    FAILED,
    KINDS,
    QUERIES,
    QUERY_FIELDS,
    RETRIEVED,
    SEARCHES,
    START_FIELDS,
    START_NANOSECOND_FIELDS,
    STATUSES,
    are_spans,
    flat,
    json_rows,
    metadata_of,
    microseconds,
    moment_of,
    spans_of,
    words_of_query,
)
from cems_workbench.formats.responses import rows_of_answer
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, RecordedAnswer, RowError

NAME = "openinference-spans"
QUERY = "input.value"
DOCUMENTS = "retrieval.documents"
_DOCUMENT = re.compile(r"retrieval\.documents\.([0-9]{1,6})\.(?:document\.)?(id|content|score|metadata(?:\..+)?)")


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the retriever spans of a file; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    answers = []
    others = 0
    for number, row in read_records(path, errors, progress):
        for where, span in spans_of(row):
            try:
                values = flat(span)
                kind = str(next((values[name] for name in KINDS if name in values), "")).upper()
                if kind != "RETRIEVER" and (kind or values.get("gen_ai.operation.name") not in SEARCHES):
                    others += 1
                    continue
                answers.append(_answer(number, values, str(path), errors))
            except fields.FieldError as error:
                errors.append(RowError(str(path), number, error.reason, f"{where}{error.field}"))
    notes = [f"{others} spans are of another kind than RETRIEVER"] if others else []
    return parsed_log(path, NAME, answers, errors, notes, results=DOCUMENTS)


def _answer(number: int, values: Mapping[str, Any], source: str, errors: list[RowError]) -> RecordedAnswer:
    """One retrieval; raises FieldError for a span that has none, and reports documents that cannot be used."""
    status = next((str(values[name]) for name in STATUSES if name in values), "")
    if status.upper().removeprefix("STATUSCODE.") in FAILED:
        raise fields.FieldError("status", "the retrieval ended in an error and answered nothing")
    asked = next((name for name in QUERIES if values.get(name) is not None), QUERY)
    query = _query(fields.required_text(values, asked))
    moment = _moment(values)
    returned = rows_of_answer(_documents(values), number, source, errors, DOCUMENTS)
    return RecordedAnswer(number, "", query, None, returned, asked_at=moment)


def _query(value: str) -> str:
    """The words of the query in an input that may be JSON; raises FieldError for JSON without any, such as an embedding."""
    words = words_of_query(value)
    if words is None:
        raise fields.FieldError(QUERY, f"has no words of a query; looked for {', '.join(QUERY_FIELDS[:4])}")
    return fields.required_text({QUERY: words}, QUERY)


def _moment(values: Mapping[str, Any]) -> datetime | None:
    """When the span began; raises FieldError."""
    name = next((name for name in START_NANOSECOND_FIELDS if values.get(name) is not None), None)
    if name is None:
        return fields.moment(
            values, next((one for one in START_FIELDS if values.get(one) is not None), START_FIELDS[0])
        )
    return moment_of(microseconds(values, (), (name,)))


def _documents(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The documents in the order of their numbers, as results: id, content and score, as far as they are there."""
    found: dict[int, dict[str, Any]] = {}
    for name, value in values.items():
        match = _DOCUMENT.fullmatch(name)
        if match is not None and value is not None:
            found.setdefault(int(match[1]), {})[match[2]] = value
    if not found:
        as_text = next((values[name] for name in RETRIEVED if isinstance(values.get(name), str)), None)
        found = dict(enumerate(json_rows(as_text)))
    return [_result(found[position]) for position in sorted(found)]


def _result(document: Mapping[str, Any]) -> dict[str, Any]:
    said = {name: document[name] for name in ("content", "score") if name in document}
    named = document.get("id")
    if named is None:
        metadata = metadata_of(document)
        named = next((metadata[name] for name in ("memory_id", "id") if metadata.get(name) is not None), None)
    return said if named is None else {"id": named, **said}


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
