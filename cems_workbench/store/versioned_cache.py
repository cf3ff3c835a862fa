"""What takes all rows to read or to count: done once for each content version of the store, and kept for whoever asks again.

Pages ask for such things whenever they are drawn. What is kept is shared by all who ask, so it must not be changed.
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
"""Things of one store that are kept, those that were asked for last."""


class VersionedCache:
    """Keeps what was read of the present content version, by name; methods may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()

    def get(self, name: Hashable, read: Callable[[duckdb.DuckDBPyConnection], Read]) -> Read:
        """What `read` gave of the present version, reading it where that was not done yet; other processes may have written meanwhile."""
        version = self._database.cached_content_version()
        with self._lock:
            kept = self._entries.get(name)
        if kept is None or kept[0] != version:
            with self._database.reading() as cursor:
                kept = read_content_version(cursor), read(cursor)
        with self._lock:
            self._entries[name] = kept
            self._entries.move_to_end(name)
            while len(self._entries) > MAX_ENTRIES:
                self._entries.popitem(last=False)
        found: Read = kept[1]
        return found

    def clear(self) -> None:
        """Keep nothing any more."""
        with self._lock:
            self._entries.clear()
