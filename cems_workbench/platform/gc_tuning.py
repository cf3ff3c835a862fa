"""The garbage collector, told what lives as long as the process.

A full collection walks every object there is. With Streamlit, DuckDB, Chroma and torch loaded that is some 80 ms on two
cores, paid several times while the app starts, and again after every run of a page: Streamlit makes a full one then.
"""

from __future__ import annotations

import atexit
import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

LONG, RENEWED = 0.005, 600.0
"""Seconds: what a full collection of that many left is left out of the next ones, and after that many all is looked through again."""

FULL = 2
"""The generation that holds all."""

pause = gc.disable


@contextmanager
def paused() -> Iterator[None]:
    """No collection while the block runs: for work that makes a great many objects, none of which is garbage in a cycle."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def freeze() -> None:
    """Leave everything that is alive now out of later collections, and collect again from here on."""
    gc.freeze()
    gc.enable()
    _let_go_at_the_end()


@cache
def watch() -> None:
    """From now on what a long full collection finds alive is left out of the next ones, for ten minutes.

    So a page that imports what it draws with, or reads a large set of evidence, is not slower from then on. What of it
    becomes garbage in a cycle, as a session that was closed does, is freed after those minutes.
    """
    gc.callbacks.append(_Watch())
    _let_go_at_the_end()


class _Watch:
    """Called by the collector before and after each collection."""

    def __init__(self) -> None:
        self._began = self._renewed = time.monotonic()

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] < FULL:
            return
        now = time.monotonic()
        if phase == "start":
            self._began = now
        elif now >= self._renewed + RENEWED:
            self._renewed = now
            gc.unfreeze()
        elif now >= self._began + LONG:
            gc.freeze()


@cache
def _let_go_at_the_end() -> None:
    """Or the interpreter cannot clean up at its end, and native modules complain of leaks."""
    atexit.register(gc.unfreeze)
