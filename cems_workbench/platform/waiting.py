"""Saying what this process waits for: each wait is reported once, and again every ten seconds while it lasts.

Waits for one thing belong together: a command opens the files of a store many times, and may wait for another process each time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)
NOTICE_AFTER_S, NOTICE_EVERY_S = 0.3, 10.0
"""How long a wait is silent, and the seconds between two lines about the same thing."""
WAITING = "waiting for "
"""How the name of a progress begins whose wait is reported here."""

WaitNotifier = Callable[[str], None]


def _log_notice(line: str) -> None:
    log.warning(line)


def _nobody() -> str:
    return ""


class WaitNotices:
    """The lines about waits. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self.clock = clock
        self._notifier: WaitNotifier = _log_notice
        self._reader: Callable[[], str] = _nobody
        self._said: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def notify(self, notifier: WaitNotifier, reader: Callable[[], str] = _nobody) -> None:
        """Call `notifier` with each line instead of logging it; `reader` names who reads the lines of this thread."""
        with self._lock:
            self._notifier, self._reader = notifier, reader
            self._said.clear()

    def say(self, thing: str, words: str, since: float) -> None:
        """Say that this process waits for `thing`, described by `words`, since a moment of `clock`; nothing if it has just been said."""
        now = self.clock()
        if now - since <= NOTICE_AFTER_S:
            return
        with self._lock:
            key = self._reader(), thing
            before = self._said.get(key)
            if before is not None and now - before < NOTICE_EVERY_S:
                return
            self._said = {one: moment for one, moment in self._said.items() if now - moment < NOTICE_EVERY_S}
            self._said[key] = now
            notifier = self._notifier
        notifier(f"{WAITING}{words}" + (f", {now - since:.0f} s so far" if now - since >= NOTICE_EVERY_S else ""))


NOTICES = WaitNotices()
"""Those of this process."""
