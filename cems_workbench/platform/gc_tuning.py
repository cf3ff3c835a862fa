"""Garbage collector tuning: freezes long-lived objects, so that full collections stay short.

A full collection takes about 80 ms with Streamlit, DuckDB, Chroma and torch loaded, and Streamlit runs one after every page run.
"""

from __future__ import annotations

import atexit
import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

FREEZE_AFTER_S, REFREEZE_EVERY_S = 0.005, 600.0
"""A full collection that took longer freezes the survivors; all objects are unfrozen and collected again at this interval."""

FULL_GENERATION = 2

pause = gc.disable


@contextmanager
def paused() -> Iterator[None]:
    """Disable collection inside the block: for code that allocates many objects without reference cycles."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def freeze() -> None:
    """Exclude every live object from later collections, and enable collection."""
    gc.freeze()
    gc.enable()
    _unfreeze_at_exit()


@cache
def watch() -> None:
    """Freeze the survivors of each long full collection for REFREEZE_EVERY_S.

    Imports and large evidence then do not slow later page runs. Cyclic garbage among the frozen objects, such as closed
    sessions, is freed after that interval.
    """
    gc.callbacks.append(_FreezeLongLived())
    _unfreeze_at_exit()


class _FreezeLongLived:
    """A `gc.callbacks` entry, called before and after each collection."""

    def __init__(self) -> None:
        self._started_at = self._unfrozen_at = time.monotonic()

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        # Young collections are short.
        if info["generation"] < FULL_GENERATION:
            return
        now = time.monotonic()
        if phase == "start":
            self._started_at = now
        elif now >= self._unfrozen_at + REFREEZE_EVERY_S:
            self._unfrozen_at = now
            # Garbage among the frozen objects is collected at the next full collection.
            gc.unfreeze()
        elif now >= self._started_at + FREEZE_AFTER_S:
            gc.freeze()


@cache
def _unfreeze_at_exit() -> None:
    """Unfreeze before the interpreter exits; otherwise native modules report leaks."""
    atexit.register(gc.unfreeze)
