"""Records what OpenInference's instrumentors write of retrievals of LangChain, LlamaIndex, Haystack and DSPy: `python make.py NAME`.

Recorded on Python 3.11 with opentelemetry-sdk 1.45.2 and the instrumentors openinference-instrumentation-langchain 0.1.80 (langchain-core
1.8.3), -llama-index 4.6.1 (llama-index-core 0.14.25), -haystack 0.1.46 (haystack-ai 3.4.1) and -dspy 0.1.48 (dspy 3.4.1). Ids, times and
the resource are replaced, tracebacks cut, and of LlamaIndex the RETRIEVER spans are kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

TEXTS = {
    "m01": "Releases reach the cluster through the deploy bot after two approvals.",
    "m07": "The rollback command is deployctl undo followed by the release number.",
}
RELEASES, INVOICES = "how do releases reach the cluster", "how are invoices rounded"


def langchain() -> None:
    documents, retrievers = import_module("langchain_core.documents"), import_module("langchain_core.retrievers")
    stores, embeddings = import_module("langchain_core.vectorstores"), import_module("langchain_core.embeddings")
    store = stores.InMemoryVectorStore(embeddings.DeterministicFakeEmbedding(size=8))
    store.add_documents(
        [documents.Document(id=key, page_content=text, metadata={"memory_id": key}) for key, text in TEXTS.items()]
    )

    class Nothing(retrievers.BaseRetriever):  # type: ignore[misc, name-defined]
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
            return []

    class Bad(retrievers.BaseRetriever):  # type: ignore[misc, name-defined]
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
            raise RuntimeError("no index")

    store.as_retriever(search_kwargs={"k": 2}).invoke(RELEASES)
    Nothing().invoke(INVOICES)
    with suppress(RuntimeError):
        Bad().invoke("which port")


def llama_index() -> None:
    core, schema = import_module("llama_index.core"), import_module("llama_index.core.schema")
    llm = import_module("llama_index.core.llms").MockLLM()
    nodes = [schema.TextNode(id_=key, text=text) for key, text in TEXTS.items()]
    index = core.VectorStoreIndex(nodes, embed_model=core.MockEmbedding(embed_dim=8))
    for query in (
        RELEASES,
        core.QueryBundle(INVOICES, custom_embedding_strs=["x"]),
        core.QueryBundle("which port", embedding=[0.1] * 8),
    ):
        index.as_retriever(similarity_top_k=2).retrieve(query)
    index.as_query_engine(llm=llm, similarity_top_k=2).query(RELEASES)
    index.as_chat_engine(llm=llm, chat_mode="context").chat("and how are they rolled back")


def haystack() -> None:
    core, memory = import_module("haystack"), import_module("haystack.document_stores.in_memory")
    retrievers, joiners = (
        import_module("haystack.components.retrievers.in_memory"),
        import_module("haystack.components.joiners"),
    )
    store = memory.InMemoryDocumentStore()
    store.write_documents(
        [
            core.Document(id=key, content=text, embedding=[float(i), 1.0, 0.5])
            for i, (key, text) in enumerate(TEXTS.items())
        ]
    )
    for name, retriever, given in (
        ("bm25", retrievers.InMemoryBM25Retriever(store, top_k=2), {"query": RELEASES}),
        ("emb", retrievers.InMemoryEmbeddingRetriever(store, top_k=2), {"query_embedding": [0.1, 0.2, 0.3]}),
        ("bm25", retrievers.InMemoryBM25Retriever(memory.InMemoryDocumentStore()), {"query": INVOICES}),
    ):
        pipeline = core.Pipeline()
        pipeline.add_component(name, retriever)
        pipeline.run({name: given})
    both = core.Pipeline()
    both.add_component("bm25", retrievers.InMemoryBM25Retriever(store, top_k=2))
    both.add_component("emb", retrievers.InMemoryEmbeddingRetriever(store, top_k=2))
    both.add_component("join", joiners.DocumentJoiner())
    both.connect("bm25", "join")
    both.connect("emb", "join")
    both.run({"bm25": {"query": "rollback"}, "emb": {"query_embedding": [0.1, 0.2, 0.3]}})


def dspy() -> None:
    core, colbert = import_module("dspy"), import_module("dspy.dsp.colbertv2")
    found = [
        {"pid": key, "text": text, "long_text": text, "score": 1 / n} for n, (key, text) in enumerate(TEXTS.items(), 1)
    ]
    vars(colbert)["colbertv2_get_request"] = lambda url, query, k: found  # instead of a server
    model = core.ColBERTv2(url="http://example.com")
    core.configure(rm=model)
    core.Retrieve(k=2)(RELEASES)
    model("which command undoes a release", k=2)


def plain(spans: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The spans with ids and times that count, and without what is of the machine."""
    numbers: dict[str, int] = {}
    for n, span in enumerate(spans):
        ids = span["context"]
        for name, width in (("trace_id", 32), ("span_id", 16)):
            ids[name] = f"0x{numbers.setdefault(ids[name], len(numbers) + 1):0{width}x}"
        parent = span["parent_id"]
        span["parent_id"] = parent and f"0x{numbers.setdefault(parent, len(numbers) + 1):016x}"
        span |= {"start_time": f"2026-03-01T12:00:{n:02d}.000000Z", "end_time": f"2026-03-01T12:00:{n:02d}.500000Z"}
        if "description" in span["status"]:
            span["status"]["description"] = span["status"]["description"].partition("Traceback")[0]
        yield span | {"events": [], "resource": {"attributes": {"service.name": "notes"}, "schema_url": ""}}


def main(name: str) -> None:
    sdk, export = import_module("opentelemetry.sdk.trace"), import_module("opentelemetry.sdk.trace.export")
    memory = import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(memory))
    instrumentors = {"langchain": "LangChain", "llama_index": "LlamaIndex", "haystack": "Haystack", "dspy": "DSPy"}
    module = import_module(f"openinference.instrumentation.{name}")
    getattr(module, f"{instrumentors[name]}Instrumentor")().instrument(tracer_provider=provider)
    globals()[name]()
    spans = [json.loads(span.to_json(indent=None)) for span in memory.get_finished_spans()]
    if name == "llama_index":
        spans = [span for span in spans if span["attributes"].get("openinference.span.kind") == "RETRIEVER"]
    lines = (json.dumps(span, ensure_ascii=False) for span in plain(spans))
    Path(__file__).with_name(f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
