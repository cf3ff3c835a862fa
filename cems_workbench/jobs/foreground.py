"""The pause of background work while a page works for a user.

Both need all cores and the one reranker: with a gather in the background, a typed query took 1.4 times as long until the order of its
lists was painted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

QUIET_S = 2.0
"""Background jobs resume after so much idle time: the browser still draws, and another key may follow."""
MAX_WAIT_S = 5.0
"""Maximum pause of one background step: foreground work may take minutes, and then both proceed."""


class ForegroundGate:
    """Counts the foreground work of a process, and lets background threads wait for it; thread-safe."""

    def __init__(self, quiet_s: float = QUIET_S, max_wait_s: float = MAX_WAIT_S) -> None:
        """Seconds, see `QUIET_S` and `MAX_WAIT_S`."""
        self._quiet, self._most = quiet_s, max_wait_s
        self._changed = threading.Condition()
        self.active = 0
        """Number of foreground tasks in progress."""
        self._ended = float("-inf")

    @contextmanager
    def foreground_work(self) -> Iterator[None]:
        """The block is foreground work."""
        with self._changed:
            self.active += 1
        try:
            yield
        finally:
            with self._changed:
                self.active -= 1
                self._ended = time.monotonic()
                self._changed.notify_all()

    def wait_while_busy(self) -> None:
        """Wait for `quiet_s` without foreground work, at most `max_wait_s`. Never called with a lock held."""
        latest = time.monotonic() + self._most
        with self._changed:
            while (now := time.monotonic()) < latest:
                until = latest if self.active else min(latest, self._ended + self._quiet)
                if until <= now:
                    return
                self._changed.wait(until - now)


FOREGROUND = ForegroundGate()
"""The gate of this process; its pages enter it."""
