"""Progress callback: label, count and total of long work; it may also cancel the work."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called as `progress(label, done, total)`; it may raise `Cancelled`; finished work stays."""


class Cancelled(Exception):
    """Raised out of a progress callback by a user who pressed cancel."""


def silent(label: str, done: int, total: int) -> None:
    """A callback that does nothing."""
