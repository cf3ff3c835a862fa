"""Warnings of the API: what a result should be read with."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from cems_workbench.errors import one_line


class WorkbenchWarning(UserWarning):
    """What a result should be read with: a fallback, a skipped row, what a config file could not say."""


_collected: ContextVar[list[str] | None] = ContextVar("noted", default=None)


def warn(line: str) -> None:
    """Warn the caller of the API through `warnings`, or through `collect_warnings` if that is active."""
    noted = _collected.get()
    if noted is None:
        warnings.warn(one_line(line, 500), WorkbenchWarning, stacklevel=3)
    else:
        noted.append(one_line(line, 500))


@contextmanager
def collect_warnings() -> Iterator[list[str]]:
    """Collect this thread's warnings in the yielded list; `warnings.catch_warnings` would affect all threads."""
    lines: list[str] = []
    token = _collected.set(lines)
    try:
        yield lines
    finally:
        _collected.reset(token)
