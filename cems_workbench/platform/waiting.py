"""Waiting with a limit: for work in a thread, and for a condition."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")


def run_in_thread(function: Callable[[], T]) -> Future[T]:
    """Start `function` in a daemon thread; `.result(seconds)` returns or raises what it does, or raises TimeoutError. A
    call that timed out continues in the background and, unlike a thread of a pool, does not delay the exit of the
    process."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    # Threads of a pool are joined at exit; a daemon thread that hangs is not.
    threading.Thread(target=run, name="run_in_thread", daemon=True).start()
    return future


def close_socket_after(descriptor: int, seconds: float) -> AbstractContextManager[None]:
    """Shut down a connection, by its file descriptor, if the block takes longer: a blocked read in it then fails."""
    return call_after(seconds, partial(_shut_down, descriptor))


@contextmanager
def call_after(seconds: float, call: Callable[[], object]) -> Iterator[None]:
    """Call what ends the block, in another thread, if it takes longer."""
    timer = threading.Timer(seconds, call)
    timer.daemon = True  # a forgotten one must not delay the exit of the process
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _shut_down(descriptor: int) -> None:
    # A duplicate: closing this object must not close the caller's descriptor.
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as same:
        same.shutdown(socket.SHUT_RDWR)


log = logging.getLogger(__name__)
NOTICE_AFTER_S, NOTICE_EVERY_S = 0.3, 10.0
"""How long a wait is silent, and the seconds between two lines about the same thing."""
WAITING = "waiting for "
"""How the name of a progress begins whose wait is reported here."""

WaitNotifier = Callable[[str], None]


def _nobody() -> str:
    return ""


class WaitNotices:
    """The lines about waits. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self.clock = clock
        self._notifier: WaitNotifier = log.warning
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
