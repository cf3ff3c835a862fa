"""Where the spans of a file are, and what each tracing system calls their fields.

    OTLP        {"resourceSpans": [{"scopeSpans": [{"spans": […]}]}]}, as the collector's file exporter writes it; `batches` of Tempo
    pages       spans under `data` (Phoenix's REST answer, Langfuse's API), `spans` (MLflow), `observations` (Langfuse), `runs` (LangSmith)
    tables      a DataFrame of Phoenix as JSON, in any orient
    Jaeger      {"data": [{"spans": [{traceID, spanID, operationName, references, startTime, duration, tags: [{key, value}]}]}]}, in µs
    Zipkin      {traceId, id, parentId, name, timestamp, duration, tags: {…}}, times in µs
    Langfuse    {id, traceId, type, startTime, parentObservationId, level, input, output}, or snake case as blob storage has them
    LangSmith   {id, trace_id, run_type, start_time, parent_run_id, error, inputs, outputs}

The last four are given the names of OpenInference. Anything else is a span as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cems_workbench.formats.base.files import data_beside
from workbench_tools import spans
from workbench_tools.documents import documents_in, rows_of_table

_NAMES: Mapping[str, tuple[str, ...]] = data_beside(__file__, "names.json")["export"]
EXPORTS, SCOPES, PAGES = (_NAMES[each] for each in ("exports", "scopes", "pages"))
MAX_DEPTH = 4
COLUMNS = _NAMES["columns"]
"""Columns of a table of spans."""
OBSERVATIONS = frozenset(_NAMES["observations"])
"""Types of an observation of Langfuse."""
_TRACES = ("traceId", "trace_id")
CHILDREN = "child_runs"
"""Where a run of LangSmith has those below it, if they were loaded with it."""
MOST_NESTED = 50


def spans_of(row: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The spans of a row, each with its position: the row itself, or those of an export, a page or a table."""
    export = next((name for name in EXPORTS if isinstance(row.get(name), list)), None)
    if export is not None:
        for r, resource in spans.objects(row[export]):
            scopes = next((name for name in SCOPES if name in resource), SCOPES[0])
            for s, scope in spans.objects(resource.get(scopes)):
                for i, span in spans.objects(scope.get("spans")):
                    yield f"{export}[{r}].{scopes}[{s}].spans[{i}].", span
        return
    if _is_page(row) and depth < MAX_DEPTH:
        for name in PAGES:
            inner = row.get(name)
            if isinstance(inner, dict):
                yield from ((f"{name}.{where}", span) for where, span in spans_of(inner, depth + 1))
            for i, one in spans.objects(inner):
                yield from ((f"{name}[{i}].{where}", span) for where, span in spans_of(one, depth + 1))
        return
    table = None if depth or "attributes" in row or spans.KIND in row else rows_of_table(row, COLUMNS)
    if table is None:
        yield "", as_span(row)
        for i, one in spans.objects(row.get(CHILDREN) if depth < MOST_NESTED else None):
            yield from ((f"{CHILDREN}[{i}].{where}", span) for where, span in spans_of(one, depth + 1))
    else:
        yield from ((f"[{i}].", as_span(one)) for i, one in enumerate(table))


def _is_page(row: Mapping[str, Any]) -> bool:
    """Whether spans are below it, and it is neither a span nor a table."""
    if "attributes" in row or "columns" in row or "schema" in row or system_of(row):
        return False
    return any(
        (isinstance(inner := row.get(name), dict) and any(key in inner for key in (*PAGES, *EXPORTS)))
        or (isinstance(inner, list) and (not inner or isinstance(inner[0], dict)))
        for name in PAGES
    )


def system_of(row: Mapping[str, Any]) -> str:
    """The tracing system whose names a span has; empty for those of OpenTelemetry and OpenInference."""
    if "attributes" in row:
        return ""
    if "run_type" in row and "inputs" in row:
        return "LangSmith"
    tags = row.get("tags")
    if isinstance(tags, list) and "operationName" in row:
        return "Jaeger"
    if isinstance(tags, dict) and "traceId" in row and "timestamp" in row:
        return "Zipkin"
    kind = row.get("type")
    known = isinstance(kind, str) and kind.upper() in OBSERVATIONS and any(name in row for name in _TRACES)
    return "Langfuse" if known and any(name in row for name in spans.START_FIELDS) else ""


def as_span(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A span under the names of OpenInference."""
    match system_of(row):
        case "Jaeger":
            tags = {str(tag.get("key")): tag.get("value") for _, tag in spans.objects(row["tags"])}
            references = [one for _, one in spans.objects(row.get("references"))]
            parents = [one.get("spanID") for one in references if one.get("refType") == "CHILD_OF"]
            ids = row.get("traceID"), row.get("spanID"), next(iter(parents), row.get("parentSpanID"))
            return _timed(row["operationName"], ids, row.get("startTime"), row.get("duration"), tags)
        case "Zipkin":
            ids = row["traceId"], row.get("id"), row.get("parentId")
            return _timed(row.get("name"), ids, row["timestamp"], row.get("duration"), row["tags"])
        case "Langfuse":
            kind = str(row["type"]).upper()
            # Before version 3 its retrievers were plain spans.
            if kind == "SPAN" and _has_documents(row.get("output")):
                kind = "RETRIEVER"
            failed = str(row.get("level")).upper() == "ERROR"
            parent = spans.first_of(row, ("parentObservationId", "parent_observation_id"))
            message = spans.first_of(row, ("statusMessage", "status_message"))
            return _span(row, kind, parent, failed, message, row.get("input"), row.get("output"))
        case "LangSmith":
            kind, error, parent = str(row["run_type"]).upper(), row.get("error"), row.get("parent_run_id")
            return _span(row, kind, parent, bool(error), error, row["inputs"], row.get("outputs"))
    return row


def _span(
    row: Mapping[str, Any], kind: str, parent: Any, failed: bool, message: Any, given: Any, output: Any
) -> dict[str, Any]:
    return {
        "name": row.get("name"),
        "trace_id": spans.first_of(row, _TRACES),
        "span_id": row.get("id"),
        "parent_id": parent,
        "start_time": spans.first_of(row, spans.START_FIELDS),
        "end_time": spans.first_of(row, spans.END_FIELDS),
        "status_code": "ERROR" if failed else "OK",
        "status_message": message,
        "attributes": {spans.KIND: kind, "input.value": given, spans.OUTPUT: output},
    }


def _timed(name: Any, ids: tuple[Any, Any, Any], start: Any, duration: Any, tags: Mapping[str, Any]) -> dict[str, Any]:
    """A span with a begin and a duration in microseconds, that failed if a tag says so."""
    begun = int(start) * 1000 if isinstance(start, int) else start
    ended = begun + int(duration) * 1000 if isinstance(begun, int) and isinstance(duration, int) else None
    tagged = str(tags.get("error", "false")).lower() not in ("false", "")
    failed = tagged or str(tags.get("otel.status_code", "")).upper() == "ERROR"
    return {
        "name": name,
        "trace_id": ids[0],
        "span_id": ids[1],
        "parent_id": ids[2],
        "start_time_unix_nano": begun,
        "end_time_unix_nano": ended,
        "status_code": "ERROR" if failed else "OK",
        "attributes": dict(tags),
    }


def _has_documents(output: Any) -> bool:
    """Whether an output is a list of documents, each with a text and something that says what it is."""
    found = documents_in(output)
    marks = ("id", "metadata", "score", "meta")
    texts = ("page_content", "pageContent", "content", "text", "memory")
    return bool(found) and all(
        isinstance(one, dict) and any(name in one for name in marks) and any(name in one for name in texts)
        for one in found or ()
    )


def are_spans(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether most of the first rows of a file are, or have, spans under the names of OpenTelemetry, Jaeger or Zipkin."""
    rows = [row for row in rows if not _is_empty(row)]
    return sum(_is_span(row) for row in rows) * 2 > len(rows)


def are_observations(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether most of the first rows of a file are, or have, observations of Langfuse or runs of LangSmith."""
    rows = [row for row in rows if not _is_empty(row)]
    return sum(_is_observation(row) for row in rows) * 2 > len(rows)


def _is_empty(row: Mapping[str, Any]) -> bool:
    return any(row.get(name) == [] for name in (*PAGES, *EXPORTS)) and "attributes" not in row


def _is_observation(row: Mapping[str, Any]) -> bool:
    at: Any = row
    for _ in range(MAX_DEPTH):
        if system_of(at) in ("Langfuse", "LangSmith"):
            return True
        inner = next((at[name] for name in PAGES if isinstance(at.get(name), list | dict) and at[name]), None)
        at = inner[0] if isinstance(inner, list) else inner
        if not isinstance(at, dict):
            return False
    return False


def _is_span(row: Mapping[str, Any]) -> bool:
    if any(isinstance(row.get(name), list) for name in EXPORTS):
        return True
    if _is_observation(row):
        return False
    first = next((span for _, span in spans_of(row)), None)
    if first is None:
        return False
    begun = any(name in first for name in (*spans.START_FIELDS, *spans.START_NANOSECOND_FIELDS, "context"))
    return begun and any(
        name == "attributes" or name.startswith("attributes.") or name in spans.KINDS for name in first
    )
