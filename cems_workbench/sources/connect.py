"""Opening a source by its address, with the kind that its scheme names.

Requests to a source: with a time limit, and errors of one line without any secret.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from cems_workbench.errors import InputError, one_line
from cems_workbench.platform.waiting import run_in_thread
from cems_workbench.sources.address import SOURCE_KINDS, Address, installation, source_kind
from cems_workbench.sources.source import Source, SourceError

Guard = Callable[[], AbstractContextManager[None]]
"""Turns an unexpected exception of another package into a SourceError that names the package."""

TIMEOUT_S = 60.0
"""How long a single statement or request may take."""


def open_source(address: Address, mapping: Mapping[str, Any] | None = None, timeout: float = TIMEOUT_S) -> Source:
    """Open the source at an address; `mapping` names the columns of a table, or the fields of a payload. Raises
    InputError for an address of no source or a mapping that does not fit, and SourceError if the source cannot be
    reached."""
    kind = source_kind(address)
    if kind.open is None:
        raise InputError(
            f"{address.plain} has no memories to take: a {kind.title} gives answers only; `fidelity --ask` asks for them"
        )
    if missing := installation(kind):
        raise InputError(f"{address.plain}: {missing}")

    def guard() -> AbstractContextManager[None]:
        return SOURCE_KINDS.guarded(kind.name, SourceError)

    with guard():
        source = kind.open(address, mapping, timeout)
    return source if SOURCE_KINDS.origin(kind.name) is None else cast("Source", _Guarded(source, guard))


@dataclass(frozen=True, slots=True)
class _Guarded:
    """A source of another package, or its snapshot: only its own code is guarded, not that of who iterates."""

    guarded: Any
    guard: Guard

    def __getattr__(self, name: str) -> Any:
        with self.guard():
            value = getattr(self.guarded, name)
        return partial(self._called, name) if callable(value) else value

    def _called(self, method: str, *values: Any, **named: Any) -> Any:
        with self.guard():
            result = getattr(self.guarded, method)(*values, **named)
        if isinstance(result, AbstractContextManager):
            return self._opened(result)
        return self._iterated(result) if isinstance(result, Iterator) else result

    @contextmanager
    def _opened(self, opening: AbstractContextManager[Any]) -> Iterator[_Guarded]:
        with ExitStack() as opened:
            with self.guard():
                snapshot = opened.enter_context(opening)
            yield _Guarded(snapshot, self.guard)

    def _iterated(self, items: Iterator[Any]) -> Iterator[Any]:
        while True:
            with self.guard():
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item


T = TypeVar("T")

MAX_ERROR_CHARS = 300


def ask(address: Address, seconds: float, call: Callable[[], T], reason: Callable[[Exception], str | None]) -> T:
    """The result of `call`. Raises SourceError, one line without any secret, if it fails or takes longer than `seconds`."""
    from cems_workbench.platform.http_limits import ResponseError

    try:
        return run_in_thread(call).result(seconds)
    except (SourceError, InputError):
        raise
    except ResponseError as error:
        raise SourceError(f"{address.plain}: {one_line(address.hidden(str(error)), MAX_ERROR_CHARS)}") from None
    except TimeoutError:
        raise SourceError(f"{address.plain}: no answer in {seconds:g} s") from None
    except Exception as error:
        message = reason(error)
        if message is None:
            raise
        raise SourceError(f"{address.plain}: {one_line(address.hidden(message), MAX_ERROR_CHARS)}") from None


def check_options(address: Address, known: Collection[str]) -> None:
    """Raise InputError for an option that this kind of address does not have."""
    for name in address.options:
        if name not in known:
            hint = f"it may be {', '.join(known)}" if known else "there are none here"
            raise InputError(f"{address.plain}: {name} is no option of this address; {hint}")
