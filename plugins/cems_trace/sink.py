"""The file spans are appended to, and which file is in use.

The spans of one query are written together, when its root ends: one `write` of whole lines to a file opened for appending, which a local
file system does not interleave with the writes of other processes. On a network file system give each process a file. The file is
opened for each write: a fork, a log rotation and a closed descriptor do no harm.
"""

from __future__ import annotations

import logging
import os
from contextvars import ContextVar
from pathlib import Path

LOG = logging.getLogger("cems_trace")
"""Not `warnings`: under `-W error` those would be exceptions of the traced pipeline."""

_warned: set[str] = set()


def warn_once(message: str) -> None:
    """Log a warning, the first time in this process."""
    if message not in _warned:
        _warned.add(message)
        LOG.warning("%s", message)


class Sink:
    """A file of JSON lines. `texts` says whether the texts and metadata of results are written too."""

    def __init__(self, path: str | os.PathLike[str], *, texts: bool = True) -> None:
        self.path = Path(path).absolute()
        self.texts = texts
        self.write(b"")

    def write(self, lines: bytes) -> None:
        """Append whole lines. A failure is one warning."""
        try:
            with open(self.path, "ab", buffering=0) as file:
                left = memoryview(lines)
                while left:
                    left = left[file.write(left) or 0 :]  # a disk that fills up takes a part
        except OSError as error:
            warn_once(f"trace: {self.path} cannot be written ({error.strerror or error}); these queries are not traced")


class Tracing:
    """Tracing into one file, from now on until `stop`, or to the end of a `with` block."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self._before = _of_context.get()
        _of_context.set(self)
        _active.append(self)

    @property
    def path(self) -> Path:
        """The file, absolute."""
        return self.sink.path

    def stop(self) -> None:
        """Queries that begin from now on go where they went before. Twice does no harm."""
        if self in _active:
            _active.remove(self)
        if _of_context.get() is self:
            _of_context.set(self._before)

    def __enter__(self) -> Tracing:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()


_of_context: ContextVar[Tracing | None] = ContextVar("cems_workbench_trace_sink", default=None)
_active: list[Tracing] = []
"""The last one is used where the context has none: a thread begins with an empty context."""


def current_sink() -> Sink | None:
    """Where a query that begins now is written, or None."""
    if not _active:
        return None
    tracing = _of_context.get()
    return (tracing if tracing is not None and tracing in _active else _active[-1]).sink


def stop_last() -> None:
    """Stop what was started last, if anything was."""
    if _active:
        _active[-1].stop()
