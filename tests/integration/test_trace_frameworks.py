"""Traces of real pipelines: LangChain, LlamaIndex, the spans of an OpenTelemetry tracer, and the retrievers of examples/."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Tracer

from cems_trace.opentelemetry import JsonLinesExporter
from cems_workbench import trace
from tests.event_loop import run
from workbench_tools.spans import read_span

TEXTS = {
    "m0": "the test database port is 5433",
    "m1": "deploy with make ship",
    "m2": "port of staging database",
    "m3": "answers are short",
}


def ranked(query: str) -> list[tuple[str, float]]:
    words = set(query.split())
    scores = {one: float(len(words & set(text.split()))) for one, text in TEXTS.items()}
    return sorted(scores.items(), key=lambda pair: -pair[1])[:3]


def queries_of(file: Path) -> Iterator[tuple[str, list[tuple[str, str | None, str | None, list[str]]]]]:
    """For each query its text, and of each span name, kind, parent's name and the ids returned."""
    spans = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    names = {span["span_id"]: span["name"] for span in spans}
    for number in dict.fromkeys(span["trace_id"] for span in spans):
        rows, query = [], ""
        for span in (span for span in spans if span["trace_id"] == number):
            attributes = span["attributes"]
            assert "workbench.stage.problem" not in attributes
            returned = [
                value
                for name, value in attributes.items()
                if name.startswith(("retrieval.documents", "reranker.output")) and name.endswith(".id")
            ]
            rows.append((span["name"], attributes.get("workbench.stage.kind"), names.get(span["parent_id"]), returned))
            query = attributes["input.value"]
        yield query, rows


def test_langchain(tmp_path: Path) -> None:
    pytest.importorskip("langchain_core")
    pytest.importorskip("langchain_classic")
    from langchain_classic.retrievers import ContextualCompressionRetriever, EnsembleRetriever
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.embeddings import DeterministicFakeEmbedding
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.vectorstores import InMemoryVectorStore

    from cems_trace.langchain import traced

    documents = {one: Document(id=one, page_content=text) for one, text in TEXTS.items()}

    class WordRetriever(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            return [documents[one] for one, _ in ranked(query)]

    class LengthReranker(BaseDocumentCompressor):
        def compress_documents(
            self, documents: Sequence[Document], query: str, callbacks: Any = None
        ) -> list[Document]:
            return sorted(documents, key=lambda document: len(document.page_content))[:2]

    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=32))
    store.add_documents(list(documents.values()))
    ensemble = EnsembleRetriever(
        retrievers=[WordRetriever(), store.as_retriever(search_kwargs={"k": 2})], weights=[0.5, 0.5]
    )
    plain = ContextualCompressionRetriever(base_retriever=ensemble, base_compressor=LengthReranker())
    retriever = traced(plain, names={"InMemoryVectorStore": "vectors"})
    assert isinstance(retriever, ContextualCompressionRetriever) and type(plain) is ContextualCompressionRetriever

    expected = [document.id for document in plain.invoke("database port")]
    file = tmp_path / "trace.jsonl"
    with trace.to(file):
        calls = [retriever.invoke("database port"), run(retriever.ainvoke("database port"))]
        calls += retriever.batch(["database port"] * 3)
        traced(retriever | (lambda found: calls.append(found))).invoke("database port")
    assert [[document.id for document in found] for found in calls] == [expected] * 6

    seen = list(queries_of(file))
    assert len(seen) == 6
    for query, rows in seen:
        assert query == "database port"
        assert [row[:3] for row in rows] == [
            ("WordRetriever", "list", "EnsembleRetriever"),
            ("vectors", "list", "EnsembleRetriever"),
            ("EnsembleRetriever", "fusion", "ContextualCompressionRetriever"),
            ("LengthReranker", "rerank", "ContextualCompressionRetriever"),
            ("ContextualCompressionRetriever", None, None),
        ]
        assert rows[0][3] == [one for one, _ in ranked("database port")]
        assert rows[3][3] == rows[4][3] == expected


@pytest.mark.thorough
def test_llama_index(tmp_path: Path) -> None:
    pytest.importorskip("llama_index.core")
    from llama_index.core import MockEmbedding, VectorStoreIndex
    from llama_index.core.llms import MockLLM
    from llama_index.core.postprocessor import SimilarityPostprocessor
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.response_synthesizers import CompactAndRefine
    from llama_index.core.retrievers import BaseRetriever, QueryFusionRetriever
    from llama_index.core.schema import NodeWithScore, TextNode

    from cems_trace.llama_index import instrument, uninstrument

    nodes = {one: TextNode(id_=one, text=text) for one, text in TEXTS.items()}

    class WordRetriever(BaseRetriever):
        def _retrieve(self, query_bundle: Any) -> list[NodeWithScore]:
            return [NodeWithScore(node=nodes[one], score=score) for one, score in ranked(query_bundle.query_str)]

    class LengthRerank(BaseNodePostprocessor):
        def _postprocess_nodes(self, nodes: list[NodeWithScore], query_bundle: Any = None) -> list[NodeWithScore]:
            return sorted(nodes, key=lambda found: len(found.node.get_content()))[:2]

    dense = VectorStoreIndex(list(nodes.values()), embed_model=MockEmbedding(embed_dim=8)).as_retriever(
        similarity_top_k=2
    )
    fusion = QueryFusionRetriever(
        [WordRetriever(), dense], llm=MockLLM(), num_queries=1, mode="reciprocal_rerank", similarity_top_k=4
    )
    cutoff = SimilarityPostprocessor(similarity_cutoff=0.001)
    answer = CompactAndRefine(llm=MockLLM(max_tokens=3))
    engine = RetrieverQueryEngine(fusion, response_synthesizer=answer, node_postprocessors=[cutoff, LengthRerank()])
    file = tmp_path / "trace.jsonl"
    instrument()
    instrument()
    try:
        with trace.to(file):
            returned = [found.node.node_id for found in engine.query("database port").source_nodes]
            run(engine.aquery("database port"))
            with trace.retrieval("mine", query="database port") as root:
                root.documents(
                    LengthRerank().postprocess_nodes(fusion.retrieve("database port"), query_str="database port")
                )
        engine.query("nothing is traced now")
    finally:
        uninstrument()

    first, second, own = queries_of(file)
    assert first == second
    assert [row[:3] for row in first[1]] == [
        ("WordRetriever", "list", "QueryFusionRetriever"),
        ("VectorIndexRetriever", "list", "QueryFusionRetriever"),
        ("QueryFusionRetriever", "fusion", "RetrieverQueryEngine"),
        ("SimilarityPostprocessor", "filter", "RetrieverQueryEngine"),
        ("LengthRerank", "rerank", "RetrieverQueryEngine"),
        ("RetrieverQueryEngine", None, None),
    ]
    assert first[1][0][3] == [one for one, _ in ranked("database port")]
    assert first[1][-1][3] == returned
    assert [row[:3] for row in own[1]][2:] == [
        ("QueryFusionRetriever", "fusion", "mine"),
        ("LengthRerank", "rerank", "mine"),
        ("mine", None, None),
    ]


def tracer_to(path: Path, texts: bool = True) -> Tracer:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(JsonLinesExporter(path, texts=texts)))
    return provider.get_tracer("test")


def test_opentelemetry_exporter_writes_the_tree_and_what_concerns_retrieval(tmp_path: Path) -> None:
    tracer = tracer_to(tmp_path / "trace.jsonl")
    with (
        pytest.raises(ValueError, match="late"),
        tracer.start_as_current_span("GET /answer", attributes={"http.request.header.authorization": "secret"}),
        tracer.start_as_current_span(
            "search", attributes={"openinference.span.kind": "RETRIEVER", "input.value": "q"}
        ) as span,
    ):
        span.set_attribute("retrieval.documents.0.document.id", "m0")
        raise ValueError("late")
    search, request = (json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines())
    assert search["parent_id"] == request["span_id"] and request["parent_id"] is None
    assert search["trace_id"] == request["trace_id"] and search["start_time"] <= search["end_time"]
    assert search["attributes"] == {
        "openinference.span.kind": "RETRIEVER",
        "input.value": "q",
        "retrieval.documents.0.document.id": "m0",
        "exception.type": "ValueError",
        "exception.message": "late",
        "exception.escaped": "False",
    }
    assert search["status_code"] == "ERROR" and "secret" not in json.dumps(request)


def test_opentelemetry_exporter_leaves_texts_out(tmp_path: Path) -> None:
    tracer = tracer_to(tmp_path / "trace.jsonl", texts=False)
    given = {"input.value": '["text of m0"]', "input.mime_type": "application/json"}
    with tracer.start_as_current_span("lambda", attributes=given):
        tracer.start_span(
            "search",
            attributes={
                "input.value": "q",
                "retrieval.documents.0.document.id": "m0",
                "retrieval.documents.0.document.content": "text of m0",
            },
        ).end()
    written = (tmp_path / "trace.jsonl").read_text()
    assert "m0" in written and '"input.value":"q"' in written and "text of" not in written


def test_opentelemetry_exporter_says_how_many_attributes_were_dropped(tmp_path: Path) -> None:
    """opentelemetry-sdk 1.45.2, run on 2026-11-29: a span keeps its last 128 attributes."""
    given = {"input.value": "q", **{f"retrieval.documents.{n}.document.id": f"m{n}" for n in range(130)}}
    span = tracer_to(tmp_path / "trace.jsonl").start_span("search", attributes=given)
    span.set_attribute("output.value", "[]")
    span.set_attribute("openinference.span.kind", "RETRIEVER")
    span.end()
    (written,) = map(json.loads, (tmp_path / "trace.jsonl").read_text().splitlines())
    assert written["dropped_attributes_count"] == 5 and written["attributes"]["output.value"] == "[]"
    read = read_span(1, written)
    assert read.output is not None and [one.id for one in read.output][3:6] == [None, "m4", "m5"]
    assert read.lost == "5 attributes of the span were dropped at the tracer's limit, 128 by default"


ROOT = Path(__file__).resolve().parents[2]
STAGES = {
    "plain_python": ["bm25", "chroma", "rrf", "cross-encoder", "minimum score"],
    "langchain_pipeline": ["Bm25Retriever", "InMemoryVectorStore", "EnsembleRetriever", "CrossEncoderReranker"],
    "llama_index_pipeline": [
        "Bm25Retriever",
        "VectorIndexRetriever",
        "QueryFusionRetriever",
        "SimilarityPostprocessor",
        "CrossEncoderRerank",
    ],
}


@pytest.mark.thorough
@pytest.mark.parametrize("example", STAGES)
def test_example(example: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    subprocess.run([sys.executable, "-m", f"examples.{example}", str(file), "2"], cwd=ROOT, check=True)
    spans = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    count = len(STAGES[example]) + 1
    assert len(spans) == 2 * count
    for query in (spans[:count], spans[count:]):
        assert [span["attributes"].get("workbench.stage.name") for span in query] == [*STAGES[example], None]
        assert all(span["attributes"]["workbench.stage.results"] > 0 for span in query)
        assert query[-1]["attributes"]["workbench.stage.results"] == 5
