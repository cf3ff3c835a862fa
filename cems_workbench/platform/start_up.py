"""What keeps starts and page runs short: pyarrow without pandas, fewer collections of garbage, names that are imported when asked for.

At the first list that pyarrow makes an array of, it imports pandas to see whether the list is a series: 0.2 s and 40 MB, which no command
uses. Not for the app, because Streamlit turns tables of pandas into Arrow. A full collection takes about 80 ms with Streamlit, DuckDB,
Chroma and torch loaded, and Streamlit runs one after every page run: long-lived objects are frozen.
"""

from __future__ import annotations

import atexit
import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any


def load() -> None:
    """Import pyarrow, which then takes pandas as not installed until the process ends; nothing where either is already loaded."""
    if "pandas" in sys.modules or "pyarrow" in sys.modules:
        return
    import pyarrow

    sys.meta_path.insert(0, _NoPandas)
    try:
        pyarrow.array(["asks for pandas"])
    finally:
        sys.meta_path.remove(_NoPandas)


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


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
    """Freeze the survivors of each long full collection for REFREEZE_EVERY_S. Imports and large evidence then do not
    slow later page runs. Cyclic garbage among the frozen objects, such as closed sessions, is freed after that
    interval."""
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


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package that exports names, separated by spaces, each from a module below it."""
    home = {name: module for module, names in homes.items() for name in names.split()}

    def __getattr__(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
