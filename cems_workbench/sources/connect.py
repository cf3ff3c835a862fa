"""Opening a source by its address, with the kind that its scheme names.

Requests to a source: with a time limit, and errors of one line without any secret.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from cems_workbench.errors import InputError, one_line
from cems_workbench.platform.waiting import run_in_thread
from cems_workbench.records import Relation
from cems_workbench.sources.address import SOURCE_KINDS, Address, installation, source_kind
from cems_workbench.sources.source import (
    NO_TRIAL,
    Batch,
    Changed,
    EngineList,
    EngineQuery,
    Snapshot,
    Source,
    SourceError,
    SourceInfo,
    Trial,
)

Item = TypeVar("Item")
Guard = Callable[[], AbstractContextManager[None]]
"""Turns an unexpected exception of another package into a SourceError that names the package."""

TIMEOUT_S = 60.0
"""How long a single statement or request may take."""


def open_source(address: Address, mapping: Mapping[str, Any] | None = None, timeout: float = TIMEOUT_S) -> Source:
    """Open the source at an address; `mapping` names the columns of a table, or the fields of a payload.

    Raises InputError for an address of no source or a mapping that does not fit, and SourceError if the source cannot be reached.
    """
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
    return source if SOURCE_KINDS.origin(kind.name) is None else _GuardedSource(source, guard)


@dataclass(frozen=True, slots=True)
class _GuardedSource:
    """A source of another package."""

    source: Source
    guard: Guard

    @property
    def address(self) -> str:
        return self.source.address

    def probe(self) -> SourceInfo:
        with self.guard():
            return self.source.probe()

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        with ExitStack() as opened:
            with self.guard():
                snapshot = opened.enter_context(self.source.snapshot())
            yield _GuardedSnapshot(snapshot, self.guard)

    def search(self, query: EngineQuery, trial: Trial = NO_TRIAL) -> tuple[EngineList, ...]:
        with self.guard():
            return self.source.search(query, trial)

    def close(self) -> None:
        with self.guard():
            self.source.close()


@dataclass(frozen=True, slots=True)
class _GuardedSnapshot:
    """A snapshot of another package's source; only its own code is guarded, not that of who iterates."""

    snapshot: Snapshot
    guard: Guard

    @property
    def total(self) -> int:
        with self.guard():
            return self.snapshot.total

    def batches(self, changed: Changed) -> Iterator[Batch]:
        return self._guarded(lambda: self.snapshot.batches(changed))

    def relations(self) -> Iterator[Sequence[Relation]]:
        return self._guarded(self.snapshot.relations)

    def _guarded(self, start: Callable[[], Iterator[Item]]) -> Iterator[Item]:
        with self.guard():
            items = iter(start())
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
