"""Timeouts for calls that have none: `run_in_thread(function).result(seconds)`, or `close_socket_after` for a socket."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")


def run_in_thread(function: Callable[[], T]) -> Future[T]:
    """Start `function` in a daemon thread; `.result(seconds)` returns or raises what it does, or raises TimeoutError.

    A call that timed out continues in the background and, unlike a thread of a pool, does not delay the exit of the process.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    # Threads of a pool are joined at exit; a daemon thread that hangs is not.
    threading.Thread(target=run, name="run_in_thread", daemon=True).start()
    return future


@contextmanager
def close_socket_after(descriptor: int, seconds: float) -> Iterator[None]:
    """Shut down a connection, by its file descriptor, if the block takes longer: a blocked read in it then fails."""
    timer = threading.Timer(seconds, _shut_down, (descriptor,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _shut_down(descriptor: int) -> None:
    """Shut down a socket from another thread."""
    # A duplicate: closing this object must not close the caller's descriptor.
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as same:
        same.shutdown(socket.SHUT_RDWR)
