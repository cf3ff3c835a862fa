"""The garbage collector, told what lives as long as the process.

A full collection walks every object there is. With Streamlit, DuckDB, Chroma and torch loaded that is some 80 ms on two
cores, paid several times while the app starts and again in the middle of a slider's move.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

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
    atexit.unregister(gc.unfreeze)
    atexit.register(gc.unfreeze)  # or the interpreter cannot clean up at its end, and native modules complain of leaks
