"""Writing files: each is written aside and takes its name when it is whole, so that a failure leaves what was there as it was."""

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
def set_aside(path: Path, folder: bool = False) -> Iterator[Path]:
    """A place to write to, an empty file or folder, that takes the name `path` when the block ends. Raises OSError.

    A link is followed. A pipe or a device is written to as it is: it has nothing to keep, and must not be replaced.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    path = path.resolve() if path.is_symlink() else path
    if path.is_dir() and not folder:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    part = path.with_name(f".{os.getpid()}-{os.urandom(3).hex()}.part")
    try:
        part.mkdir() if folder else part.touch()
        if path.is_file():
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            shutil.copymode(path, part)
        yield part
        if folder and path.exists():
            path.rmdir()
        if not folder:
            _on_disk(part)
        os.replace(part, path)
    finally:
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _on_disk(part: Path) -> None:
    """Have the content on the disk before its name is: some disks say only then that they are full."""
    handle = os.open(part, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def written_whole(path: Path, folder: bool = False) -> Iterator[Path]:
    """`set_aside`, which raises InputError when it cannot be written, or when a folder would take the place of something."""
    try:
        if folder and path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InputError(f"{path} is there already; name a new or an empty directory")
        if not folder and path.is_dir():
            raise InputError(f"{path} is a directory; name a file in it")
        with set_aside(path, folder) as part:
            yield part
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    except UnicodeEncodeError as error:
        raise InputError(f"{path}: cannot be written: {error.object[error.start]!r} is no UTF-8") from None


def write_text(path: Path, text: str, newline: str | None = None) -> None:
    """Write a text in UTF-8, whole or not at all; line ends as `open` has them. Raises InputError."""
    with written_whole(path) as part:
        part.write_text(text, encoding="utf-8", newline=newline)


def between(text: str, begin: str, end: str, part: str) -> str:
    """A page with `part` in place of what stands between two marks. Raises ValueError when it has lost them."""
    before, mark, rest = text.partition(begin)
    _, closing, after = rest.partition(end)
    if not mark or not closing:
        raise ValueError(f"the page has lost the marks {begin} and {end}")
    return f"{before}{begin}\n\n{part}\n\n{end}{after}"


def safe_stem(text: str, otherwise: str, most: int = 80) -> str:
    """A text as a file's name without its suffix, safe on every system; `otherwise` where nothing of it is left."""
    return re.sub(r"[^\w.-]+", "-", text)[:most].strip("-.") or otherwise
