"""Asking with a deadline what knows none of its own: `in_thread(ask).result(seconds)`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
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
