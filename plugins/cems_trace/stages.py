"""`trace.stage` and `trace.retrieval`: decorators of functions, and `with` blocks."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextvars import Token, copy_context
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from cems_trace.documents import Key, read_documents
from cems_trace.sink import current_sink, warn_once
from cems_trace.spans import CURRENT, IGNORED, KINDS, Span, begin, finish, ids, kind_of

P = ParamSpec("P")
T = TypeVar("T")

QUERIES = ("query", "question", "query_str", "search_query", "query_text", "q", "text", "prompt")
CANDIDATES = tuple(
    ["candidates", "documents", "docs", "results", "nodes", "hits", "passages", "memories", "ranking", "fused", "items"]
)


@dataclass(eq=False)
class Scope:
    """What `trace.stage(...)` and `trace.retrieval(...)` return: it decorates a function, or opens a `with` block.

    A `name` of None is the function's.
    """

    name: str | None
    kind: str | None
    query: str | None = None
    parameter: str | None = None
    key: Key | None = None
    results: Callable[[Any], Any] | None = None
    attributes: Mapping[str, str | int | float | bool] | None = None

    # A with block.

    def __enter__(self) -> Span:
        span = self._begin(self.query)
        if span is not IGNORED:
            span.scope = self
            CURRENT.set(span)
        return span

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        span = CURRENT.get()
        while span is not None and span.scope is not self:  # blocks inside it that a generator left open
            span = span.parent
        if span is not None:
            CURRENT.set(span.parent)
            finish(span, error)

    def _begin(self, query: str | None) -> Span:
        span = begin(self.name or "retrieval", self.kind, query)
        for name, value in (self.attributes or {}).items():
            span.set(name, value)
        return span

    # A decorator.

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """The function, traced: plain, `async`, a generator or an asynchronous generator. Raises ValueError for a class."""
        if isinstance(function, staticmethod | classmethod):  # the decorator stands above that one
            return type(function)(self(function.__func__))
        if isinstance(function, type):
            raise ValueError(f"{function.__name__} is a class: decorate a function or method")
        self.name = self.name or name_of(function)
        arguments = Arguments(function, self.parameter)
        called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
        if inspect.iscoroutinefunction(called):
            return self._coroutine(function, arguments)
        if inspect.isasyncgenfunction(called):
            return self._async_generator(function, arguments)
        if inspect.isgeneratorfunction(called):
            return self._generator(function, arguments)
        return self._plain(function, arguments)

    def _plain(self, function: Callable[P, T], arguments: Arguments) -> Callable[P, T]:
        @functools.wraps(function)
        def traced(*args: P.args, **kwargs: P.kwargs) -> T:
            span = self._called(arguments, args, kwargs)
            if span is IGNORED:
                return function(*args, **kwargs)
            token = CURRENT.set(span)
            try:
                returned = function(*args, **kwargs)
            except BaseException as error:
                finish(span, error)
                raise
            finally:
                CURRENT.reset(token)
            if (
                type(returned).__module__ in ("builtins", "itertools")
                and isinstance(returned, Iterator)
                and not self.results
            ):
                return _passed_on(returned, span, self.key)  # type: ignore[return-value]
            self._record(span, returned)
            finish(span)
            return returned

        return traced

    def _coroutine(self, function: Callable[P, Any], arguments: Arguments) -> Callable[P, Any]:
        @functools.wraps(function)
        async def traced(*args: P.args, **kwargs: P.kwargs) -> Any:
            span = self._called(arguments, args, kwargs)
            if span is IGNORED:
                return await function(*args, **kwargs)
            token = CURRENT.set(span)
            try:
                returned = await function(*args, **kwargs)
                self._record(span, returned)
            except BaseException as error:
                finish(span, error)
                raise
            finally:
                _reset(token, span)
            finish(span)
            return returned

        return traced

    def _generator(self, function: Callable[P, Any], arguments: Arguments) -> Callable[P, Any]:
        @functools.wraps(function)
        def traced(*args: P.args, **kwargs: P.kwargs) -> Generator[Any, Any, Any]:
            span = self._called(arguments, args, kwargs)
            if span is IGNORED:
                return (yield from function(*args, **kwargs))
            return (yield from _passed_on(function(*args, **kwargs), span, self.key))

        return traced

    def _async_generator(self, function: Callable[P, Any], arguments: Arguments) -> Callable[P, Any]:
        @functools.wraps(function)
        async def traced(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Any]:
            span = self._called(arguments, args, kwargs)
            source = function(*args, **kwargs)
            passed: list[Any] = []
            failure: BaseException | None = None
            step: Callable[..., Any] = source.asend
            given: Any = None
            try:
                while True:
                    token = CURRENT.set(span) if span is not IGNORED else None
                    try:
                        result = await step(given)
                    except StopAsyncIteration:
                        break
                    finally:
                        if token is not None:
                            _reset(token, span)
                    if span is not IGNORED:
                        passed.append(result)
                    try:
                        step, given = source.asend, (yield result)
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        step, given = source.athrow, error
            except BaseException as error:
                failure = error
                raise
            finally:
                await source.aclose()
                span.documents(passed, self.key)
                finish(span, failure)
                failure = None  # its traceback holds this frame, and the frame would hold it

        return traced

    def _called(self, arguments: Arguments, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Span:
        if CURRENT.get() is None and current_sink() is None:
            return IGNORED
        try:
            query = arguments.query(args, kwargs, guess=self.kind is None)
            span = self._begin(query)
            if self.kind not in (None, "list", "fusion"):
                arguments.record_input(span, args, kwargs, self.key)
            return span
        except Exception as failure:
            warn_once(f"trace: {self.name}: not traced: {failure!r}")
            return IGNORED

    def _record(self, span: Span, returned: Any) -> None:
        """Record what a function returned, unless it returned nothing or said itself what its results are."""
        if returned is None:
            return
        if isinstance(returned, Iterator) and self.results is None:  # reading it would leave nothing for the caller
            warn_once(
                f"trace: {self.name} returned a {type(returned).__name__}, which can be read once: nothing is recorded of it"
            )
            return
        try:
            results = returned if self.results is None else self.results(returned)
        except Exception as error:
            warn_once(f"trace: {self.name}: results= failed: {error!r}")
            return
        span.documents(results, self.key)


class Arguments:
    """Which arguments of a function are the query and the candidates."""

    def __init__(self, function: Callable[..., Any], parameter: str | None) -> None:
        """Raises ValueError if the function has no parameter of that name."""
        try:
            names = list(inspect.signature(function).parameters)
        except (TypeError, ValueError):  # a function of C
            names = []
        if parameter is not None and names and parameter not in names:
            raise ValueError(
                f"parameter={parameter!r}: {getattr(function, '__name__', function)} has {', '.join(names)}"
            )
        self._query = _place((parameter,) if parameter else QUERIES, names)
        self._candidates = _place(CANDIDATES, names)

    def query(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, guess: bool) -> str | None:
        """The query's text; without a parameter of a known name the first text, if guessing is allowed."""
        value = _argument(self._query, args, kwargs)
        if value is None and guess:
            value = next((value for value in (*args, *kwargs.values()) if isinstance(value, str)), None)
        for name in ("query_str", "text", "query"):  # LlamaIndex's QueryBundle, and others
            if value is not None and not isinstance(value, str):
                value = getattr(value, name, value)
        return value if isinstance(value, str) else None

    def record_input(self, span: Span, args: tuple[Any, ...], kwargs: Mapping[str, Any], key: Key | None) -> None:
        """Record the candidates among the arguments; one of a known name, else the first that reads as results."""
        named = _argument(self._candidates, args, kwargs)
        before = set(ids(span.parent.before or ())) if span.parent else set()
        for value in (named, *args, *kwargs.values()):
            if not isinstance(value, list | tuple | Mapping) or (value is not named and isinstance(value, Mapping)):
                continue
            try:
                documents = read_documents(value, key)
            except Exception:  # noqa: S112 (an argument that is something else)
                continue
            if value is named or before.intersection(ids(documents)):
                span.input(documents)
                return


def name_of(function: object) -> str:
    """The name of a function, or of the class of an object that is called."""
    return str(getattr(function, "__name__", type(function).__name__))


Place = tuple[str, int]


def _place(wanted: tuple[str | None, ...], names: list[str]) -> Place | None:
    return next(((name, names.index(name)) for name in wanted if name is not None and name in names), None)


def _argument(place: Place | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if place is None:
        return None
    name, position = place
    return kwargs[name] if name in kwargs else args[position] if position < len(args) else None


def _reset(token: Token[Span | None], span: Span) -> None:
    """Put the span before back; a coroutine may be closed in another context than it began in."""
    try:
        CURRENT.reset(token)
    except ValueError:
        if CURRENT.get() is span:
            CURRENT.set(span.parent)


def _passed_on(source: Iterator[Any], span: Span, key: Key | None) -> Generator[Any, Any, Any]:
    """The same results, recorded as they pass. The span is the innermost one only while the source works."""
    passed: list[Any] = []
    failure: BaseException | None = None
    step: Callable[..., Any] = next
    given: tuple[Any, ...] = (source,)
    try:
        while True:
            token = CURRENT.set(span)
            try:
                result = step(*given)
            except StopIteration as end:
                return end.value
            finally:
                _reset(token, span)
            passed.append(result)
            try:
                sent = yield result
            except GeneratorExit:
                raise
            except BaseException as error:
                if not isinstance(source, Generator):
                    raise
                step, given = source.throw, (error,)
            else:
                step, given = (next, (source,)) if sent is None else (source.send, (sent,))  # type: ignore[attr-defined]
    except BaseException as error:
        failure = error
        raise
    finally:
        if isinstance(source, Generator):
            source.close()
        span.documents(passed, key)
        finish(span, failure)
        failure = None  # its traceback holds this frame, and the frame would hold it


def stage(
    name: str | None = None,
    kind: str | None = None,
    *,
    query: str | None = None,
    parameter: str | None = None,
    key: Key | None = None,
    results: Callable[[Any], Any] | None = None,
    attributes: Mapping[str, str | int | float | bool] | None = None,
) -> Scope:
    """One stage of a retrieval, as a decorator or a `with` block.

        @trace.stage("rerank", kind="rerank")
        def rerank(query, candidates): ...

        with trace.stage("bm25") as stage:
            hits = index.search(query)
            stage.documents(hits)

    Args:
        name: what the stage is called everywhere; by default the function's name.
        kind: list, fusion, filter, rerank, adjust, dedup, assembly or other; by default what the name suggests.
        query: in a `with` block, the text searched for, if it is not the retrieval's.
        parameter: of a decorated function, the parameter that is the query, if its name is none of query, question, q, text and so on.
        key: from one result to (id, score) or another form that is read.
        results: from what the function returns to the list of results, such as `lambda answer: answer["hits"]`.
        attributes: further attributes of the span, such as {"reranker.model_name": "…"}.

    Raises:
        ValueError: for an unknown kind, when the stage is declared.
    """
    if kind is not None and kind not in KINDS:
        raise ValueError(f"kind={kind!r}: allowed are {', '.join(KINDS)}")
    if callable(name):
        raise ValueError(
            'trace.stage needs brackets: @trace.stage("bm25"), or @trace.stage() for the name of the function'
        )
    return _Stage(name, kind, query=query, parameter=parameter, key=key, results=results, attributes=attributes)


class _Stage(Scope):
    """A scope whose kind follows from its name, which may be known only when it decorates."""

    def __enter__(self) -> Span:
        self.name = self.name or "stage"
        self.kind = self.kind or kind_of(self.name)
        return super().__enter__()

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        self.name = self.name or name_of(getattr(function, "__func__", function))
        self.kind = self.kind or kind_of(self.name)
        return super().__call__(function)


def carry(function: Callable[P, T]) -> Callable[P, T]:
    """The function with the context of now: stages it runs in another thread belong to this query.

        pool.submit(trace.carry(bm25), query)

    A thread pool starts functions without the context of their caller; `asyncio` does not need this.
    """
    context = copy_context()

    @functools.wraps(function)
    def carried(*args: P.args, **kwargs: P.kwargs) -> T:
        return context.copy().run(function, *args, **kwargs)  # a copy: one context runs in one thread at a time

    return carried
