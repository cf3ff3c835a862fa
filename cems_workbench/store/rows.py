"""Shared by the aggregates: column values, bulk insertion into DuckDB, and row counts.

Cache of full-table reads and counts, computed once per content version of the store.

Pages need such values on every rerun. Cached values are shared by all callers and must not be modified.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from cems_workbench.errors import InputError
from cems_workbench.store.meta import read_content_version

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from cems_workbench.store.database import Database


Read = TypeVar("Read")


MAX_ENTRIES = 16
"""The most recently used values of one store that are kept."""


class VersionedCache:
    """Values of the current content version, by name. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()

    def get(self, name: Hashable, read: Callable[[duckdb.DuckDBPyConnection], Read]) -> Read:
        """The cached result of `read` for the current content version, which another process may just have changed."""
        version = self._database.cached_content_version()
        with self._lock:
            kept = self._entries.get(name)
        if kept is None or kept[0] != version:
            # Outside the lock: a slow read must not block the readers of other values.
            with self._database.reading() as cursor:
                # The version of the same transaction: another process may have written since `version` was read.
                kept = read_content_version(cursor), read(cursor)
        with self._lock:
            self._entries[name] = kept
            self._entries.move_to_end(name)
            while len(self._entries) > MAX_ENTRIES:
                self._entries.popitem(last=False)
        found: Read = kept[1]
        return found

    def clear(self) -> None:
        """Clear the cache."""
        with self._lock:
            self._entries.clear()


MAX_NAME_CHARS = 200


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Counts of one kind's valid rows by their effect on the store."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0

    @property
    def total(self) -> int:
        """Rows of the input that are now in the store."""
        return self.added + self.updated + self.unchanged

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(self.added + other.added, self.updated + other.updated, self.unchanged + other.unchanged)


NO_ROWS = RowCounts()


def text_sha(text: str) -> str:
    """SHA-256 of the exact text, in hex, by which embeddings and scores detect changes."""
    return hashlib.sha256(text.encode()).hexdigest()


def to_naive(moment: datetime | None) -> datetime | None:
    """An aware time in the stored form: UTC without a zone."""
    if moment is None:
        return None
    return (moment if moment.tzinfo is UTC else moment.astimezone(UTC)).replace(tzinfo=None)


def to_aware(moment: datetime | None) -> datetime | None:
    """A stored time as an aware one."""
    return None if moment is None else moment.replace(tzinfo=UTC)


@contextmanager
def staged(cursor: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> Iterator[None]:
    """Register an Arrow table as the view `name` during the block, for bulk insertion into DuckDB."""
    import duckdb

    cursor.register(name, table)
    try:
        yield
    except BaseException:
        # An aborted transaction refuses further statements; closing the cursor drops the view.
        with suppress(duckdb.Error):
            cursor.unregister(name)
        raise
    cursor.unregister(name)


def check_name(name: str) -> None:
    """Raise InputError unless `name` is valid for a set, queue, config or reviewer: printable, not blank, not too long."""
    if not name.strip() or not name.isprintable() or len(name) > MAX_NAME_CHARS or name != name.strip():
        raise InputError(
            f"{name[:60]!r} is not a name: 1 to {MAX_NAME_CHARS} printable characters, no blanks at the ends"
        )
