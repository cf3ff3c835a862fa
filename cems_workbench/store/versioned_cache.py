"""Cache of full-table reads and counts, computed once per content version of the store.

Pages need such values on every rerun. Cached values are shared by all callers and must not be modified.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

from cems_workbench.store.meta import read_content_version

if TYPE_CHECKING:
    import duckdb

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
