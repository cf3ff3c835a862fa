"""Record what each stage of a retriever does, as JSON lines that the workbench imports.

    from cems_workbench import trace

    @trace.stage("bm25", kind="list")
    def bm25(query): return [("m1", 7.2), ("m2", 3.1)]

    @trace.stage("rerank", kind="rerank")
    def rerank(query, candidates): return sorted(...)

    @trace.retrieval
    def retrieve(query): return rerank(query, bm25(query))

    with trace.to("trace.jsonl"):
        retrieve("which port does the test database use")

A call of `retrieve` is one query. Without `trace.to` or `trace.start` nothing is recorded, and a decorated function costs a microsecond
more. Plain, `async` and generator functions can be decorated; results pass unchanged, and so do exceptions, which are recorded. Tracing
raises nothing while the pipeline runs: what cannot be written or read is one warning of the logger `cems_trace`.

Results of a stage are read in their order, best first, from an iterable of:

- ids: texts or whole numbers;
- (id, score) or (id, score, text), also with a result instead of the id, as LangChain's `similarity_search_with_score` has it;
- mappings or objects with an id (`id`, `_id`, `id_`, `node_id`, `doc_id`, `document_id`, `memory_id`, `chunk_id`, `docno` or `key`, there
  or in `metadata` or `payload`), and if there are any a score (`score`, `_score`, `relevance_score`, `similarity`) and a text (`text`,
  `content`, `page_content`, `document`): documents of LangChain, nodes and `NodeWithScore` of LlamaIndex, points of Qdrant, hits of
  Elasticsearch, rows of a data frame. One with a text and no id gets a digest of the text as its id.

A mapping from id to score counts as pairs. `key=` reads any other result, `results=` finds the list in what a function returns. An iterator
is not read ahead: it is recorded as the caller consumes it.

Only the standard library is imported. `trace.langchain`, `trace.llama_index` and `trace.opentelemetry` connect to these three.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, overload

from cems_trace.documents import Key
from cems_trace.sink import Sink, Tracing, stop_last
from cems_trace.spans import QUERY_ID, Span
from cems_trace.stages import Scope, carry, stage

__all__ = ["Span", "Tracing", "carry", "query_id", "retrieval", "stage", "start", "stop", "to"]

P = ParamSpec("P")
T = TypeVar("T")


def start(path: str | os.PathLike[str], *, texts: bool = True) -> Tracing:
    """Trace into a file from now on: every query that begins later, in any thread.

    Args:
        path: a file of JSON lines, which is appended to, also by several processes.
        texts: whether texts and metadata of results are written, once per query. The query's text always is.

    Returns:
        What is traced, with `stop()`; as a `with` block it stops at the end.
    """
    return Tracing(Sink(path, texts=texts))


to = start
"""`with trace.to("trace.jsonl"):` reads better than `start`; they are the same."""


stop = stop_last


@contextmanager
def query_id(name: str) -> Iterator[None]:
    """The queries of this block have this id, as in your judgments.

    for qid, text in queries:
        with trace.query_id(qid):
            retrieve(text)
    """
    token = QUERY_ID.set(name)
    try:
        yield
    finally:
        QUERY_ID.reset(token)


@overload
def retrieval(name: Callable[P, T], /) -> Callable[P, T]: ...
@overload
def retrieval(
    name: str | None = None,
    *,
    query: str | None = None,
    parameter: str | None = None,
    key: Key | None = None,
    results: Callable[[Any], Any] | None = None,
    attributes: Mapping[str, str | int | float | bool] | None = None,
) -> Scope: ...
def retrieval(
    name: str | Callable[..., Any] | None = None,
    *,
    query: str | None = None,
    parameter: str | None = None,
    key: Key | None = None,
    results: Callable[[Any], Any] | None = None,
    attributes: Mapping[str, str | int | float | bool] | None = None,
) -> Any:
    """One query: the root of its stages, as a decorator with or without brackets, or a `with` block.

        with trace.retrieval(query=text) as retrieval:
            ...
            retrieval.documents(answer)

    Args:
        name: what the pipeline is called; by default the function's name.
        query: in a `with` block, the query's text.
        parameter: of a decorated function, the parameter that is the query; by default one called query, question, q, text and so on, else
            the first text among the arguments.
        key: from one result to (id, score) or another form that is read.
        results: from what the function returns to the list of results.
        attributes: further attributes of the span.
    """
    if callable(name):
        return Scope(None, None)(name)
    return Scope(name, None, query=query, parameter=parameter, key=key, results=results, attributes=attributes)
