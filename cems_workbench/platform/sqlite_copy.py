"""Copying a SQLite file that another program may be writing to. Run as a script, in a separate process, or called where no connection
of this process can be open on the file:

    python -I -S sqlite_copy.py look FILE
    python -I -S sqlite_copy.py copy FILE FOLDER SECONDS

Two reasons for the process. On POSIX, closing a file drops every lock that the process holds on it, also those of a SQLite connection
elsewhere in it. And no connection is made to the file: one of `mode=ro` leaves FILE-wal and FILE-shm behind (seen in SQLite 3.40.1),
and keeps the owner from removing them.

A copy is consistent if neither the file nor its journal changed while it was read. In WAL mode that is not needed: a shared lock on the
first reader's byte of FILE-shm keeps checkpoints out, which are all that changes the file, and delays no commit; the WAL, copied after
the file, is valid up to its last whole commit.

Prints a line of JSON: {"header": hex} or {"copied": [signature]} or {"problem": word}.

Source: https://www.sqlite.org/walformat.html#wal_locks, https://www.sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

CHUNK = 8_000_000
HEADER = 100
WAL_HEADER = 32
READ_LOCK_0 = 123
"""Byte of FILE-shm: 120 + WAL_READ_LOCK(0)."""
TICK_NS = 20_000_000
"""A time of change may be this much too old: files that changed later are looked at again."""
SIDES = ("-wal", "-journal")
State = list[list[int] | None]


class Changed(Exception):
    """The file changed while it was copied."""


def state(path: str) -> State:
    """(inode, size, time of change in ns) of the file, its WAL and its journal; None where there is none."""
    found: State = []
    for suffix in ("", *SIDES):
        try:
            stat = os.stat(path + suffix)
            found.append([stat.st_ino, stat.st_size, stat.st_mtime_ns])
        except OSError:
            found.append(None)
    return found


def header(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(HEADER)


def locked(path: str) -> int | None:
    """A file descriptor that keeps checkpoints out while it is open; None if there is nothing to lock or it cannot be locked."""
    try:
        import fcntl

        handle = os.open(path + "-shm", os.O_RDONLY)
    except (ImportError, OSError):
        return None
    # A checkpoint holds the lock only while it writes.
    for _ in range(50):
        try:
            fcntl.lockf(handle, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, READ_LOCK_0)
            return handle
        except OSError:
            time.sleep(0.01)
    os.close(handle)
    return None


def wait_for_tick(found: State) -> None:
    """Wait until no time of change is so recent that a later change could have the same."""
    latest = max(each[2] for each in found if each)
    left = latest + TICK_NS - time.time_ns()
    if 0 < left <= TICK_NS:
        time.sleep(left / 1e9)


def copy_bytes(path: str, target: str, unchanged: Callable[[], bool]) -> None:
    with open(path, "rb") as source, open(target, "wb") as copy:
        while chunk := source.read(CHUNK):
            copy.write(chunk)
            if not unchanged():
                raise Changed


def copy_wal(path: str, target: str) -> None:
    """Copy the WAL until it is of one generation: a writer may begin it again."""
    for _ in range(20):
        with open(path, "rb") as source, open(target, "wb") as copy:
            first = source.read(WAL_HEADER)
            copy.write(first)
            while chunk := source.read(CHUNK):
                copy.write(chunk)
            source.seek(0)
            if source.read(WAL_HEADER) == first:
                return
    raise Changed


def copy_once(path: str, target: str) -> State:
    """Copy the file and what belongs to it; returns its state. Raises Changed."""
    is_wal = header(path)[18:20] == b"\2\2"
    handle = locked(path) if is_wal else None
    try:
        before = state(path)
        if before[0] is None:
            raise FileNotFoundError(path)
        if handle is None:
            wait_for_tick(before)
            if state(path) != before:
                raise Changed
        # With the lock only the file itself has to stay: an owner that quits changes it, whatever is locked.
        parts = 1 if handle is not None else len(before)
        copy_bytes(path, target, lambda: state(path)[:parts] == before[:parts])
        for place, suffix in enumerate(SIDES, start=1):
            with suppress(FileNotFoundError):
                os.remove(target + suffix)
            if before[place] is None:
                continue
            if suffix == "-wal" and handle is not None:
                copy_wal(path + suffix, target + suffix)
            else:
                copy_bytes(path + suffix, target + suffix, lambda: state(path) == before)
        if state(path)[:parts] != before[:parts]:
            raise Changed
        return before
    finally:
        if handle is not None:
            os.close(handle)


def copy(path: str, folder: str, seconds: float) -> dict[str, Any]:
    """Copy until it succeeds or the time is over."""
    target, end = os.path.join(folder, "copy.db"), time.monotonic() + seconds
    while True:
        # FileNotFoundError: the owner removed its journal meanwhile.
        try:
            return {"copied": copy_once(path, target)}
        except (Changed, FileNotFoundError):
            if not os.path.exists(path):
                return {"problem": "missing"}
            if time.monotonic() > end:
                return {"problem": "busy"}
            time.sleep(0.005)


def main(command: str, path: str, *rest: str) -> dict[str, Any]:
    try:
        if command == "look":
            return {"header": header(path).hex()}
        return copy(path, rest[0], float(rest[1]))
    except OSError as error:
        return {"problem": error.strerror or str(error)}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
