"""Trace LangChain: retrievers and document compressors, with `langchain-core` 1.0 or newer.

    from cems_workbench import trace
    from cems_trace.langchain import traced

    retriever = traced(ContextualCompressionRetriever(base_retriever=EnsembleRetriever(...), base_compressor=CrossEncoderReranker(...)))
    with trace.to("trace.jsonl"):
        retriever.invoke("which port does the test database use")

A call of the outermost retriever is a query, unless it is made within `trace.retrieval`. Each retriever, compressor and transformer in it
is a stage. Callbacks would not see the latter two: LangChain sends none for them.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from langchain_core.documents import BaseDocumentCompressor, BaseDocumentTransformer
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable
from pydantic import BaseModel

from cems_trace.sink import current_sink
from cems_trace.spans import CURRENT, IGNORED, Span, begin, finish, kind_of

C = TypeVar("C")


def traced(component: C, names: Mapping[str, str] | None = None) -> C:
    """A copy of a retriever or chain that traces every retriever and compressor within it; indexes and models are shared with the original.

    Documents should have ids (`id`, or one in `metadata`): without, the digest of its text is a document's id, and a compressor that
    shortens texts returns other documents.

    Args:
        component: a retriever, a document compressor, or a chain that holds some in its fields; a function hides what it calls.
        names: another name for a stage, by the name it has otherwise: `name` of a retriever, the class of its vector store, or its class.
    """
    copy: C = _Copier(names or {}).copy(component)
    return copy


class _Copier:
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._count: Counter[str] = Counter()

    def copy(self, component: Any) -> Any:
        """The component with its parts copied first, so that stages are numbered in the order they run."""
        if type(component) in (list, tuple):
            return type(component)(self.copy(part) for part in component)
        if isinstance(component, dict):
            return {name: self.copy(part) for name, part in component.items()}
        ours = isinstance(component, BaseRetriever | BaseDocumentCompressor | BaseDocumentTransformer)
        if not (ours or isinstance(component, Runnable)) or not isinstance(component, BaseModel):
            return component
        if hasattr(type(component), _TRACED):  # else its stages would be recorded twice
            return component
        parts = {name: getattr(component, name) for name in type(component).model_fields}
        copied = {name: self.copy(part) for name, part in parts.items() if isinstance(part, _CONTAINERS)}
        changed = {name: part for name, part in copied.items() if part is not parts[name] and _holds_traced(part)}
        if not ours:
            return component.model_copy(update=changed) if changed else component
        name = self._name(component)
        if isinstance(component, BaseRetriever):
            methods = _retriever(type(component), name, changed)
        else:
            methods = {} if changed else _compressor(type(component), name)
        duplicate = component.model_copy(update=changed)
        # A subclass for this object alone: what checks its type, reads or sets its fields, works as before.
        here = {"__module__": type(component).__module__, "__qualname__": type(component).__qualname__, _TRACED: True}
        subclass = type(type(component).__name__, (type(component),), here | methods)
        object.__setattr__(duplicate, "__class__", subclass)
        return duplicate

    def _name(self, component: Any) -> str:
        store = getattr(component, "vectorstore", None)
        own = getattr(component, "name", None)
        name = own if isinstance(own, str) and own else type(component if store is None else store).__name__
        name = self._names.get(name, name)
        self._count[name] += 1
        return name if self._count[name] == 1 else f"{name} {self._count[name]}"


_TRACED = "__cems_workbench_traced__"
_CONTAINERS = (list, tuple, dict, BaseModel)


def _holds_traced(part: Any) -> bool:
    if isinstance(part, list | tuple):
        return any(_holds_traced(one) for one in part)
    if isinstance(part, dict):
        return any(_holds_traced(one) for one in part.values())
    return hasattr(type(part), _TRACED) or (
        isinstance(part, BaseModel) and any(_holds_traced(getattr(part, name)) for name in type(part).model_fields)
    )


def _retriever(base: type[Any], name: str, parts: Mapping[str, Any]) -> dict[str, Any]:
    """The methods of a traced retriever: a list, the fusion of the retrievers in it, or compression, whose compressor is the stage."""
    compresses = "base_compressor" in parts
    kind = "fusion" if parts and not compresses else "list"

    def open_spans(query: object, *args: Any, **kwargs: Any) -> list[Span]:
        text = query if isinstance(query, str) else None
        outermost = CURRENT.get() is None
        if outermost and current_sink() is None:
            return []
        opened = [begin(name, None, text)] if outermost else []
        if not (outermost and compresses):
            opened.append(begin(name, kind, text, parent=opened[0] if opened else None))
        return [span for span in opened if span is not IGNORED]

    return {name: _recorded(getattr(base, name), open_spans) for name in ("invoke", "ainvoke")}


def _compressor(base: type[Any], name: str) -> dict[str, Any]:
    """The methods of a traced compressor or transformer. The asynchronous one of the base calls the other: it is recorded once."""
    kind = kind_of(name)
    kind = kind if kind != "list" else "other"
    token = object()

    def open_spans(documents: Any, query: object) -> list[Span]:
        around = CURRENT.get()
        if around is not None and around.scope is token:
            return []
        span = begin(name, kind, query if isinstance(query, str) else None)
        if span is IGNORED:
            return []
        span.scope = token
        span.input(documents)
        return [span]

    def opened(documents: Any, *args: Any, **kwargs: Any) -> list[Span]:
        return open_spans(documents, kwargs.get("query", args[0] if args else None))

    names = [f"{how}{what}_documents" for what in ("compress", "transform") for how in ("", "a")]
    return {name: _recorded(getattr(base, name), opened) for name in names if hasattr(base, name)}


def _recorded(method: Any, open_spans: Callable[..., list[Span]]) -> Any:
    """The method, plain or asynchronous, recorded in the spans that are opened for its arguments."""

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _Open(open_spans(*args, **kwargs)) as spans:
            return spans.returned(method(self, *args, **kwargs))

    @functools.wraps(method)
    async def run_async(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _Open(open_spans(*args, **kwargs)) as spans:
            return spans.returned(await method(self, *args, **kwargs))

    return run_async if inspect.iscoroutinefunction(method) else run


class _Open:
    """Spans of one call, the outer first."""

    def __init__(self, spans: list[Span]) -> None:
        self._spans = spans

    def __enter__(self) -> _Open:
        if self._spans:
            CURRENT.set(self._spans[-1])
        return self

    def returned(self, results: Any) -> Any:
        for span in self._spans:
            span.documents(results)
        return results

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._spans:
            CURRENT.set(self._spans[0].parent)
        for span in reversed(self._spans):
            finish(span, error)
