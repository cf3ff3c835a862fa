"""Trace LlamaIndex: query engines, retrievers and node postprocessors, with `llama-index-core` 0.12 or newer.

    from cems_workbench import trace
    from cems_trace.llama_index import instrument

    instrument()                               # once in a process
    with trace.to("trace.jsonl"):
        query_engine.query("which port does the test database use")

LlamaIndex reports the calls (its module `instrumentation`). The outermost query engine or retriever is a query, unless it is called within
`trace.retrieval`: there a retriever and the postprocessors called after it are stages of one query.
"""

from __future__ import annotations

import inspect
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.span import BaseSpan
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from cems_trace.sink import current_sink
from cems_trace.spans import CURRENT, IGNORED, Span, begin, finish, kind_of

QUERY = ("query", "aquery")
RETRIEVE = ("retrieve", "aretrieve")
FILTERS = dict.fromkeys(("SimilarityPostprocessor", "KeywordNodePostprocessor"), "filter")
NOT_LISTS = {"list": "other"}
"""A postprocessor searches nothing, whatever its name suggests."""
POSTPROCESS = ("postprocess_nodes", "apostprocess_nodes", "_postprocess_nodes", "_apostprocess_nodes")


def instrument() -> None:
    """Trace what LlamaIndex reports from now on. Twice does no harm; without `trace.to` or `trace.start` nothing is recorded."""
    dispatcher = get_dispatcher()
    if not any(isinstance(handler, TraceHandler) for handler in dispatcher.span_handlers):
        dispatcher.add_span_handler(TraceHandler())


def uninstrument() -> None:
    """Undo `instrument`."""
    dispatcher = get_dispatcher()
    dispatcher.span_handlers = [
        handler for handler in dispatcher.span_handlers if not isinstance(handler, TraceHandler)
    ]


class TraceHandler(BaseSpanHandler[BaseSpan]):
    """Receives the beginning and end of each call. The dispatcher swallows exceptions of a handler."""

    _spans: dict[str, list[Span]] = {}  # noqa: RUF012 (pydantic copies it for each handler)

    def new_span(
        self, id_: str, bound_args: inspect.BoundArguments, instance: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        """A call began, in the thread or task that makes it."""
        method = id_.partition("-")[0].rpartition(".")[2]
        opened = self._opened(instance, method, bound_args)
        if opened:
            opened[-1].scope = instance
            CURRENT.set(opened[-1])
            self._spans[id_] = opened

    def _opened(self, instance: Any, method: str, bound: inspect.BoundArguments) -> list[Span]:
        around = CURRENT.get()
        if around is None and current_sink() is None:
            return []
        name = type(instance).__name__
        query = _query(bound)
        if isinstance(instance, BaseQueryEngine) and method in QUERY:
            opened = [begin(name, None if around is None else "other", query)]
        elif isinstance(instance, BaseRetriever) and method in RETRIEVE:
            # Not one that calls its like: `aretrieve` may be `retrieve` in a thread.
            if around is not None and around.scope is instance:
                return []
            opened = [begin(name, None, query)] if around is None else []
            kind = "fusion" if kind_of(name) == "fusion" else "list"
            opened.append(begin(name, kind, query, parent=opened[0] if opened else None))
        elif isinstance(instance, BaseNodePostprocessor) and method in POSTPROCESS:
            if around is not None and around.scope is instance:
                return []
            opened = [begin(name, FILTERS.get(name) or NOT_LISTS.get(kind := kind_of(name), kind), query)]
            opened[0].input(bound.arguments.get("nodes") or [])
        else:
            return []
        return [span for span in opened if span is not IGNORED]

    def prepare_to_exit_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        result: Any = None,
        **kwargs: Any,
    ) -> None:
        """A call returned."""
        self._close(id_, getattr(result, "source_nodes", result), None)

    def prepare_to_drop_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        err: BaseException | None = None,
        **kwargs: Any,
    ) -> None:
        """A call failed."""
        self._close(id_, None, err or RuntimeError("dropped"))

    def _close(self, id_: str, results: Any, error: BaseException | None) -> None:
        opened = self._spans.pop(id_, [])
        if opened and CURRENT.get() is opened[-1]:
            CURRENT.set(opened[0].parent)
        for span in reversed(opened):
            if isinstance(results, list):
                span.documents(results)
            finish(span, error)


def _query(bound: inspect.BoundArguments) -> str | None:
    for name in ("str_or_query_bundle", "query_bundle", "query_str", "query"):
        value = bound.arguments.get(name)
        text = getattr(value, "query_str", value)
        if isinstance(text, str):
            return text
    return None
