"""One command in this process as if it had been started for it: streams, arguments, directory and environment are the client's.

The streams are the client's own descriptors, so that bytes, terminal and width are the same without anything in between.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

NAMES = ("<stdin>", "<stdout>", "<stderr>")
BUG, LOST_OUTPUT, INTERRUPTED = 1, 120, 130
"""Exit codes of Python: after a traceback, if the last output could not be written, and after an interrupt."""


class _Reporting(io.FileIO):
    """A stream that calls `before_first` before its first byte."""

    def __init__(self, descriptor: int, before_first: Callable[[], None]) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._before_first = before_first

    def write(self, data: Any) -> int | None:  # type: ignore[override]
        self._before_first()
        return super().write(data)


def run_here(
    command: Callable[[], None], request: dict[str, Any], streams: Sequence[int], writing: Callable[[], None]
) -> int:
    """Run `command` with the client's streams, which are closed at the end; returns its exit code.

    `writing` is called before bytes are written. Raises OSError, with nothing run, if the client's directory is not the same here.
    """
    os.chdir(request["directory"][0])
    folder = os.stat(".")
    if [folder.st_dev, folder.st_ino] != request["directory"][1:]:
        raise OSError("the working directory is another one here")
    for name in set(os.environ) - set(request["environment"]):
        del os.environ[name]
    os.environ.update(request["environment"])
    time.tzset()
    os.umask(request["umask"])
    sys.argv, sys.orig_argv = list(request["argv"]), list(request["orig_argv"])
    kept = [os.dup(descriptor) for descriptor in range(len(NAMES))]
    try:
        for target, descriptor in enumerate(streams):
            os.dup2(descriptor, target, inheritable=True)
        _use_streams(writing)
        return _exit_code(command)
    finally:
        for target, descriptor in enumerate(kept):
            os.dup2(descriptor, target, inheritable=True)
            os.close(descriptor)
        _use_streams(lambda: None)


def _use_streams(writing: Callable[[], None]) -> None:
    """Make new objects of the three streams, as Python does when it starts."""
    before = (sys.stdin, sys.stdout, sys.stderr)
    made = []
    for descriptor, (name, old) in enumerate(zip(NAMES, before, strict=True)):
        raw = _Reporting(descriptor, writing) if descriptor else io.FileIO(descriptor, "rb", closefd=False)
        raw.name = name
        unbuffered = bool(descriptor and getattr(old, "write_through", False))  # PYTHONUNBUFFERED
        lines = not unbuffered and (descriptor == 2 or raw.isatty())
        binary: Any = raw if unbuffered else io.BufferedWriter(raw) if descriptor else io.BufferedReader(raw)
        stream = io.TextIOWrapper(binary, old.encoding, old.errors, line_buffering=lines, write_through=unbuffered)
        setattr(stream, "mode", "w" if descriptor else "r")  # noqa: B010 (set by Python too; the type has it read-only)
        made.append(stream)
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__ = made  # type: ignore[misc]


def _exit_code(command: Callable[[], None]) -> int:
    """Run the command and write out what is buffered; the exit code that Python would end with."""
    code = 0
    try:
        command()
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = INTERRUPTED if isinstance(error, KeyboardInterrupt) else BUG
    try:
        sys.stdout.flush()
    except OSError as error:
        sys.stderr.write(f"Exception ignored in: {sys.stdout!r}\n{type(error).__name__}: {error}\n")
        code = LOST_OUTPUT
        _drop_buffered()
    return code & 0xFF


def _drop_buffered() -> None:
    """Make stdout write to nothing, so that what could not be written does not fail again."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
    sys.stdout.flush()
