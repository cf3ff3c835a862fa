"""Exports of tracing systems and of memory libraries: spans, observations, hook events, notes, answers of stores."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import FORMATS, detect, log_format, read
from cems_workbench.formats.base.choosing import read_path
from cems_workbench.records import Memory, ParsedInput, RecordedAnswer, Relation
from workbench_fidelity.recordings import parse_recording
from workbench_tools.cems import searched

WORDS = "how do releases reach the cluster"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MICROSECONDS = 1_772_366_400_000_000
FOUND = [("m01", 0.9), ("m07", 0.2)]
EXPORTS: dict[str, Any] = json.loads(Path(__file__).with_name("exports.json").read_text("utf-8"))
"""What tools write of that query, and what engines and memory libraries answer."""
JAEGER, ZIPKIN, OTLP, SNAKE, RUN = (EXPORTS[name] for name in ("jaeger", "zipkin", "otlp", "snake", "run"))
LISTED = json.dumps([{"id": key, "score": score} for key, score in FOUND])
TEXTS = [
    {"id": key, "page_content": f"text of {key}", "metadata": {"source": "n"}, "type": "Document"} for key, _ in FOUND
]


def phoenix(**changes: Any) -> dict[str, Any]:
    """A span of Phoenix's REST answer (arize-phoenix 12)."""
    return EXPORTS["phoenix"] | changes


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
        ("a.csv", FRAME.to_csv()),
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
        "csv",
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
    return EXPORTS["observation"] | changes


def table(*rows: dict[str, Any]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {name: value if isinstance(value, str | None) else json.dumps(value) for name, value in row.items()}
        )
    return text.getvalue()


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
def test_an_output_without_documents_is_not_recorded(change, answers, tmp_path):
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


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def retrieval(query: str = "how do I deploy the api?", /, **changes: Any) -> dict[str, Any]:
    """An event as the hook of CEMS writes it."""
    details = changes.pop(
        "details", [{"id": "abc12345", "score": 0.853, "category": "technical", "content": "port 8765"}]
    )
    count = len(details) if isinstance(details, list) else 0
    event = {
        "ts": "2026-03-01T13:00:00+0100",
        "event": "MemoryRetrieval",
        "session_id": "0123456789ab",
        "query": query,
        "result_count": count,
        "avg_score": 0.8,
        "top_score": 0.9,
        "details": details,
        "verbose": "/home/me/.claude/hooks/logs/verbose/0123456789ab.jsonl",
    }
    return event | changes


def event(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"ts": "2026-03-01T13:00:09+0100", "event": name, "session_id": "0123456789ab"} | fields


def rows(answer: RecordedAnswer) -> list[tuple[str | None, float | None]]:
    return [(row.memory_id, row.score) for row in answer.returned]


def said(parsed: ParsedInput) -> list[str]:
    return [str(error).removeprefix(parsed.source) for error in parsed.errors]


class TestHookEvents:
    def test_a_retrieval_is_a_query_of_its_moment_with_what_came_back(self, tmp_path: Path) -> None:
        path = lines(
            tmp_path / "hook_events.jsonl", event("SessionStart", source="startup"), retrieval(), event("Stop")
        )
        parsed = read(path)
        assert (parsed.format, log_format(path)) == ("cems-hook-events", "cems-hook-events")
        (query,), (answer,) = parsed.queries, parsed.answers
        assert (query.query, query.as_of, query.project, query.type) == ("how do I deploy the api?", NOON, None, "log")
        assert (answer.qid, answer.row, rows(answer)) == (query.qid, 2, [("abc12345", 0.853)])
        assert answer.returned[0].content == "port 8765"
        assert parsed.extra["id_length"] == 8
        assert parsed.notes == ("2 events are no MemoryRetrieval and have no query",)
        assert not parsed.errors

    @pytest.mark.parametrize(
        ("typed", "sent"),
        [
            ("ok, so how do we deploy?", "so how do we deploy?"),
            ("see https://x.org/a why does it fail", "see why does it fail"),
            ("why does ```x = 1``` fail in the job", "why does fail in the job"),
            ("open /etc/hosts and explain the line", "open and explain the line"),
            ("what is `a_long_name_of_code` good for", "what is good for"),
            (" /etc/hosts ", "/etc/hosts"),
        ],
    )
    def test_the_query_is_what_the_hook_searched(self, typed: str, sent: str) -> None:
        assert searched(typed) == sent

    def test_the_same_query_is_kept_once_an_asking(self, tmp_path: Path) -> None:
        later = retrieval(ts="2026-03-02T13:00:00+0100")
        parsed = read(lines(tmp_path / "a.jsonl", retrieval(), retrieval(), later))
        assert len({query.qid for query in parsed.queries}) == 3
        assert [query.as_of and query.as_of.day for query in parsed.queries] == [1, 1, 2]
        assert parsed.notes == ("1 query was asked more than once; each of 3 askings is kept",)
        grown = read(lines(tmp_path / "b.jsonl", retrieval(), retrieval(), later, retrieval("something else entirely")))
        assert grown.queries[:3] == parsed.queries

    def test_a_bad_row_is_one_line_and_the_good_ones_stay(self, tmp_path: Path) -> None:
        path = lines(
            tmp_path / "a.jsonl",
            retrieval(),
            retrieval(query=" "),
            retrieval(details="none"),
            retrieval(ts="noon"),
            "{",
            retrieval(
                "which port is it?",
                details=[{"id": "abc12345", "score": "x"}, {"score": 1.0}, {"id": "a\x00b", "score": 1.0}],
            ),
        )
        parsed = read(path)
        assert said(parsed) == [
            ":2: query: is empty",
            ":3: details: must be a list of results, found a string",
            ":4: ts: must be an ISO 8601 date or time such as 2024-05-08T13:56:00Z, found 'noon'",
            ":5: is not JSON: Expecting property name enclosed in double quotes at column 2",
            ":6: details[0].score: must be a finite number, found 'x'; it has no score",
            ":6: details[1]: has neither an id (memory_id, id, document_id, …) nor a content",
            ":6: details[2].id: must not contain control characters",
        ]
        assert [rows(answer) for answer in parsed.answers] == [[("abc12345", 0.853)], [("abc12345", None)]]

    def test_feedback_is_a_judgment_only_where_it_says_which_memories_it_means(self, tmp_path: Path) -> None:
        shown = [{"id": key, "score": 0.5, "content": "x"} for key in ("aaaaaaaa", "bbbbbbbb")]
        noise = event("RelevanceFeedback", relevant_count=0, noise_count=2, all_noise=True)
        other = {"session_id": "ffffffffffff"}
        parsed = read(
            lines(
                tmp_path / "a.jsonl",
                retrieval("first question of all", details=shown),
                noise,
                noise,  # of nothing that was shown since
                retrieval("second question of all", details=shown),
                event("UserPromptSubmit", prompt_len=3),
                noise,
                retrieval("third question of all", details=shown),
                noise | {"noise_count": 1},
                retrieval("fourth question of all", details=shown),
                noise | {"all_noise": False, "noise_count": 1, "relevant_count": 1},
                retrieval("fifth question of all", details=shown),
                noise | other,
            )
        )
        first = parsed.queries[0].qid
        assert [(one.qid, one.memory_id, one.grade, one.judge, one.kind) for one in parsed.judgments] == [
            (first, "aaaaaaaa", 0, "cems", "model"),
            (first, "bbbbbbbb", 0, "cems", "model"),
        ]
        assert parsed.extra["rows"]["judgments"] == [2, 2]
        assert (
            "5 events RelevanceFeedback do not say which memories helped; no judgment is made of them" in parsed.notes
        )


DOCUMENTS = [("d1", "port 8765", 0.9), ("d2", "port 80", 0.4)]


def flattened(query: str = "which port?", **changes: Any) -> dict[str, Any]:
    """A span as an exporter of OpenTelemetry writes it: dotted attributes."""
    attributes: dict[str, Any] = {"openinference.span.kind": "RETRIEVER", "input.value": query, "session.id": "s"}
    for n, (key, content, score) in enumerate(DOCUMENTS):
        head = f"retrieval.documents.{n}.document"
        attributes |= {f"{head}.id": key, f"{head}.content": content, f"{head}.score": score, f"{head}.metadata": "{}"}
    attributes |= changes.pop("attributes", {})
    return {
        "name": "retrieve",
        "context": {"trace_id": "t", "span_id": "s"},
        "start_time": "2026-03-01T12:00:00.000000Z",
        "status_code": "OK",
        "attributes": attributes,
    } | changes


def columns() -> dict[str, Any]:
    """A row of the table that Phoenix exports."""
    documents = [
        {"document.id": key, "document.content": text, "document.score": score} for key, text, score in DOCUMENTS
    ]
    return {
        "name": "retrieve",
        "span_kind": "RETRIEVER",
        "start_time": "2026-03-01T12:00:00+00:00",
        "status_code": "OK",
        "attributes.openinference.span.kind": "RETRIEVER",
        "attributes.input.value": "which port?",
        "attributes.retrieval.documents": documents,
    }


def any_value(value: Any) -> dict[str, Any]:
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def otlp(*spans: dict[str, Any]) -> dict[str, Any]:
    """An export of OTLP."""
    exported = [
        {
            "name": span["name"],
            "startTimeUnixNano": "1772366400000000000",
            "kind": 1,
            "status": {"code": 1},
            "attributes": [{"key": key, "value": any_value(value)} for key, value in span["attributes"].items()],
        }
        for span in spans
    ]
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"scope": {}, "spans": exported}]}]}


class TestSpans:
    def test_documents_stand_in_the_order_of_their_numbers(self, tmp_path: Path) -> None:
        more = {f"retrieval.documents.{n}.document.id": f"n{n}" for n in (11, 10, 2)}
        parsed = read(lines(tmp_path / "a.jsonl", flattened(attributes=more)))
        gone = [f"not in the trace: {n}" for n in range(4, 11)]  # numbers that are left out were dropped at a limit
        assert [key for key, _ in rows(parsed.answers[0])] == ["d1", "d2", "n2", *gone, "n10", "n11"]

    def test_other_spans_are_counted_and_a_failed_one_is_reported(self, tmp_path: Path) -> None:
        other = flattened(attributes={"openinference.span.kind": "LLM"})
        failed = otlp(other, flattened(attributes={"input.value": " "}))
        parsed = read(
            lines(
                tmp_path / "a.jsonl", other, flattened(status_code="ERROR"), failed, flattened("q", start_time="noon")
            )
        )
        assert [(query.query, query.as_of) for query in parsed.queries] == [("q", None)]
        assert parsed.notes == ("2 spans are of another kind than RETRIEVER",)
        assert said(parsed) == [
            ":2: status: the retrieval ended in an error and answered nothing",
            ":3: resourceSpans[0].scopeSpans[0].spans[1].input.value: is empty",
            ":4: start_time: left out: must be an ISO 8601 date or time such as 2024-05-08T13:56:00Z, found 'noon'",
        ]

    @pytest.mark.parametrize(
        ("attributes", "results"),
        [
            ({}, None),
            ({"retrieval.documents": []}, 0),
            ({"retrieval.documents": "[]"}, 0),
            ({"output.value": '{"documents": []}'}, 0),  # Haystack 0.1.46
            ({"output.value": "no answer"}, None),
            ({"gen_ai.memory.record.count": 0}, 0),
            ({"gen_ai.memory.record.count": 2}, None),
            ({"retrieval.documents": '[{"document.id": "m01"}, {"docum'}, None),  # cut by a limit of length
        ],
    )
    def test_a_span_that_does_not_say_what_it_returned_has_no_recorded_answer(self, attributes, results, tmp_path):
        span = flattened("nothing there?")
        span["attributes"] = {"openinference.span.kind": "RETRIEVER", "input.value": "nothing there?", **attributes}
        parsed = read(lines(tmp_path / "a.jsonl", span))
        assert [query.query for query in parsed.queries] == ["nothing there?"]
        assert [len(answer.returned) for answer in parsed.answers] == ([] if results is None else [results])
        assert ("1 query: answer not recorded" in parsed.notes) == (results is None)
        assert bool(parsed.errors) == ("retrieval.documents" in attributes and results is None)

    def test_words_of_an_embedding_are_those_that_its_trace_embedded(self, tmp_path: Path) -> None:
        """Haystack 3.4 with openinference-instrumentation-haystack 0.1.46: a text embedder before an embedding retriever."""
        given = json.dumps({"query_embedding": "<3-dimensional vector>", "filters": None, "top_k": None})
        spans = [flattened(given, context={"trace_id": trace, "span_id": f"s{n}"}) for n, trace in enumerate("aabc")]
        for trace, text in (("a", "which port?"), ("c", "one"), ("c", "other")):
            embedder = {"openinference.span.kind": "EMBEDDING", "input.value": json.dumps({"text": text})}
            spans.append({**flattened(), "attributes": embedder, "context": {"trace_id": trace, "span_id": text}})
        parsed = read(lines(tmp_path / "a.jsonl", *spans))
        assert [query.query for query in parsed.queries] == ["which port?", "which port?"]
        assert "2 retrievals were given an embedding: the words are those that the trace embedded" in parsed.notes
        (error,) = said(parsed)
        assert error.startswith(":3: input.value: is an embedding") and error.endswith(
            "2 spans have none, this is the first"
        )

    def test_a_chat_is_asked_what_its_last_user_said(self, tmp_path: Path) -> None:
        said_last = {"role": "user", "content": [{"type": "text", "text": "which port?"}]}
        told = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}, said_last]
        chats = (
            {"messages": told},
            told,
            {"input": {"query": "which port?"}},
            {"messages": [{"kwargs": {"type": "human", "content": "which port?"}}, {"type": "ai", "content": "80"}]},
            {"args": ["which port?"], "kwargs": {"k": 3}},
            {"query_bundle": {"query_str": "which port?", "embedding": None}},
            {"str_or_query_bundle": {"query_str": "which port?"}},
        )
        parsed = read(lines(tmp_path / "a.jsonl", *(flattened(json.dumps(chat)) for chat in chats)))
        assert [query.query for query in parsed.queries] == ["which port?"] * len(chats)

    def test_a_query_in_json_and_an_id_in_metadata_are_found(self, tmp_path: Path) -> None:
        span = flattened(json.dumps({"query": "which port?", "k": 5}))
        for n, metadata in enumerate(['{"memory_id": "m7"}', "{'not': json"]):
            del span["attributes"][f"retrieval.documents.{n}.document.id"]
            span["attributes"][f"retrieval.documents.{n}.document.metadata"] = metadata
        (answer,) = read(lines(tmp_path / "a.jsonl", span)).answers
        assert answer.query == "which port?"
        assert [(row.memory_id, row.content) for row in answer.returned] == [("m7", "port 8765"), (None, "port 80")]


class TestQueryLog:
    def test_json_lines_with_bad_rows_reported(self, tmp_path: Path) -> None:
        path = lines(
            tmp_path / "log.jsonl",
            {
                "time": "2026-01-01T10:00:00Z",
                "query": "a",
                "results": ["m", {"id": "n"}, {"memory_id": "o", "score": 1}, "m"],
                "project": "p",
            },
            {"timestamp": "2026-01-02", "q": "b", "results": []},
            {"query": " ", "results": []},
            {"query": "c", "results": [None, "x"]},
            {"qid": 7, "query": "d", "results": ["x", "y"], "scores": [0.5, "high"]},
            {"query": "e", "results": ["x"], "scores": [1, 2]},
            {"qid": "7", "query": "f", "results": "x"},
            {"qid": "7", "query": "f", "results": []},
        )
        assert detect(path) == "query-log"
        parsed = read(path)
        assert [(answer.query, answer.project, rows(answer)) for answer in parsed.answers] == [
            ("a", "p", [("m", None), ("n", None), ("o", 1.0)]),
            ("b", None, []),
            ("c", None, [("x", None)]),
            ("d", None, [("x", 0.5), ("y", None)]),
        ]
        assert parsed.answers[3].qid == "7"
        assert [query.as_of for query in parsed.queries[:2]] == [
            datetime(2026, 1, 1, 10, tzinfo=UTC),
            datetime(2026, 1, 2, tzinfo=UTC),
        ]
        assert said(parsed) == [
            ":1: results[3]: 'm' stands already in row 1",
            ":3: query: is empty",
            ":4: results[0]: must be an object or an id, found null",
            ":5: results[1].score: must be a finite number, found 'high'; it has no score",
            ":6: scores: must be a list of 1 numbers, one a result, found 2",
            ":7: results: must be a list of memory ids, or of objects with an id",
            ":8: qid: '7' stands already in row 5",
        ]

    def test_csv_with_lists_in_either_form(self, tmp_path: Path) -> None:
        path = tmp_path / "log.csv"
        path.write_text(
            'time,query,results,scores\n2026-01-01,"a, b","[""m"", ""n""]","[2, 1]"\n,c,m; n,0.5;0.25\nlater,d,,\n,e,"[1",\n'
        )
        assert detect(path) == "query-log"
        parsed = read(path)
        assert [(answer.query, rows(answer)) for answer in parsed.answers] == [
            ("a, b", [("m", 2.0), ("n", 1.0)]),
            ("c", [("m", 0.5), ("n", 0.25)]),
        ]
        assert [(error.row, error.field) for error in parsed.errors] == [(4, "time"), (5, "results")]
        path.write_text("time;query\n2026-01-01;a, b\n")
        parsed = read(path, "query-log")
        assert ([query.query for query in parsed.queries], parsed.answers) == (["a, b"], ())
        assert parsed.notes == ("1 query: answer not recorded",)
        path.write_text("time,results\n1,2\n")
        with pytest.raises(InputError, match="no column query"):
            read(path, "query-log")


def test_what_is_no_log_is_not_taken_for_one(tmp_path: Path) -> None:
    for row in ({"qid": "q1", "query": "x"}, {"id": "m", "content": "x"}, {"answers": []}, {"results": ["a"]}):
        assert log_format(lines(tmp_path / "a.jsonl", row)) is None
    assert log_format(tmp_path / "none.jsonl") is None
    assert {name for name, form in FORMATS.items() if form.answers} >= {
        "cems-hook-events",
        "openinference-spans",
        "query-log",
    }


TEXT = "Releases reach the cluster through the deploy bot."
MEM0 = {"id": "e5", "memory": TEXT, "hash": "0f", "metadata": {"category": "infra"}, "user_id": "kim"}


def test_the_memory_of_the_mcp_server_is_a_memory_an_entity(write):
    """Lines as @modelcontextprotocol/server-memory 2026.8.31 wrote them; it keeps a relation to a name that is no entity."""
    rows = [
        {"type": "entity", "name": "Mira", "entityType": "person", "observations": ["Likes tea.", "Owns billing."]},
        {"type": "entity", "name": "harbor/api", "entityType": "service", "observations": []},
        {"type": "relation", "from": "Mira", "to": "harbor/api", "relationType": "works on"},
        {"type": "relation", "from": "Mira", "to": "nobody", "relationType": "knows"},
    ]
    graph = {
        "entities": [{k: v for k, v in row.items() if k != "type"} for row in rows[:2]],
        "relations": [{k: v for k, v in row.items() if k != "type"} for row in rows[2:]],
    }
    for path in (write("memory.jsonl", *rows), write("memory.json", *rows), write("graph.json", graph)):
        parsed = read(path)
        assert parsed.memories == (
            Memory("Mira", "Likes tea.\nOwns billing.", title="Mira", category="person"),
            Memory("harbor/api", "harbor/api", title="harbor/api", category="service"),
        )
        assert parsed.relations == (Relation("Mira", "harbor/api", "works on"),)
        assert [(error.field, error.reason) for error in parsed.errors] == [
            ("to", "no entity of the file is called 'nobody'")
        ]


@pytest.mark.parametrize(
    ("answer", "memory"),
    [
        ({"results": [MEM0], "relations": []}, Memory("e5", TEXT, category="infra", author="kim")),
        ([MEM0], Memory("e5", TEXT, category="infra", author="kim")),
        (
            [{"namespace": ["kim", "memories"], "key": "07", "value": {"text": TEXT}, "created_at": "2026-06-11"}],
            Memory("kim.memories/07", TEXT, project="kim.memories", created_at=datetime(2026, 6, 11, tzinfo=UTC)),
        ),
        (
            {"edges": [{"uuid": "e1", "fact": TEXT, "valid_at": "2025-01-01", "invalid_at": "2025-06-01"}]},
            Memory(
                "e1",
                TEXT,
                valid_from=datetime(2025, 1, 1, tzinfo=UTC),
                valid_until=datetime(2025, 6, 1, tzinfo=UTC),
            ),
        ),
        ({"passages": [{"id": "p", "text": TEXT, "tags": ["a"]}]}, Memory("p", TEXT, tags=("a",))),
        (
            [{"lc": 1, "kwargs": {"id": "d", "page_content": TEXT, "metadata": {"source": "s"}}}],
            Memory("d", TEXT, source_ref="s"),
        ),
        (
            {"result": {"points": [{"id": 7, "payload": {"data": TEXT, "user_id": "kim"}, "vector": [0.1]}]}},
            Memory("7", TEXT, author="kim"),
        ),
        (
            {"ids": ["c"], "documents": [TEXT], "metadatas": [{"title": "T"}], "embeddings": None},
            Memory("c", TEXT, title="T"),
        ),
    ],
)
def test_what_a_library_returns_is_imported_with_its_ids(write, answer, memory):
    parsed = read(write("all.json", answer))
    assert (parsed.format, parsed.memories, parsed.errors) == ("memory-records", (memory,), ())
    if isinstance(answer, list):
        assert read(write("all.jsonl", *answer)).memories == (memory,)


def test_an_answer_with_scores_is_no_memory(write):
    for answer in ({"results": [{**MEM0, "score": 0.9}]}, {"ids": [["a"]], "documents": [[TEXT]]}):
        with pytest.raises(InputError, match=r"what a query of (mem0|Chroma) found: fidelity FILE"):
            detect(write("found.json", answer))


def note(folder, name, *lines):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), encoding="utf-8")


def test_a_folder_of_notes_has_front_matter_paths_and_links(tmp_path):
    front = [
        "---",
        "title: Deploys",
        "type: note",
        "tags: [infra]",
        "permalink: main/deploys",
        "created: 2026-01-03",
        "updated: 2026-13-45",
    ]
    links = [
        "By the [[Bot|deploy bot]].",
        "",
        "- replaces [[by hand]] (in May)",
        "```",
        "[[Code]]",
        "```",
        "[[Nobody]]",
    ]
    note(tmp_path, "deploys.md", *front, "mood: calm", "---", *links)
    note(tmp_path, "old/By hand.md", "# Deploying by hand", "Mira does it.")
    note(tmp_path, "Bot.md", "It answers on chat.")
    note(
        tmp_path,
        "claude.md",
        "---",
        "name: style",
        "description: short",
        "metadata:",
        "  type: feedback",
        "---",
        "Be brief.",
    )
    note(tmp_path, "broken.md", "---", "a: [b", "---", "Kept.")
    note(tmp_path, "empty.md")
    note(tmp_path, ".trash/gone.md", "Gone.")
    [parsed] = read_path(tmp_path)
    assert {memory.id: (memory.title, memory.category) for memory in parsed.memories} == {
        "Bot": ("Bot", None),
        "broken": ("broken", None),
        "claude": ("style", "feedback"),
        "main/deploys": ("Deploys", "note"),
        "old/By hand": ("Deploying by hand", None),
    }
    deploys = next(memory for memory in parsed.memories if memory.id == "main/deploys")
    assert (deploys.content, deploys.tags) == ("\n".join(links), ("infra",))
    assert deploys.created_at == datetime(2026, 1, 3, tzinfo=UTC)
    assert parsed.relations == (
        Relation("main/deploys", "Bot", "links_to"),
        Relation("main/deploys", "old/By hand", "replaces"),
    )
    failed = [str(error).removeprefix(f"{tmp_path}/").split(":")[0] for error in parsed.errors]
    assert sorted(failed) == ["broken.md", "deploys.md", "empty.md"]
    assert [line.split(" is ")[0] for line in parsed.notes[:2]] == ["field 'description'", "field 'mood'"]
    assert parsed.notes[2] == "links that lead to no note: 1"


CHROMA_QUERY = EXPORTS["chroma"]
OF_QUERY, MEMORIES = EXPORTS["query"], EXPORTS["listed"]


def answered(document: object) -> list[tuple[str | None, float | None, str | None]]:
    recording = parse_recording(json.dumps(document))
    assert recording.errors == ()
    (answer,) = recording.answers
    return [(row.memory_id, row.score, row.content) for row in answer.returned]


@pytest.mark.parametrize("name", OF_QUERY)
def test_answer_of_a_query_is_compared_and_no_memory_unless_it_is_said(write, name: str) -> None:
    document, rows = OF_QUERY[name]
    assert answered(document) == list(map(tuple, rows))
    path = write("saved.json", json.dumps(document))
    if name in ("haystack", "langchain pairs"):  # {id, content} is a memory with a field more; a pair is no object
        return
    with pytest.raises(InputError, match=r"may be memories, or what a query.* found: fidelity FILE"):
        detect(path)
    parsed = read(path, "memory-records")
    assert parsed.errors == ()
    assert [(memory.id, memory.content) for memory in parsed.memories] == [(key, text) for key, _, text in rows]


@pytest.mark.parametrize("name", MEMORIES)
def test_what_was_listed_is_read_as_memories_and_as_an_answer(write, name: str) -> None:
    document, rows = MEMORIES[name]
    assert answered(document) == list(map(tuple, rows))
    parsed = read(write("saved.json", json.dumps(document)))
    assert (parsed.format, parsed.errors) == ("memory-records", ())
    assert [(memory.id, memory.content) for memory in parsed.memories] == [(key, text) for key, _, text in rows]


def rows_with(name: str, *values: float) -> str:
    return json.dumps([{"id": f"m{n}", "content": str(n), name: value} for n, value in enumerate(values)])


@pytest.mark.parametrize(
    ("name", "values", "scores", "note"),
    [
        ("distance", [0.1, 0.4], [-0.1, -0.4], "is smaller for what is nearer"),  # pgvector, LanceDB
        ("?column?", [0.1, 0.4], [-0.1, -0.4], "is smaller for what is nearer"),  # psql of a distance without a name
        ("distance", [0.9, 0.4], [0.9, 0.4], "falls from the first to the last result"),  # Milvus with COSINE
        ("score", [0.1, 0.4], [-0.1, -0.4], "rises from the first to the last result"),  # A-MEM, LangChain with Chroma
        ("score", [0.9, 0.4], [0.9, 0.4], ""),
        ("score", [0.4, 0.4], [0.4, 0.4], ""),
        ("score", [0.4, 0.9, 0.1], [0.4, 0.9, 0.1], ""),
        ("distance", [0.0], [0.0], "is smaller for what is nearer"),
    ],
)
def test_distance_is_told_from_a_score_by_its_course(name, values, scores, note):
    recording = parse_recording(rows_with(name, *values))
    returned = recording.answers[0].returned
    assert [row.score for row in returned] == scores
    assert [row.memory_id for row in returned] == [f"m{n}" for n in range(len(values))]
    assert len(recording.doubts) == bool(note) and note in "".join(recording.doubts)


def test_answer_to_several_queries_is_several_answers() -> None:
    several = {
        **CHROMA_QUERY,
        "ids": [["a"], ["b", "c"]],
        "distances": [[0.5], [0.25, 0.5]],
        "documents": None,
        "metadatas": None,
    }
    batch = {"result": [[{"id": 1, "score": 0.5}], [{"id": 2, "score": 0.25}, {"id": 3, "score": 0.0}]]}
    searches = {"responses": [{"hits": {"hits": [{"_id": "a", "_score": 2, "_source": {}}]}}, {"hits": {"hits": []}}]}
    for document, expected in (
        (several, {"1": ["a"], "2": ["b", "c"]}),
        (batch, {"1": ["1"], "2": ["2", "3"]}),
        (searches, {"1": ["a"], "2": []}),
    ):
        found = parse_recording(json.dumps(document)).answers
        assert {answer.qid: [row.memory_id for row in answer.returned] for answer in found} == expected


def hits(name: str, *values: float) -> list[dict[str, object]]:
    return [{"id": f"m{n}", "content": str(n), name: value} for n, value in enumerate(values)]


def in_every_shape(answers: list[list[dict[str, object]]]) -> dict[str, str]:
    """The same answers as JSON lines, a list of responses, a list of answers, and a recording."""
    responses = [{"query": f"q{n}", "results": rows} for n, rows in enumerate(answers)]
    recorded = {"answers": [{"qid": str(n), **each} for n, each in enumerate(responses)]}
    return {
        "lines": "\n".join(map(json.dumps, responses)),
        "responses": json.dumps(responses),
        "answers": json.dumps(answers),
        "recording": json.dumps(recorded),
    }


@pytest.mark.parametrize(
    ("name", "answers", "sign", "note"),
    [
        # pymilvus 3.0.2, COSINE: the cosine is in `distance`; one answer of a single hit has no course of its own.
        (
            "distance",
            [[0.8, 0.1], [0.5], [0.9, 0.9]],
            1,
            "distance falls from the first to the last result in 1 of 3 answers",
        ),
        ("distance", [[0.8, 0.1], [0.5, 0.2], [0.3, 0.4]], 1, "in 2 of 3 answers"),
        ("_distance", [[0.1, 0.8], [0.5]], -1, "_distance is smaller for what is nearer"),
        ("score", [[0.1, 0.8], [0.2, 0.3]], -1, "score rises from the first to the last result in 2 of 2 answers"),
        ("score", [[0.1, 0.8], [0.9, 0.3]], 1, ""),
        ("score", [[0.1, 0.8, 0.3], [0.1, 0.3]], 1, ""),
    ],
)
def test_sign_of_scores_is_that_of_all_answers_of_a_file(name, answers, sign, note):
    """pymilvus 3.0.2 and FalkorDB 4.16.3, run on 2026-11-29: the shape of a file says nothing of its numbers."""
    for shape, text in in_every_shape([hits(name, *values) for values in answers]).items():
        recording = parse_recording(text)
        read = [[row.score for row in answer.returned] for answer in recording.answers]
        assert read == [[sign * value for value in values] for values in answers], shape
        assert len(recording.doubts) == bool(note) and note in "".join(recording.doubts)


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (["m1", "1", "m2", "0.9312", "m3", "0.25"], [("m1", 1.0), ("m2", 0.9312), ("m3", 0.25)]),
        (["m1", 0.99, "m2", 0.5], [("m1", 0.99), ("m2", 0.5)]),
        (["7", "0.99", "8", "0.5"], [("7", 0.99), ("8", 0.5)]),
        ({"m1": 0.99, "m2": 0.5}, [("m1", 0.99), ("m2", 0.5)]),
        (["m1", "m2", "m3", "m4"], [("m1", None), ("m2", None), ("m3", None), ("m4", None)]),
        (["4", "3", "2", "1"], [("4", None), ("3", None), ("2", None), ("1", None)]),
        (["a", "0.5", "b", "0.9"], [("a", None), ("0.5", None), ("b", None), ("0.9", None)]),
    ],
)
def test_ids_and_scores_of_redis_are_pairs(document: object, found: list[tuple[str, float | None]]) -> None:
    """Redis 8.2.3 and redis-py 8.1.0, run on 2026-11-29: VSIM … WITHSCORES."""
    assert [(key, score) for key, score, _ in answered(document)] == found
