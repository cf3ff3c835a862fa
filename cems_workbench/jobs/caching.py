"""Caches that a caller hands to a job: a page has one for all sessions or for one, a command has one while it runs, or none."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

Made = TypeVar("Made")


class Cache(Protocol):
    """Returns the value of a key, made on the first call. What `make` raises passes through and is not cached."""

    def __call__(self, key: Hashable, make: Callable[[], Made], /) -> Made:
        """The value that `make` returned on the first call with this key."""


def uncached(key: Hashable, make: Callable[[], Made], /) -> Made:
    """No cache: make the value on every call."""
    return make()


class RecentCache:
    """The last `size` values by key, evicted in the order in which they were made."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._made: dict[Hashable, Any] = {}

    def __call__(self, key: Hashable, make: Callable[[], Made], /) -> Made:
        """The value of a key, made if it is absent."""
        if key not in self._made:
            value = make()
            while len(self._made) >= self._size:
                self._made.pop(next(iter(self._made)))
            self._made[key] = value
        known: Made = self._made[key]
        return known
