"""What a run has made before, kept by whoever runs it: a page for all its sessions or one, a command as long as it lasts, or nobody."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

Made = TypeVar("Made")


class Cache(Protocol):
    """Gives what was made for a key, or makes it. What `make` raises passes through and is not kept."""

    def __call__(self, key: Hashable, make: Callable[[], Made], /) -> Made:
        """What `make` returned the first time that it was asked for under this key."""


def uncached(key: Hashable, make: Callable[[], Made], /) -> Made:
    """Make it anew each time."""
    return make()


class RecentCache:
    """The last `size` values, by key; the one that was made first goes first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._made: dict[Hashable, Any] = {}

    def __call__(self, key: Hashable, make: Callable[[], Made], /) -> Made:
        """The value of a key, made when it is not there."""
        if key not in self._made:
            value = make()
            while len(self._made) >= self._size:
                self._made.pop(next(iter(self._made)))
            self._made[key] = value
        known: Made = self._made[key]
        return known
