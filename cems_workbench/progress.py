"""How long work reports itself: a callback with a label, a count and a total, which may also cancel the work."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called as `progress(label, done, total)`; it may raise `Cancelled`, and what was finished by then stays."""


class Cancelled(Exception):
    """Raised out of a progress callback by a user who pressed cancel."""


def silent(label: str, done: int, total: int) -> None:
    """The progress nobody watches."""
