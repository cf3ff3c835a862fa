"""Spans of a traced pipeline: one query with its lists and stages, whatever instrumentor wrote them, and every contradiction named.

What OpenInference's instrumentors wrote (tests/recordings/spans/make.py): every retrieval once, with its words, ids and scores.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from cems_workbench.formats import detect, read
from workbench_tools.exports import spans_of
from workbench_tools.spans import read_span
from workbench_tools.traced import TracedQuery, queries_of

Hits = list[tuple[str, float | None]]


def documents(prefix: str, hits: Hits) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for n, (key, score) in enumerate(hits):
        flat[f"{prefix}.{n}.document.id"] = key
        flat[f"{prefix}.{n}.document.content"] = f"text of {key}"
        if score is not None:
            flat[f"{prefix}.{n}.document.score"] = score
    return flat


def span(name: str, at: int, parent: str | None = "root", /, **attributes: Any) -> dict[str, Any]:
    """A span of one millisecond that begins `at` milliseconds into its trace; attributes with `__` for dots."""
    fields = {key: attributes.pop(key) for key in ("status_code", "status_message", "trace_id") if key in attributes}
    return {
        "trace_id": "t1",
        "span_id": name,
        "parent_id": parent,
        "name": name,
        "start_time": f"2026-03-01T12:00:00.{at:03d}000+00:00",
        "end_time": f"2026-03-01T12:00:00.{at + 1:03d}000+00:00",
        "status_code": "OK",
        "attributes": {key.replace("__", "."): value for key, value in attributes.items()},
    } | fields


def retriever(name: str, at: int, hits: Hits, parent: str | None = "root", **more: Any) -> dict[str, Any]:
    kind = {"openinference__span__kind": "RETRIEVER", "input__value": "which port?"}
    return span(name, at, parent, **{**kind, **documents("retrieval.documents", hits), **more})


def stage(name: str, at: int, kind: str, hits: Hits, parent: str = "root", **more: Any) -> dict[str, Any]:
    given = {"openinference__span__kind": "CHAIN", "workbench__stage__name": name, "workbench__stage__kind": kind}
    own = {**given, "workbench__stage__results": len(hits), **documents("retrieval.documents", hits)}
    return span(name, at, parent, **{**own, **more})


def reranker(name: str, at: int, read: Hits, hits: Hits, parent: str = "root", **more: Any) -> dict[str, Any]:
    kind = {"openinference__span__kind": "RERANKER", "reranker__query": "which port?"}
    inputs, outputs = documents("reranker.input_documents", read), documents("reranker.output_documents", hits)
    return span(name, at, parent, **{**kind, **inputs, **outputs, **more})


ROOT = span("root", 0, None, openinference__span__kind="CHAIN", input__value="which port?")
ROOT["end_time"] = "2026-03-01T12:00:00.999000+00:00"
BM25: Hits = [("a", 9.0), ("b", 8.0), ("c", 7.0)]
FAISS: Hits = [("d", 0.9), ("a", 0.8)]
FUSED: Hits = [("a", 0.5), ("d", 0.4), ("b", 0.3), ("c", 0.2)]
HYBRID = [
    ROOT,
    retriever("bm25", 1, BM25),
    retriever("faiss", 2, FAISS),
    stage("rrf", 3, "fusion", FUSED),
    reranker("cross-encoder", 4, FUSED[:3], [("b", 0.9), ("a", 0.1)]),
]


def converted(*spans: dict[str, Any]) -> list[TracedQuery]:
    rows = [read_span(i, one) for i, row in enumerate(spans, 1) for _, one in spans_of(row)]
    return list(queries_of(rows))


def names(query: TracedQuery) -> tuple[list[str], list[tuple[str, str]]]:
    return [one.name for one in query.recorded.lists], [(s.name, s.kind) for s in query.recorded.stages]


def test_lists_and_stages_are_in_the_order_in_which_they_ran() -> None:
    (query,) = converted(*HYBRID)
    assert query.query == "which port?" and query.asked_at is not None
    assert names(query) == (["bm25", "faiss"], [("rrf", "fusion"), ("cross-encoder", "rerank")])
    assert query.recorded.stages[0].input is None
    assert query.recorded.stages[1].input == (("a", 0.5), ("d", 0.4), ("b", 0.3))
    assert query.recorded.results == (("b", 0.9), ("a", 0.1))
    assert not query.warnings
    assert query.contents["d"].content == "text of d"


def test_another_text_than_the_query_is_kept_of_lists_and_rerankers() -> None:
    def asked(text: str) -> dict[str, str]:
        lists = [retriever("bm25", 1, BM25, input__value=text), HYBRID[2]]
        (query,) = converted(ROOT, *lists, HYBRID[3], reranker("model", 4, FUSED, FUSED, reranker__query=text))
        return query.asked

    assert asked("whic") == {"bm25": "whic", "model": "whic"}
    assert not asked(" Which  PORT?") and not asked("query: which port?")


def test_the_order_of_the_file_does_not_matter() -> None:
    (expected,) = converted(*HYBRID)
    for seed in range(5):
        shuffled = random.Random(seed).sample(HYBRID, len(HYBRID))
        (query,) = converted(*shuffled)
        assert query.recorded == expected.recorded


def test_otlp_and_nested_attributes_are_read_alike() -> None:
    (expected,) = converted(*HYBRID)

    def value(item: Any) -> dict[str, Any]:
        if isinstance(item, float):
            return {"doubleValue": item}
        return {"intValue": str(item)} if isinstance(item, int) else {"stringValue": item}

    def exported(one: dict[str, Any]) -> dict[str, Any]:
        at = 1_772_366_400_000_000_000
        begun, ended = (int(one[key][20:23]) for key in ("start_time", "end_time"))
        if one is ROOT:
            ended = 1000
        return {
            "traceId": "t1",
            "spanId": one["span_id"],
            "parentSpanId": one["parent_id"] or "",
            "name": one["name"],
            "startTimeUnixNano": str(at + begun * 1_000_000),
            "endTimeUnixNano": str(at + ended * 1_000_000),
            "attributes": [{"key": key, "value": value(item)} for key, item in one["attributes"].items()],
            "status": {},
        }

    (query,) = converted({"resourceSpans": [{"scopeSpans": [{"spans": list(map(exported, HYBRID))}]}]})
    assert (query.recorded, query.asked_at) == (expected.recorded, expected.asked_at)

    def nested(one: dict[str, Any]) -> dict[str, Any]:
        tree: dict[str, Any] = {}
        for key, item in one["attributes"].items():
            at = tree
            *path, last = key.split(".")
            for part in path:
                at = at.setdefault(part, {})
            at[last] = item
        return one | {"attributes": tree}

    (query,) = converted(*map(nested, HYBRID))
    assert query.recorded == expected.recorded


def test_a_retriever_around_another_is_a_stage_only_if_it_returns_something_else() -> None:
    """LlamaIndex records a retriever twice; LangChain's ensemble is a retriever around its lists."""
    twice = [ROOT, retriever("outer", 1, BM25), retriever("inner", 1, BM25, "outer"), reranker("r", 4, BM25, BM25[:1])]
    (query,) = converted(*twice)
    assert names(query) == (["inner"], [("r", "rerank")])
    ensemble = [
        retriever("ensemble", 0, FUSED, None),
        retriever("bm25", 1, BM25, "ensemble"),
        retriever("faiss", 2, FAISS, "ensemble"),
    ]
    (query,) = converted(*ensemble)
    assert names(query) == (["bm25", "faiss"], [("ensemble", "fusion")])
    (query,) = converted(retriever("compressed", 0, BM25[1:], None), retriever("base", 1, BM25, "compressed"))
    assert names(query) == (["base"], [("compressed", "other")])


def test_a_span_within_the_same_call_or_written_twice_is_no_contradiction() -> None:
    """LlamaIndex's `_retrieve` has no documents; an exporter that tries again writes a span again."""
    silent = span("_retrieve", 1, "bm25", openinference__span__kind="RETRIEVER", input__value="which port?")
    (query,) = converted(*HYBRID, silent, HYBRID[2])
    assert names(query)[0] == ["bm25", "faiss"] and not query.warnings


def test_branches_keep_their_own_input() -> None:
    spans = [
        ROOT,
        retriever("bm25", 1, BM25),
        retriever("faiss", 2, FAISS),
        reranker("words", 3, BM25, BM25[:2]),
        stage("join", 4, "fusion", [("a", 1.0), ("d", 0.5), ("b", 0.2)]),
    ]
    (query,) = converted(*spans)
    words, join = query.recorded.stages
    assert [key for key, _ in words.input or ()] == ["a", "b", "c"]
    assert sorted(key for key, _ in join.input or ()) == ["a", "b", "d"] and join.joined
    assert not query.warnings


def test_an_agent_asks_one_query_for_each_tool_call() -> None:
    agent = span("root", 0, None, openinference__span__kind="CHAIN", input__value="long talk")
    tools = [span(name, i, openinference__span__kind="TOOL") for i, name in enumerate(("first", "second"), 1)]
    found = converted(
        agent, *tools, *(retriever(f"r{i}", i, BM25, name) for i, name in enumerate(("first", "second"), 1))
    )
    assert [names(query) for query in found] == [(["r1"], [("results", "other")]), (["r2"], [("results", "other")])]


def test_without_documents_of_its_own_a_query_returned_what_its_last_stage_did() -> None:
    cut = documents("retrieval.documents", [("b", None)])
    root = ROOT | {"attributes": ROOT["attributes"] | cut}
    (query,) = converted(root, *HYBRID[1:])
    assert names(query)[1][-1] == ("root", "other") and query.recorded.results == (("b", None),)
    (query,) = converted(ROOT, retriever("bm25", 1, BM25))
    assert names(query) == (["bm25"], [("root", "other")]) and [key for key, _ in query.recorded.results] == ["a", "b", "c"]
    (query,) = converted(ROOT, retriever("bm25", 1, BM25), retriever("faiss", 2, FAISS))
    assert query.recorded.results == () and "what it returned is unknown" in query.warnings["root"][0]


@pytest.mark.parametrize(
    ("spans", "stage_name", "said"),
    [
        (
            [*HYBRID[:3], stage("rrf", 3, "fusion", [("z", 0.6), *FUSED])],
            "rrf",
            "1 candidate that no list brought, such as z",
        ),
        (
            [*HYBRID[:4], reranker("r", 4, [("z", 0.1), *FUSED], FUSED)],
            "r",
            "1 candidate of its input that no list brought, such as z",
        ),
        (
            [*HYBRID[:4], reranker("r", 4, FUSED[:2], [("c", 0.9), ("a", 0.1)])],
            "r",
            "1 candidate not among its input, such as c",
        ),
        (
            [*HYBRID[:3], stage("rrf", 3, "fusion", [("a", 0.1), ("d", 0.4), ("b", 0.3)])],
            "rrf",
            "its ranks are not those of its scores: a (0.1) is before d (0.4)",
        ),
        (
            [*HYBRID[:3], stage("rrf", 3, "fusion", FUSED, parent="gone")],
            "lists",
            "rrf: the span around it is not in the file",
        ),
        (
            [*HYBRID[:4], reranker("r", 4, FUSED, [], status_code="ERROR", status_message="TimeoutError: 30 s\nlater")],
            "r",
            "ended in an error (TimeoutError: 30 s later)",
        ),
        (
            [*HYBRID[:2], retriever("faiss", 2, [], status_code="ERROR"), *HYBRID[3:]],
            "lists",
            "faiss: ended in an error",
        ),
        ([*HYBRID[:3], stage("rrf", 3, "fusion", [*FUSED, ("a", 0.1)])], "lists", "rrf: a is in it twice"),
        (
            [*HYBRID[:4], stage("cut", 5, "filter", [], workbench__stage__results=None)],
            "cut",
            "recorded no results: what it read is taken as what it returned",
        ),
        ([ROOT, reranker("r", 4, FUSED, FUSED[:2])], "lists", "no list was traced: what r read is taken as one"),
        ([*HYBRID, retriever("bm25", 6, FAISS)], "lists", "bm25: two spans have its id; the first in the file counts"),
    ],
)
def test_a_contradiction_is_taken_and_named_at_its_stage(spans, stage_name, said):
    (query,) = converted(*spans)
    assert any(line.startswith(said) for line in query.warnings[stage_name]), query.warnings


@pytest.mark.parametrize("by", ["metadata", "text"])
def test_parents_of_what_was_found_are_no_contradiction(by: str) -> None:
    """langchain#17589, LazyMind#281: children are searched and their parents returned."""
    hits: Hits = [("p1_0", 0.9), ("p2_0", 0.8), ("p1_1", 0.7)]
    search, parents = retriever("children", 1, hits), retriever("parents", 2, [("p1", None), ("p2", None)], None)
    search["parent_id"], parents["span_id"] = "parents", "parents"
    for i, (key, _) in enumerate(hits):
        if by == "metadata":
            search["attributes"][f"retrieval.documents.{i}.document.metadata"] = json.dumps({"doc_id": key[:2]})
    for i, text in enumerate(("text of p1_0 and text of p1_1", "text of p2_0, and more")):
        parents["attributes"][f"retrieval.documents.{i}.document.content"] = text if by == "text" else f"parent {i}"
    (query,) = converted(search, parents)
    how = "whose metadata names them" if by == "metadata" else "whose text is in theirs"
    (line,) = query.remarks["parents"]
    assert not query.warnings and query.recorded.results == (("p1", None), ("p2", None))
    assert line.startswith(f"2 candidates that it returned are the parents of 3 of its input, {how}, such as p1 of p1_")


def test_spans_in_a_circle_or_nested_too_deeply_are_read_all_the_same() -> None:
    around = [retriever("one", 1, BM25, "two"), retriever("two", 2, FAISS, "one")]
    assert len(converted(*around)) >= 1
    chain = [
        ROOT,
        *(span(f"s{i}", 1, f"s{i - 1}" if i else "root") for i in range(2000)),
        retriever("r", 2, BM25, "s1999"),
    ]
    assert sum(len(query.recorded.lists) for query in converted(*chain)) == 1


def test_genai_and_json_texts_are_documents() -> None:
    hits = json.dumps([{"id": "m01", "score": 0.91}, {"id": "m07", "score": 0.4}])
    search = span("s", 1, None, gen_ai__operation__name="retrieval", gen_ai__retrieval__query__text="how?")
    search["attributes"]["gen_ai.retrieval.documents"] = hits
    (query,) = converted(search)
    assert (query.query, query.recorded.results) == ("how?", (("m01", 0.91), ("m07", 0.4)))
    memory = span("s", 1, None, gen_ai__operation__name="search_memory", gen_ai__memory__query__text="how?")
    memory["attributes"]["gen_ai.memory.records"] = [{"id": "m05", "content": "half up", "score": 0.8}]
    (query,) = converted(memory)
    assert query.recorded.results == (("m05", 0.8),) and query.contents["m05"].content == "half up"
    plain = retriever("r", 1, [], None)
    plain["attributes"]["retrieval.documents"] = json.dumps([{"document.id": "m01", "document.score": 0.9}])
    plain["attributes"]["input.value"] = json.dumps({"query_bundle": {"query_str": "how?"}})
    (query,) = converted(plain)
    assert (query.query, query.recorded.results) == ("how?", (("m01", 0.9),))


def test_a_file_with_stages_is_one_of_traces_and_plain_retrievers_are_a_log(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in HYBRID))
    assert detect(path) == "openinference-traces"
    parsed = read(path)
    (answer,) = parsed.answers
    assert [row.memory_id for row in answer.returned] == ["b", "a"]
    assert set(answer.lists) == {"bm25", "faiss"} and len(parsed.memories) == 4
    path.write_text("".join(f"{json.dumps(one)}\n" for one in (ROOT, HYBRID[1], HYBRID[2])))
    assert detect(path) == "openinference-spans" and len(read(path).answers) == 2
    parsed = read(path, "openinference-traces")
    # No stage joined its lists: what it returned is unknown, which is no empty answer.
    assert (len(parsed.queries), parsed.answers) == (1, ()) and "1 query: answer not recorded" in parsed.notes


def cut(row: dict[str, Any], dropped: int, output: Any = None) -> dict[str, Any]:
    """The span as the SDK of Python keeps it at its limit: without its first attributes."""
    kept = dict(list(row["attributes"].items())[dropped:])
    kept |= {"openinference.span.kind": "RETRIEVER"} | ({} if output is None else {"output.value": json.dumps(output)})
    return row | {"attributes": kept, "droppedAttributesCount": dropped}


def test_documents_of_a_span_that_was_cut_keep_their_ranks_and_are_said_to_be_missing() -> None:
    """opentelemetry-sdk 1.45.2 and openinference-instrumentation-langchain 0.1.80, run on 2026-11-29: 128 attributes."""
    hits: Hits = [(f"m{n}", None) for n in range(1, 41)]
    (query,) = converted(ROOT, cut(retriever("R", 1, hits), 2 + 2 * 7))
    (found,) = query.recorded.lists
    assert [key for key, _ in found.hits] == [
        *(f"not in the trace: {n} of R" for n in range(1, 8)),
        *(k for k, _ in hits[7:]),
    ]
    said = "7 of its 40 documents are missing in the file: 16 attributes of the span were dropped at the tracer's limit, 128 by default"
    assert found.lost == said and query.warnings == {"lists": [f"R: {said}"]}
    # A half of a document keeps its place; without the count a gap in the numbers says it.
    half = cut(retriever("R", 1, hits), 2 + 2 * 7 + 1)
    (query,) = converted(ROOT, {key: value for key, value in half.items() if key != "droppedAttributesCount"})
    assert [key for key, _ in query.recorded.lists[0].hits][7].startswith("traced-")
    assert "numbers between those of its documents are left out" in query.recorded.lists[0].lost


def test_documents_of_a_span_that_was_cut_are_in_its_output() -> None:
    """openinference-instrumentation-llama-index 4.6.1, run on 2026-11-29: the output has every id, an inner call the words."""
    hits: Hits = [(f"m{n}", 1 / n) for n in range(1, 71)]
    output = [f"<NodeWithScore(node=TextNode(id_={key}), score={score})>" for key, score in hits]
    whole = cut(retriever("retrieve", 1, hits, None), 86, output)
    inner = retriever("_retrieve", 1, [], "retrieve")
    inner["attributes"]["input.value"] = '{"q": {"query_str": "which port?", "embedding": null}}'
    (query,) = converted(whole, inner)
    assert query.query == "which port?" and not query.warnings
    assert [key for key, _ in query.recorded.lists[0].hits] == [key for key, _ in hits]


def test_query_of_a_log_of_cut_spans_is_that_of_the_span_around(tmp_path: Path) -> None:
    hits: Hits = [(f"m{n}", None) for n in range(1, 41)]
    path = tmp_path / "spans.jsonl"
    path.write_text("\n".join(map(json.dumps, [cut(retriever("R", 1, hits), 16), ROOT])), "utf-8")
    parsed = read(path, "openinference-spans")
    assert [query.query for query in parsed.queries] == ["which port?"] and not parsed.errors
    assert [row.memory_id for row in parsed.answers[0].returned][6:9] == ["not in the trace: 7", "m8", "m9"]
    assert "row 1: 7 of its 40 documents are missing in the file: 16 attributes" in parsed.notes[1]


def masked(name: str, at: int, question: str | None) -> dict[str, Any]:
    """A span as logfire 5.4.0 wrote it: values that match its patterns are replaced, and named."""
    mask = "[Scrubbed due to 'session']"
    gone = ["retrieval.documents.0.document.id", "retrieval.documents.0.document.content"]
    row = retriever(name, at, [("m1", None), ("m2", None)], None, trace_id=name)
    row["attributes"] |= dict.fromkeys(gone, mask) | {"input.value": question or mask}
    paths = [*gone, *(["input.value"] if question is None else [])]
    row["attributes"]["logfire.scrubbed"] = json.dumps(
        [{"path": ["attributes", path], "matched_substring": "session"} for path in paths]
    )
    return row


def test_a_mask_of_logfire_is_no_query_and_no_id(tmp_path: Path) -> None:
    """logfire 5.4.0, run on 2026-11-29: queries and ids that look like secrets are replaced before they leave."""
    rows = [masked("one", 1, None), masked("two", 2, None), masked("three", 3, "what is for lunch")]
    (query,) = converted(*rows)
    assert query.query == "what is for lunch"
    assert [key for key, _ in query.recorded.lists[0].hits] == ["not in the trace: 1 of three", "m2"]
    assert "logfire masked retrieval.documents.0.document.id ('session')" in query.warnings["lists"][0]
    path = tmp_path / "spans.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    for form in ("openinference-spans", "openinference-traces"):
        parsed = read(path, form)
        assert [each.query for each in parsed.queries] == ["what is for lunch"]
        assert "logfire masked" in str(parsed.errors[0]) and "input.value ('session')" in str(parsed.errors[0])
    within = masked("one", 1, json.dumps({"query": "[Scrubbed due to 'auth']", "k": 5}))
    within["attributes"]["logfire.scrubbed"] = (
        '[{"path": ["attributes", "input.value", "query"], "matched_substring": "auth"}]'
    )
    assert read_span(1, within).query is None
    assert read_span(1, masked("one", 1, "why [Scrubbed due to it]?")).query == "why [Scrubbed due to it]?"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"q": {"query_str": "which port?", "image_path": None, "embedding": None}}, "which port?"),
        ({"bundle": {"query_str": "which port?", "embedding": "<2-dimensional vector>"}}, "which port?"),
        ({"q": {"vector": [0.1]}}, None),
    ],
)
def test_query_bundle_is_known_whatever_its_parameter_is_called(given: Any, words: str | None) -> None:
    """openinference-instrumentation-llama-index 4.6.1, run on 2026-11-29: a retriever may name it as it likes."""
    row = retriever("r", 1, [("m1", 1.0)])
    row["attributes"]["input.value"] = json.dumps(given)
    assert read_span(1, row).query == words


RECORDINGS = Path(__file__).parents[2] / "recordings" / "spans"
RELEASES, INVOICES = "how do releases reach the cluster", "how are invoices rounded"
BOTH = ["m01", "m07"]
EXPECTED = {
    "langchain": [(RELEASES, BOTH), (INVOICES, [])],
    "llama_index": [
        (RELEASES, BOTH),
        (INVOICES, BOTH),
        ("which port", BOTH),
        (RELEASES, BOTH),
        ("and how are they rolled back", BOTH),
    ],
    "haystack": [(RELEASES, BOTH), (INVOICES, []), ("rollback", ["m07"])],
    "dspy": [(RELEASES, BOTH), ("which command undoes a release", BOTH)],
}
"""By recording (words, ids returned); the empty lists are stated by `retrieval.documents` of LangChain, `output.value` of Haystack."""
SAID = {
    "langchain": [":3: status: the retrieval ended in an error and answered nothing"],
    "haystack": [
        ":3: input.value: is an embedding and has no words of a query; looked for query, input, question, query_str; "
        "2 spans have none, this is the first"
    ],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_every_retrieval_is_a_query_with_what_came_back(name: str) -> None:
    path = RECORDINGS / f"{name}.jsonl"
    assert detect(path) == "openinference-spans"
    parsed = read(path)
    answers = {answer.qid: answer for answer in parsed.answers}
    assert [
        (query.query, sorted(row.memory_id or "" for row in answers[query.qid].returned)) for query in parsed.queries
    ] == EXPECTED[name]
    assert [str(error).removeprefix(parsed.source) for error in parsed.errors] == SAID.get(name, [])
    assert all(row.score is not None for answer in parsed.answers for row in answer.returned) or name == "langchain"


@pytest.mark.parametrize("name", ["langchain", "llama_index", "dspy"])
def test_as_traces_they_have_the_same_queries_and_results(name: str) -> None:
    rows = [json.loads(line) for line in (RECORDINGS / f"{name}.jsonl").read_text("utf-8").splitlines()]
    traces: dict[str, list] = {}
    for n, row in enumerate(rows, 1):
        for _, span in spans_of(row):
            one = read_span(n, span)
            traces.setdefault(one.trace_id, []).append(one)
    found = [query for spans in traces.values() for query in queries_of(spans)]
    failed = [("which port", [])] if name == "langchain" else []
    apart = name == "haystack"  # its Pipeline.run around two retrievers is the query there
    assert (
        apart or [(query.query, sorted(key for key, _ in query.recorded.results)) for query in found] == EXPECTED[name] + failed
    )
    assert all(not query.recorded.unknown for query in found) or apart
