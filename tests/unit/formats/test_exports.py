"""Files of tracing systems, as each writes them: a retrieval is its query, moment and documents wherever it stands."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cems_workbench.formats import detect, read

WORDS = "how do releases reach the cluster"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MICROSECONDS = 1_772_366_400_000_000
FOUND = [("m01", 0.9), ("m07", 0.2)]
LISTED = json.dumps([{"id": key, "score": score} for key, score in FOUND])
TEXTS = [
    {"id": key, "page_content": f"text of {key}", "metadata": {"source": "n"}, "type": "Document"} for key, _ in FOUND
]


def phoenix(**changes: Any) -> dict[str, Any]:
    """A span of Phoenix's REST answer (arize-phoenix 12)."""
    attributes = {"openinference.span.kind": "RETRIEVER", "input.value": WORDS}
    for n, (key, score) in enumerate(FOUND):
        attributes |= {f"retrieval.documents.{n}.document.id": key, f"retrieval.documents.{n}.document.score": score}
    return {
        "id": "U3Bhbjox",
        "name": "retriever",
        "context": {"trace_id": "1", "span_id": "2"},
        "span_kind": "RETRIEVER",
        "parent_id": None,
        "start_time": NOON.isoformat(),
        "status_code": "OK",
        "attributes": attributes,
        "events": [],
    } | changes


FRAME = pd.DataFrame(
    {
        "name": ["retriever", "llm"],
        "span_kind": ["RETRIEVER", "LLM"],
        "parent_id": ["9", None],
        "start_time": pd.to_datetime([NOON, NOON]),
        "status_code": ["OK", "OK"],
        "context.span_id": ["2", "9"],
        "context.trace_id": ["1", "1"],
        "attributes.openinference.span.kind": ["RETRIEVER", "LLM"],
        "attributes.input.value": [WORDS, "x"],
        "attributes.retrieval.documents": [
            [{"document.id": key, "document.score": score} for key, score in FOUND],
            None,
        ],
    }
).set_index("context.span_id")
"""What px.Client().get_spans_dataframe() gives."""

EPOCH = FRAME.assign(start_time=MICROSECONDS // 1000)
"""As pandas before version 3 writes times."""
GENAI = {
    "gen_ai.operation.name": "search_memory",
    "gen_ai.memory.query.text": WORDS,
    "gen_ai.memory.records": LISTED,
}
JAEGER = {
    "data": [
        {
            "traceID": "1",
            "spans": [
                {
                    "traceID": "1",
                    "spanID": "2",
                    "operationName": "search_memory",
                    "references": [{"refType": "CHILD_OF", "traceID": "1", "spanID": "9"}],
                    "startTime": MICROSECONDS,
                    "duration": 2000,
                    "tags": [{"key": key, "type": "string", "value": value} for key, value in GENAI.items()],
                    "logs": [],
                    "processID": "p1",
                    "warnings": None,
                }
            ],
            "processes": {"p1": {"serviceName": "app", "tags": []}},
            "warnings": None,
        }
    ],
    "total": 0,
    "limit": 0,
    "offset": 0,
    "errors": None,
}
ZIPKIN = [
    {
        "traceId": "1",
        "id": "2",
        "name": "search",
        "timestamp": MICROSECONDS,
        "duration": 9,
        "kind": "CLIENT",
        "tags": GENAI,
    }
]
OTLP = {
    "scopeSpans": [
        {
            "scope": {"name": "x"},
            "spans": [
                {
                    "traceId": "1",
                    "spanId": "2",
                    "name": "retrieval notes",
                    "startTimeUnixNano": str(MICROSECONDS * 1000),
                    "attributes": [
                        {"key": "gen_ai.operation.name", "value": {"stringValue": "retrieval"}},
                        {"key": "gen_ai.retrieval.query.text", "value": {"stringValue": WORDS}},
                        {
                            "key": "gen_ai.retrieval.documents",
                            "value": {
                                "arrayValue": {
                                    "values": [
                                        {
                                            "kvlistValue": {
                                                "values": [
                                                    {"key": "id", "value": {"stringValue": key}},
                                                    {"key": "score", "value": {"doubleValue": score}},
                                                ]
                                            }
                                        }
                                        for key, score in FOUND
                                    ]
                                }
                            },
                        },
                    ],
                    "status": {},
                }
            ],
        }
    ]
}


def sdk(**attributes: Any) -> dict[str, Any]:
    """What `ReadableSpan.to_json` of the OpenTelemetry SDK writes."""
    return {
        "name": "retrieve",
        "context": {"trace_id": "0x1", "span_id": "0x2", "trace_state": "[]"},
        "kind": "SpanKind.INTERNAL",
        "parent_id": None,
        "start_time": "2026-03-01T12:00:00.000000Z",
        "status": {"status_code": "UNSET"},
        "attributes": attributes,
    }


LANGFUSE = {f"langfuse.observation.{name}": value for name, value in (("type", "retriever"), ("output", LISTED))}
MLFLOW = {
    "mlflow.spanType": '"RETRIEVER"',
    "mlflow.spanInputs": json.dumps({"query": WORDS}),
    "mlflow.spanOutputs": LISTED,
}


def found(path: Path, form: str) -> list[tuple[str, Any, list[tuple[str | None, float | None]]]]:
    assert detect(path) == form
    parsed = read(path)
    assert not parsed.errors and len(parsed.queries) == len(parsed.answers)
    return [
        (query.query, query.as_of, [(row.memory_id, row.score) for row in answer.returned])
        for query, answer in zip(parsed.queries, parsed.answers, strict=True)
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", json.dumps({"data": [phoenix()], "next_cursor": None})),
        ("a.json", json.dumps([{"data": [phoenix()], "next_cursor": "x"}, {"data": [], "next_cursor": None}])),
        ("a.jsonl", "\n".join(json.dumps({"data": spans}) for spans in ([phoenix()], []))),
        *[
            ("a.json", EPOCH.to_json(orient=orient, date_format="iso"))
            for orient in ("columns", "records", "index", "split", "table")
        ],
        ("a.jsonl", EPOCH.to_json(orient="records", lines=True, date_format="iso")),
        ("a.json", FRAME.to_json(orient="columns", date_format="iso")),
        ("a.json", json.dumps(JAEGER)),
        ("a.json", json.dumps(ZIPKIN)),
        ("a.json", json.dumps({"resourceSpans": [OTLP]})),
        ("a.jsonl", json.dumps({"resourceSpans": [OTLP]}) + "\n" + json.dumps({"resourceSpans": []})),
        ("a.json", json.dumps({"batches": [OTLP]})),
        (
            "a.jsonl",
            json.dumps(
                sdk(**LANGFUSE, **{"langfuse.observation.input": json.dumps({"args": [WORDS], "kwargs": {"k": 3}})})
            ),
        ),
        ("a.json", json.dumps({"info": {"trace_id": "tr-1"}, "data": {"spans": [sdk(**MLFLOW)]}})),
    ],
    ids=[
        "phoenix-page",
        "phoenix-pages",
        "phoenix-lines",
        "columns",
        "records",
        "index",
        "split",
        "table",
        "lines",
        "iso",
        "jaeger",
        "zipkin",
        "otlp",
        "collector",
        "tempo",
        "langfuse-sdk",
        "mlflow",
    ],
)
def test_spans_wherever_they_stand(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert found(path, "openinference-spans") == [(WORDS, NOON, FOUND)]


def observation(**changes: Any) -> dict[str, Any]:
    """An observation of Langfuse's API (version 3 and later)."""
    return {
        "id": "2",
        "traceId": "1",
        "type": "RETRIEVER",
        "name": "VectorStoreRetriever",
        "startTime": "2026-03-01T12:00:00.000Z",
        "endTime": "2026-03-01T12:00:00.020Z",
        "parentObservationId": "9",
        "level": "DEFAULT",
        "statusMessage": None,
        "metadata": {},
        "input": WORDS,
        "output": TEXTS,
    } | changes


def table(*rows: dict[str, Any]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {name: value if isinstance(value, str | None) else json.dumps(value) for name, value in row.items()}
        )
    return text.getvalue()


SNAKE = {
    "id": "2",
    "trace_id": "1",
    "type": "RETRIEVER",
    "start_time": "2026-03-01 12:00:00.000000",
    "parent_observation_id": "9",
    "level": "DEFAULT",
    "input": WORDS,
    "output": json.dumps(TEXTS),
}
RUN = {
    "id": "2",
    "trace_id": "1",
    "name": "VectorStoreRetriever",
    "run_type": "retriever",
    "start_time": "2026-03-01T12:00:00+00:00",
    "parent_run_id": None,
    "error": None,
    "inputs": {"query": WORDS},
    "outputs": {"documents": TEXTS},
}
GENERATION = observation(id="9", type="GENERATION", input=[{"role": "user", "content": WORDS}], output="no")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", json.dumps({"data": [observation(), GENERATION], "meta": {"page": 1, "totalPages": 1}})),
        ("a.json", json.dumps([observation(output=json.dumps(TEXTS)), GENERATION])),
        ("a.jsonl", json.dumps(SNAKE)),
        ("a.json", json.dumps({"trace": {"id": "1"}, "observations": [observation(type="SPAN")]})),
        ("a.csv", table(observation(), GENERATION)),
        ("a.jsonl", json.dumps(RUN)),
        ("a.json", json.dumps({"runs": [RUN], "cursors": {}})),
    ],
    ids=["page", "rows", "blob", "trace", "csv", "langsmith", "langsmith-page"],
)
def test_observations_and_runs(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert found(path, "observations") == [(WORDS, NOON, [("m01", None), ("m07", None)])]


@pytest.mark.parametrize(
    ("change", "answers"),
    [
        (lambda: observation(output=None), None),
        (lambda: observation(output="Releases reach the cluster"), None),
        (lambda: observation(output=[]), [0]),
        (lambda: RUN | {"outputs": {}}, None),
        (lambda: RUN | {"outputs": {"documents": []}}, [0]),
    ],
)
def test_an_output_without_documents_is_not_recorded(
    change: Callable[[], dict[str, Any]], answers: list[int] | None, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(change()))
    parsed = read(path)
    assert [query.query for query in parsed.queries] == [WORDS]
    assert [len(answer.returned) for answer in parsed.answers] == (answers or [])
    assert parsed.notes == (() if answers else ("1 query: answer not recorded",))


def test_what_failed_is_reported_and_other_observations_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(
        json.dumps({"data": [observation(level="ERROR"), GENERATION, observation(type="SPAN", output="x")]})
    )
    parsed = read(path)
    assert not parsed.queries and parsed.notes == ("2 spans are of another kind than RETRIEVER",)
    assert [error.field for error in parsed.errors] == ["data[0].status"]
