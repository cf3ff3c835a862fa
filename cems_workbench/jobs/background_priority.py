"""Who works for somebody who waits goes first: what is searched ahead, for nobody yet, stands still meanwhile.

Both need all cores and the one reranker: a query that was typed while judged queries were searched in the background took 1.4 times
as long until the order of its lists was painted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

QUIET_S = 2.0
"""Work in the background goes on when nobody has been waited for during so long: the browser still draws, and a next key may follow."""
MAX_WAIT_S = 5.0
"""The longest that one step gives way: what is waited for may itself take minutes, and then both get on."""


class ForegroundGate:
    """The work of a process that somebody waits for; may be used by any threads."""

    def __init__(self, quiet_s: float = QUIET_S, max_wait_s: float = MAX_WAIT_S) -> None:
        """Both in seconds, as the constants of these names."""
        self._quiet, self._most = quiet_s, max_wait_s
        self._changed = threading.Condition()
        self.active = 0
        """How many are waited for at the moment."""
        self._ended = float("-inf")

    @contextmanager
    def foreground_work(self) -> Iterator[None]:
        """Somebody waits for what is done within."""
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
        """Return when nobody has been waited for during the quiet time, or after the longest. Never called with a lock held."""
        latest = time.monotonic() + self._most
        with self._changed:
            while (now := time.monotonic()) < latest:
                until = latest if self.active else min(latest, self._ended + self._quiet)
                if until <= now:
                    return
                self._changed.wait(until - now)


FOREGROUND = ForegroundGate()
"""That of this process: the runs of its pages."""
