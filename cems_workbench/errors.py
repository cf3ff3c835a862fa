"""Errors a user can act on.

Every `WorkbenchError` carries one line that says what is wrong and where (file, row, field, allowed values). The CLI
prints that line and exits with 2; a page shows it in place. Anything else that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WorkbenchError(Exception):
    """Base of every error whose message is meant for the user; `str(error)` is one line."""


class InputError(WorkbenchError):
    """A file, bundle, config or argument that cannot be used as it is."""


class StoreError(WorkbenchError):
    """A store that cannot be opened or written."""


class StoreLockedError(StoreError):
    """Another process holds the store for writing (DuckDB allows one writing process a file)."""


class ModelError(WorkbenchError):
    """A model or model server that cannot be loaded or reached."""


class EmbedderMismatchError(ModelError):
    """The vectors that are to be searched were made by another embedder than the configured one."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to a mistyped one, or None when nothing is close.

    `name` and each of `known` may be dotted paths; only the last segment is compared when the parents agree.
    """
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.55)
    return matches[0] if matches else None
