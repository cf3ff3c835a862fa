"""Asking with a deadline what knows none of its own: `in_thread(ask).result(seconds)`, or `cut_off` where a socket is asked."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")


def in_thread(ask: Callable[[], T]) -> Future[T]:
    """`ask`, begun in a thread of its own: `.result(seconds)` is what it returns or raises, or TimeoutError by then.

    What is given up on runs on unseen and does not keep the process from ending, as a thread of a pool would.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(ask())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="in_thread", daemon=True).start()
    return future


@contextmanager
def cut_off(descriptor: int, seconds: float) -> Iterator[None]:
    """Cut a connection, by the number of its socket, when the block has not ended by then: who waits for it there goes on with an error."""
    timer = threading.Timer(seconds, _cut, (descriptor,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _cut(descriptor: int) -> None:
    """End a connection from another thread."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as same:
        same.shutdown(socket.SHUT_RDWR)
