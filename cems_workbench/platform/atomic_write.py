"""Atomic file writes: write to a temporary sibling, then rename it, so that a failure leaves the previous file unchanged."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cems_workbench.errors import InputError


@contextmanager
def write_atomically(path: Path, directory: bool = False) -> Iterator[Path]:
    """An empty temporary file or directory that is renamed to `path` when the block ends. Raises OSError. A symbolic
    link is followed. A pipe or a device is written to directly."""
    # A rename would replace the pipe or device by a file.
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    # A rename would replace the link instead of its target.
    path = path.resolve() if path.is_symlink() else path
    if path.is_dir() and not directory:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    # A sibling: a rename is atomic only within one file system.
    part = path.with_name(f".{os.getpid()}-{os.urandom(3).hex()}.part")
    try:
        part.mkdir() if directory else part.touch()
        if path.is_file():
            # A rename needs only the directory's permission, and would replace a write-protected file.
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            shutil.copymode(path, part)
        yield part
        if directory and path.exists():
            # Only an empty directory is replaced: for any other one this raises.
            path.rmdir()
        if not directory:
            _flush_to_disk(part)
        os.replace(part, path)
    finally:
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _flush_to_disk(part: Path) -> None:
    """Flush the content before the rename: some file systems report a full disk only on fsync."""
    fd = os.open(part, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def output_path(path: Path, directory: bool = False) -> Iterator[Path]:
    """`write_atomically` for a path that the user named. Raises InputError if it cannot be written or the directory is not empty."""
    try:
        if directory and path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InputError(f"{path} already exists; name a new or an empty directory")
        if not directory and path.is_dir():
            raise InputError(f"{path} is a directory; name a file in it")
        with write_atomically(path, directory) as part:
            yield part
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    except UnicodeEncodeError as error:
        raise InputError(f"{path}: cannot be written: {error.object[error.start]!r} is not UTF-8") from None


def write_text(path: Path, text: str, newline: str | None = None) -> None:
    """Write a text in UTF-8, atomically; `newline` as in `open`. Raises InputError."""
    with output_path(path) as part:
        part.write_text(text, encoding="utf-8", newline=newline)


def safe_stem(text: str, default: str, max_length: int = 80) -> str:
    """A text as a file name without suffix, safe on every system; `default` if no character of it is allowed."""
    return re.sub(r"[^\w.-]+", "-", text)[:max_length].strip("-.") or default
