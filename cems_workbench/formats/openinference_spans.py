"""Retriever spans of OpenInference, as JSON lines or a JSON document: what was asked, when, and the documents that came back.

A line is a span, or an export of OTLP (`resourceSpans[].scopeSpans[].spans[]`, attributes as `[{key, value: {stringValue}}]`). Attributes
may be dotted keys, nested objects, or columns `attributes.…` of a table; those that are read:

    openinference.span.kind   RETRIEVER; other spans are counted and passed over
    input.value               the query; of a JSON object its `query`, `input` or the like
    retrieval.documents.N.document.id | content | score | metadata   in the order of N; without an id `memory_id` or `id` of the metadata

The start of a span is the moment of its query. A span that ended in an error answered nothing, and is reported.

Source: https://github.com/Arize-ai/openinference/blob/main/spec/semantic_conventions.md and the JSON encoding of OTLP 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cems_workbench.formats.base import fields
from cems_workbench.formats.base.files import Sample, parse_json, read_records
from cems_workbench.formats.base.format import Format
from cems_workbench.formats.base.logs import parsed_log
from cems_workbench.formats.responses import rows_of_answer
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, RecordedAnswer, RowError

NAME = "openinference-spans"
KIND, QUERY = "openinference.span.kind", "input.value"
DOCUMENTS = "retrieval.documents"
KINDS = (KIND, "span_kind")
START_FIELDS = ("start_time", "startTime")
START_NANOSECOND_FIELDS = ("startTimeUnixNano", "start_time_unix_nano")
STATUSES = ("status_code", "status.status_code", "status.code")
FAILED = ("ERROR", "STATUS_CODE_ERROR", "2")
QUERY_FIELDS = ("query", "input", "question", "query_str", "str_or_query_bundle", "text")
"""Fields of a JSON input that may hold the query."""
MAX_DEPTH = 20
_DOCUMENT = re.compile(r"retrieval\.documents\.([0-9]{1,6})\.(?:document\.)?(id|content|score|metadata(?:\..+)?)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the retriever spans of a file; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    answers = []
    others = 0
    for number, row in read_records(path, errors, progress):
        for where, span in _spans(row):
            try:
                values = _flat(span)
                if str(next((values[name] for name in KINDS if name in values), "")).upper() != "RETRIEVER":
                    others += 1
                    continue
                answers.append(_answer(number, values, str(path), errors))
            except fields.FieldError as error:
                errors.append(RowError(str(path), number, error.reason, f"{where}{error.field}"))
    notes = [f"{others} spans are of another kind than RETRIEVER"] if others else []
    return parsed_log(path, NAME, answers, errors, notes, results=DOCUMENTS)


def _spans(row: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The spans of a line, each with its position: the line itself, or those of an export."""
    exported = row.get("resourceSpans", row.get("resource_spans"))
    if not isinstance(exported, list):
        yield "", row
        return
    for r, resource in _objects(exported):
        for s, scope in _objects(resource.get("scopeSpans", resource.get("scope_spans"))):
            for i, span in _objects(scope.get("spans")):
                yield f"resourceSpans[{r}].scopeSpans[{s}].spans[{i}].", span


def _objects(value: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if isinstance(value, list):
        yield from ((i, item) for i, item in enumerate(value) if isinstance(item, dict))


def _flat(span: Mapping[str, Any]) -> dict[str, Any]:
    """Everything in a span by its dotted name; attributes under their own. Raises FieldError."""
    flat: dict[str, Any] = {}
    attributes = span.get("attributes")
    _flatten("", {key: value for key, value in span.items() if key not in ("attributes", "events", "links")}, flat, 0)
    flat = {name.removeprefix("attributes."): value for name, value in flat.items()}
    if isinstance(attributes, list):
        for _, pair in _objects(attributes):
            _flatten(str(pair.get("key")), _otlp(pair.get("value"), 0), flat, 0)
    elif isinstance(attributes, dict):
        _flatten("", attributes, flat, 0)
    return flat


def _flatten(name: str, value: Any, flat: dict[str, Any], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise fields.FieldError("attributes", f"are nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        inner: Iterator[tuple[Any, Any]] = iter(value.items())
    elif isinstance(value, list):
        inner = iter(enumerate(value))
    else:
        flat[name] = value
        return
    for key, item in inner:
        _flatten(f"{name}.{key}" if name else str(key), item, flat, depth + 1)


def _otlp(value: Any, depth: int) -> Any:
    """The plain value of an AnyValue of OTLP; raises FieldError."""
    if depth > MAX_DEPTH:
        raise fields.FieldError("attributes", f"are nested deeper than {MAX_DEPTH} levels")
    if not isinstance(value, dict):
        return value
    for name in ("stringValue", "doubleValue", "boolValue", "intValue"):
        if name in value:
            return value[name]
    array, pairs = value.get("arrayValue"), value.get("kvlistValue")
    if isinstance(array, dict):
        return [_otlp(item, depth + 1) for item in array.get("values") or []]
    if isinstance(pairs, dict):
        return {str(pair.get("key")): _otlp(pair.get("value"), depth + 1) for _, pair in _objects(pairs.get("values"))}
    return None


def _answer(number: int, values: Mapping[str, Any], source: str, errors: list[RowError]) -> RecordedAnswer:
    """One retrieval; raises FieldError for a span that has none, and reports documents that cannot be used."""
    status = next((str(values[name]) for name in STATUSES if name in values), "")
    if status.upper().removeprefix("STATUSCODE.") in FAILED:
        raise fields.FieldError("status", "the retrieval ended in an error and answered nothing")
    query = _query(fields.required_text(values, QUERY))
    moment = _moment(values)
    returned = rows_of_answer(_documents(values), number, source, errors, DOCUMENTS)
    return RecordedAnswer(number, "", query, None, returned, asked_at=moment)


def _query(value: str) -> str:
    """The words of the query in an input that may be JSON."""
    if not value.lstrip().startswith(("{", '"')):
        return value
    try:
        found = parse_json(value)
    except ValueError:
        return value
    if isinstance(found, dict):
        found = next((found[name] for name in QUERY_FIELDS if isinstance(found.get(name), str)), None)
    return fields.text({QUERY: found}, QUERY) or value if isinstance(found, str) else value


def _moment(values: Mapping[str, Any]) -> datetime | None:
    """When the span began; raises FieldError."""
    name = next((name for name in START_NANOSECOND_FIELDS if values.get(name) is not None), None)
    if name is None:
        return fields.moment(
            values, next((one for one in START_FIELDS if values.get(one) is not None), START_FIELDS[0])
        )
    try:
        return _EPOCH + timedelta(microseconds=int(values[name]) // 1000)
    except (TypeError, ValueError, OverflowError):
        raise fields.FieldError(name, f"must be nanoseconds since 1970, found {ascii(values[name])[:60]}") from None


def _documents(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The documents in the order of their numbers, as results: id, content and score, as far as they are there."""
    found: dict[int, dict[str, Any]] = {}
    for name, value in values.items():
        match = _DOCUMENT.fullmatch(name)
        if match is not None and value is not None:
            found.setdefault(int(match[1]), {})[match[2]] = value
    return [_result(found[position]) for position in sorted(found)]


def _result(document: Mapping[str, Any]) -> dict[str, Any]:
    said = {name: document[name] for name in ("content", "score") if name in document}
    named = document.get("id")
    if named is None:
        metadata = _metadata(document)
        named = next((metadata[name] for name in ("memory_id", "id") if metadata.get(name) is not None), None)
    return said if named is None else {"id": named, **said}


def _metadata(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metadata of a document: the object that its text is, or what is nested."""
    told = document.get("metadata")
    if isinstance(told, str):
        try:
            parsed = parse_json(told)
        except ValueError:
            return {}
        return parsed if isinstance(parsed, dict) else {}
    return {name.removeprefix("metadata."): value for name, value in document.items() if name.startswith("metadata.")}


def sniff(sample: Sample) -> bool:
    """Exports of OTLP, or rows with the attributes and the context or begin of a span."""
    rows = sample.rows
    return sum(_is_span(row) for row in rows) * 2 > len(rows)


def _is_span(row: Mapping[str, Any]) -> bool:
    if "resourceSpans" in row or "resource_spans" in row:
        return True
    begun = any(name in row for name in (*START_FIELDS, *START_NANOSECOND_FIELDS, "context"))
    return begun and any(name == "attributes" or name.startswith("attributes.") or name in KINDS for name in row)


FORMAT = Format(
    NAME,
    "retriever spans of OpenInference: JSON lines of spans, or OTLP JSON",
    order=2,
    sniff=sniff,
    read=read,
    suffixes=(".jsonl", ".ndjson", ".json"),
    place=0,
    answers=True,
)
