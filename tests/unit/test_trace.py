"""`cems_trace`: what it records, and that the traced pipeline does not notice."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_trace import sink
from cems_trace.documents import Document, UnreadableResultError, read_documents
from cems_workbench import trace
from tests.event_loop import run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _warnings_appear_again() -> None:
    sink._warned.clear()


def spans_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def ids_of(span: dict[str, Any], place: str = "retrieval.documents") -> list[str]:
    found = {
        int(name.split(".")[2]): value
        for name, value in span["attributes"].items()
        if name.startswith(f"{place}.") and name.endswith(".document.id")
    }
    return [found[n] for n in sorted(found)]


@trace.stage("bm25")
def bm25(query: str) -> list[tuple[str, float]]:
    return [("m1", 7.5), ("m2", 3.0)]


@trace.stage("dense", kind="list")
async def dense(query: str) -> list[dict[str, Any]]:
    await asyncio.sleep(0)
    return [{"id": "m3", "score": 0.9, "text": "The port is 5433."}, {"id": "m1", "score": 0.5, "text": "x"}]


@trace.stage("rerank", kind="rerank")
def rerank(query: str, candidates: list[str]) -> list[tuple[str, float]]:
    return [(one, 1.0 / (n + 1)) for n, one in enumerate(sorted(candidates))]


@trace.retrieval
async def retrieve(question: str) -> list[tuple[str, float]]:
    listed = await dense(question)
    with trace.stage("fuse", kind="fusion") as fused:
        order = [one for one, _ in bm25(question)] + [one["id"] for one in listed]
        fused.documents(dict.fromkeys(order, 0.5))
    return rerank(question, order[1:])


def test_spans_hold_the_tree_the_query_and_every_ranking(tmp_path: Path) -> None:
    with trace.to(tmp_path / "trace.jsonl"):
        run(retrieve("which port"))
    spans = {span["name"]: span for span in spans_of(tmp_path / "trace.jsonl")}
    assert list(spans) == ["dense", "bm25", "fuse", "rerank", "retrieve"], "in the order of their ends, the root last"
    root, fused, reranked = spans["retrieve"], spans["fuse"], spans["rerank"]
    assert {span["trace_id"] for span in spans.values()} == {root["trace_id"]}
    assert (root["parent_id"], fused["parent_id"], spans["bm25"]["parent_id"]) == (
        None,
        root["span_id"],
        fused["span_id"],
    )
    assert all(span["attributes"]["input.value"] == "which port" for span in spans.values())
    assert all(span["start_time"] <= span["end_time"] and span["status_code"] == "OK" for span in spans.values())
    kinds = [span["attributes"]["openinference.span.kind"] for span in spans.values()]
    assert kinds == ["RETRIEVER", "RETRIEVER", "CHAIN", "RERANKER", "CHAIN"]
    assert ids_of(spans["bm25"]) == ["m1", "m2"]
    assert spans["bm25"]["attributes"]["retrieval.documents.0.document.score"] == 7.5
    assert spans["dense"]["attributes"]["retrieval.documents.0.document.content"] == "The port is 5433."
    assert ids_of(fused) == ["m1", "m2", "m3"]
    assert ids_of(reranked, "reranker.input_documents") == ["m2", "m3", "m1"]
    assert ids_of(reranked, "reranker.output_documents") == ids_of(root) == ["m1", "m2", "m3"]


def test_input_is_written_only_where_it_is_not_the_output_before(tmp_path: Path) -> None:
    @trace.stage("scope", kind="filter")
    def scope(candidates: list[str]) -> list[str]:
        return candidates[:1]

    with trace.to(tmp_path / "trace.jsonl"), trace.retrieval(query="q"):
        scope([one for one, _ in bm25("q")])
        scope(["m9", "m8"])
    first, second = (span for span in spans_of(tmp_path / "trace.jsonl") if span["name"] == "scope")
    assert ids_of(first, "workbench.stage.input") == []
    assert [second["attributes"][f"workbench.stage.input.{n}.document.id"] for n in (0, 1)] == ["m9", "m8"]


RANKING = st.lists(st.tuples(st.text(min_size=1), st.floats(allow_nan=False, allow_infinity=False)), min_size=1)


@given(RANKING)
def test_every_form_of_results_is_read_alike(ranking: list[tuple[str, float]]) -> None:
    plain = [Document(one, score) for one, score in ranking]
    assert read_documents(ranking) == plain
    assert read_documents([[one, score] for one, score in ranking]) == plain
    assert read_documents({"id": one, "score": score} for one, score in ranking) == plain
    assert read_documents([SimpleNamespace(id=one, score=score) for one, score in ranking]) == plain
    nodes = [SimpleNamespace(node=SimpleNamespace(node_id=one), score=score) for one, score in ranking]
    assert read_documents(nodes) == plain
    assert (
        read_documents([(SimpleNamespace(id=None, metadata={"id": one}), np.float64(score)) for one, score in ranking])[
            0
        ].score
        == (ranking[0][1])
    )
    assert read_documents([(score, one) for one, score in ranking], key=lambda pair: pair[::-1]) == plain
    frame = pd.DataFrame(ranking, columns=["docno", "score"])
    assert read_documents(frame) == plain
    assert [one.id for one in read_documents([one for one, _ in ranking])] == [one.id for one in plain]
    assert read_documents(dict(ranking)) == [Document(one, score) for one, score in dict(ranking).items()]


@pytest.mark.parametrize(
    "results", [[(0.9, "m1")], [0.5], [None], "m1", 3, [["a", "b"]], [{"score": 1}], {"a": "b"}, [object()]]
)
def test_results_without_ids_are_refused(results: Any) -> None:
    with pytest.raises(UnreadableResultError):
        read_documents(results)


def test_text_without_id_is_named_by_its_digest() -> None:
    twice = [SimpleNamespace(page_content="same", metadata={}), SimpleNamespace(page_content="same", metadata={})]
    first, second = read_documents(twice)
    assert first.id == second.id and first.id.startswith("sha256:")


def test_text_is_written_once_per_query_or_never(tmp_path: Path) -> None:
    def search() -> None:
        with trace.retrieval(query="q") as root, trace.stage("list") as listed:
            listed.documents([{"id": "a", "text": "text of a", "metadata": {"year": 2026}}])
            root.documents([{"id": "a", "text": "text of a"}])

    with trace.to(tmp_path / "with.jsonl"):
        search()
        search()
    with trace.to(tmp_path / "without.jsonl", texts=False):
        search()
    assert (tmp_path / "with.jsonl").read_text().count("text of a") == 2
    assert "text of a" not in (tmp_path / "without.jsonl").read_text()
    assert "2026}" not in (tmp_path / "without.jsonl").read_text()


def test_generator_is_recorded_as_it_is_consumed(tmp_path: Path) -> None:
    inner: list[object] = []

    @trace.stage("stream", kind="list")
    def stream(query: str) -> Iterator[str]:
        inner.append(bm25(query))
        yield "a"
        yield "b"
        raise AssertionError("nobody asks for a third")

    @trace.stage("lazy", kind="filter")
    def lazy(candidates: Iterator[str]) -> Iterator[str]:
        return filter(lambda one: one != "a", candidates)

    with trace.to(tmp_path / "trace.jsonl"), trace.retrieval(query="q") as root:
        results = lazy(stream("q"))
        assert next(results) == "b"
        with trace.stage("outside"):
            pass
        results.close()  # type: ignore[attr-defined]
        root.documents(["b"])
    spans = {span["name"]: span for span in spans_of(tmp_path / "trace.jsonl")}
    assert ids_of(spans["stream"]) == ["a", "b"]
    assert ids_of(spans["lazy"]) == ["b"]
    assert spans["bm25"]["parent_id"] == spans["stream"]["span_id"], "what runs within it is below it"
    assert spans["outside"]["parent_id"] == spans["retrieval"]["span_id"], "what runs between two results is not"


def test_generator_keeps_what_is_sent_thrown_and_returned(tmp_path: Path) -> None:
    @trace.stage("talk", kind="list")
    def talk() -> Any:
        heard = yield "a"
        try:
            yield heard
        except KeyError:
            yield "c"
        return "end"

    for path in (tmp_path / "trace.jsonl", None):
        if path:
            trace.start(path)
        source = talk()
        assert (next(source), source.send("b"), source.throw(KeyError())) == ("a", "b", "c")
        with pytest.raises(StopIteration) as end:
            next(source)
        assert end.value.value == "end"
        trace.stop()
    (span,) = spans_of(tmp_path / "trace.jsonl")
    assert ids_of(span) == ["a", "b", "c"]


def test_async_generator_keeps_what_is_sent_and_thrown(tmp_path: Path) -> None:
    @trace.stage("talk", kind="list")
    async def talk() -> Any:
        heard = yield "a"
        try:
            yield heard
        except KeyError:
            yield "c"

    async def listen() -> tuple[str, str, str]:
        source = talk()
        heard = (await anext(source), await source.asend("b"), await source.athrow(KeyError()))
        assert [one async for one in source] == []
        return heard

    assert run(listen()) == ("a", "b", "c")
    with trace.to(tmp_path / "trace.jsonl"):
        assert run(listen()) == ("a", "b", "c")
    (span,) = spans_of(tmp_path / "trace.jsonl")
    assert ids_of(span) == ["a", "b", "c"]


def test_methods_of_every_kind_are_decorated(tmp_path: Path) -> None:
    class Retriever:
        @trace.stage("plain")
        def plain(self, query: str) -> list[str]:
            return [query]

        @trace.stage("static")
        @staticmethod
        def static(query: str) -> list[str]:
            return [query]

        @trace.stage("class")
        @classmethod
        def of_class(cls, query: str) -> list[str]:
            return [query, cls.__name__]

    one = Retriever()
    with trace.to(tmp_path / "trace.jsonl"):
        assert [one.plain("q"), one.static("q"), one.of_class("q")] == [["q"], ["q"], ["q", "Retriever"]]
    assert [span["attributes"]["input.value"] for span in spans_of(tmp_path / "trace.jsonl")] == ["q"] * 3
    with pytest.raises(ValueError, match="Retriever is a class"):
        trace.stage("x")(Retriever)


async def twenty_queries() -> None:
    @trace.stage("stream", kind="list")
    async def stream(query: str) -> AsyncIterator[str]:
        for one in ("a", "b"):
            await asyncio.sleep(0)
            yield f"{query} {one}"

    @trace.retrieval
    async def ask(query: str) -> list[str]:
        rows, _ = await asyncio.gather(dense(query), asyncio.to_thread(bm25, query))
        return [one async for one in stream(query)] + [row["id"] for row in rows]

    await asyncio.gather(*(ask(f"q{n}") for n in range(20)))


def test_tasks_do_not_mix(tmp_path: Path) -> None:
    with trace.to(tmp_path / "trace.jsonl"):
        run(twenty_queries())
    check_unmixed(spans_of(tmp_path / "trace.jsonl"), 20, 4)


def test_threads_do_not_mix(tmp_path: Path) -> None:
    @trace.retrieval()
    def ask(query: str) -> list[str]:
        with ThreadPoolExecutor(2) as inner:
            listed = list(inner.map(trace.carry(bm25), [query, query]))
        return [one for one, _ in listed[0]]

    with trace.to(tmp_path / "trace.jsonl"), ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, [f"q{n}" for n in range(40)]))
    check_unmixed(spans_of(tmp_path / "trace.jsonl"), 40, 3)


def check_unmixed(spans: list[dict[str, Any]], queries: int, per_query: int) -> None:
    by_trace: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for span in spans:
        by_trace[span["trace_id"]].append(span)
    assert len(by_trace) == queries
    for group in by_trace.values():
        (root,) = (span for span in group if span["parent_id"] is None)
        assert len(group) == per_query
        assert {span["parent_id"] for span in group if span is not root} == {root["span_id"]}
        assert len({span["attributes"]["input.value"] for span in group}) == 1


def test_thread_without_its_context_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with trace.to(tmp_path / "trace.jsonl"), trace.retrieval(query="q"), ThreadPoolExecutor(1) as pool:
        pool.submit(bm25, "q").result()
    assert "trace.carry" in caplog.text
    assert len({span["trace_id"] for span in spans_of(tmp_path / "trace.jsonl")}) == 2


def test_exception_is_recorded_and_raised_again(tmp_path: Path) -> None:
    @trace.stage("rerank")
    def failing(query: str) -> list[str]:
        raise LookupError(f"no model for {query}")

    with trace.to(tmp_path / "trace.jsonl"), pytest.raises(LookupError), trace.retrieval(query="q"):
        failing("q")
    stage, root = spans_of(tmp_path / "trace.jsonl")
    assert (stage["status_code"], stage["status_message"]) == ("ERROR", "LookupError: no model for q")
    assert stage["attributes"]["exception.type"] == "LookupError"
    assert root["status_code"] == "ERROR"


def test_failure_to_write_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with trace.to(tmp_path / "missing" / "trace.jsonl"):
        for _ in range(3):
            assert run(retrieve("q"))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "missing" in caplog.text


@pytest.mark.parametrize("returned", [[0.5, 0.25], object(), [(0.5, "m1")], iter([]), {"hits": []}])
def test_what_cannot_be_read_is_a_warning_and_passes(tmp_path, caplog, returned):
    if isinstance(returned, Iterator):
        returned = type("Cursor", (), {"__iter__": lambda self: self, "__next__": lambda self: "row"})()

    @trace.stage("score", kind="rerank")
    def score(query: str) -> Any:
        return returned

    with trace.to(tmp_path / "trace.jsonl"), trace.retrieval(query="q"):
        assert score("q") is returned
    assert len(caplog.records) == 1 and "score" in caplog.text
    assert "workbench.stage.results" not in spans_of(tmp_path / "trace.jsonl")[0]["attributes"]


def test_nothing_is_written_before_start_and_after_stop(tmp_path: Path) -> None:
    run(retrieve("before"))
    trace.start(tmp_path / "trace.jsonl")
    bm25("while")
    trace.stop()
    trace.stop()
    run(retrieve("after"))
    assert [span["attributes"]["input.value"] for span in spans_of(tmp_path / "trace.jsonl")] == ["while"]


PROCESS = """
import sys
from cems_workbench import trace
with trace.to(sys.argv[1]):
    for n in range(50):
        with trace.retrieval(query=f"{sys.argv[2]} {n}") as root:
            with trace.stage("bm25") as stage:
                stage.documents([(f"m{k}", k / 7, "text " * 40) for k in range(100)])
            root.documents(["m1"])
OURS = {"cems_workbench", "cems_trace", "__main__", "__mp_main__"}
outside = {name.split(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - OURS
print(sorted(name for name in outside if not name.startswith(("_", "sitecustomize", "usercustomize"))))
"""


def test_processes_append_whole_queries_with_the_standard_library_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-c", PROCESS, str(tmp_path / "trace.jsonl")]
    running = [subprocess.Popen([*command, f"p{n}"], cwd=ROOT, stdout=subprocess.PIPE, text=True) for n in range(3)]
    assert [process.communicate()[0].strip() for process in running] == ["[]"] * 3
    spans = spans_of(tmp_path / "trace.jsonl")
    together = [list(group) for _, group in groupby(spans, lambda span: span["trace_id"])]
    assert len(together) == 150 and {len(group) for group in together} == {2}, (
        "the spans of a query are not interleaved"
    )
    assert len({span["span_id"] for span in spans}) == 300


def test_unknown_kind_is_refused_where_it_is_declared() -> None:
    with pytest.raises(ValueError, match="list, fusion, filter, rerank"):
        trace.stage("x", kind="reranker")
    with pytest.raises(ValueError, match="brackets"):
        trace.stage(bm25)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="parameter='ask'"):
        trace.stage("x", parameter="ask")(lambda query: [])
