"""Lock between processes on one file, released on request.

A process acquires the lock when it first needs the file and keeps it until another process requests it. It then releases the lock after
the current operation, MIN_HOLD_S after acquiring it at the earliest.

The holder has an flock on `NAME.lock`, which contains its pid and command. The first waiter has an flock on `NAME.next`, which the holder
polls; other waiters queue for that one. The kernel drops both when a process ends.
See docs/internals/decisions/0017-inter-process-locking.md.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakSet

from cems_workbench.errors import StoreError, StoreLockedError, one_line
from cems_workbench.platform.waiting import NOTICES

log = logging.getLogger(__name__)
POLL_INTERVAL_S, RETRY_INTERVAL_S = 0.02, 0.003
"""How often the holder looks for waiters, and how often a waiter tries to acquire the lock."""
MIN_HOLD_S, IDLE_RELEASE_S = 0.12, 0.03
"""Requested, the lock is released after MIN_HOLD_S, or sooner if the file has not been used for IDLE_RELEASE_S."""
DRAIN_TIMEOUT_S = 1.0
"""How long new threads are held back at most, so that the current operations finish."""
ACQUIRE_TIMEOUT_S = 30.0
"""When a waiter gives up."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process: its pid and command name, without arguments, which may be secrets."""

    pid: int
    command: str

    def __str__(self) -> str:
        """As in "pid 123 (cems-workbench import …)"."""
        return f"pid {self.pid} ({self.command})" if self.pid else "another process"


def own_command() -> str:
    """The command name that waiting processes see."""
    name, *rest = (Path(sys.argv[0]).name if sys.argv else "", *sys.argv[1:])
    if name in ("streamlit", "__main__.py", "cems-workbench", "cems_workbench"):
        name, rest = "cems-workbench", ["app"] if name == "streamlit" else rest
    # Further arguments may be secrets.
    shown = rest[:1] if name == "cems-workbench" else []
    return one_line(" ".join([name or "python", *shown, *(["…"] if rest[len(shown) :] else [])]), 60)


class SharedLock:
    """This process's side of the lock on one file. Thread-safe."""

    def __init__(
        self, lock: Path, file_name: str, on_acquire: Callable[[], None], on_release: Callable[[], None]
    ) -> None:
        """`on_acquire` opens the file, `on_release` closes it; `file_name` names it in errors."""
        self._path, self._file_name = lock, file_name
        self._on_acquire, self._on_release = on_acquire, on_release
        self._state = threading.Condition()
        self._held = self._acquiring = self._requested = self._draining = self._closed = False
        self._holds: dict[int, int] = {}
        self._acquired_at = self._idle_at = 0.0
        self._fd: int | None = None
        self._watcher: threading.Thread | None = None
        self.longest_wait_s = 0.0
        """The longest wait for the lock so far."""
        _locks.add(self)

    @contextmanager
    def acquire(self, timeout_s: float | None = None) -> Iterator[None]:
        """Hold the lock inside the block; may be nested. Raises StoreLockedError if another process does not release it
        within `timeout_s` (default ACQUIRE_TIMEOUT_S), and what `on_acquire` raises."""
        thread = threading.get_ident()
        self._enter(thread, ACQUIRE_TIMEOUT_S if timeout_s is None else timeout_s)
        try:
            yield
        finally:
            self._leave(thread)

    def close(self, close_file: Callable[[], None] | None = None) -> None:
        """Release the lock, if held. `close_file` replaces `on_release`; if it raises, nothing changes."""
        with self._state:
            if self._held:
                (close_file or self._on_release)()
                self._unlock()
        self.stop_watcher()

    def release(self) -> None:
        """Release the lock now unless it is in use; it is acquired again when it is needed."""
        with self._state:
            if self._held and not self._holds:
                self._on_release()
                self._unlock()

    def stop_watcher(self) -> None:
        """End the thread that polls for waiters; DuckDB complains if it is alive when Python exits."""
        with self._state:
            self._closed = True
            self._state.notify_all()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join(DRAIN_TIMEOUT_S)

    @property
    def name(self) -> str:
        return self._path.name

    @property
    def held(self) -> bool:
        return self._held

    def _enter(self, thread: int, timeout_s: float) -> None:
        with self._state:
            if self._draining and thread not in self._holds:
                # Nested calls pass: the holder waits for them. After the timeout new threads pass too.
                self._state.wait_for(lambda: not self._draining, DRAIN_TIMEOUT_S)
            while not self._held:
                if self._acquiring:
                    self._state.wait()
                    continue
                self._acquiring = True
                # Waiting for another process must not block the threads that release or close.
                self._state.release()
                try:
                    self._lock_file(timeout_s)
                    try:
                        self._on_acquire()
                    except BaseException:
                        self._unlock()
                        raise
                finally:
                    self._state.acquire()
                    self._acquiring = False
                    self._state.notify_all()
                self._held, self._acquired_at = True, time.monotonic()
                # The thread starts only now: a process that never acquires the lock needs none.
                if self._watcher is None or self._closed:
                    self._closed = False
                    self._watcher = threading.Thread(target=self._watch, name="lock-watcher", daemon=True)
                    self._watcher.start()
            self._holds[thread] = self._holds.get(thread, 0) + 1

    def _leave(self, thread: int) -> None:
        with self._state:
            left = self._holds.pop(thread, 1) - 1
            if left:
                self._holds[thread] = left
            if not self._holds:
                self._idle_at = time.monotonic()
                if self._requested:
                    self._state.notify_all()

    def _lock_file(self, timeout_s: float) -> None:
        """Acquire the file lock, queueing behind earlier waiters."""
        started, queue_fd = NOTICES.clock(), None
        try:
            while True:
                # The queue first: its lock tells the holder that someone waits.
                queue_fd = _try_lock(self._queue_path) if queue_fd is None else queue_fd
                fd = None if queue_fd is None else _try_lock(self._path)
                waited_s = NOTICES.clock() - started
                if fd is not None:
                    break
                NOTICES.say(f"the files of {self._path.parent}", f"{self.holder()}, which uses this store too", started)
                if waited_s > timeout_s:
                    raise StoreLockedError(
                        f"{self._file_name} is held by another process: {self.holder()} has not released it for {waited_s:.0f} s; "
                        "end that one, or pass another --store"
                    )
                time.sleep(RETRY_INTERVAL_S)
        finally:
            if queue_fd is not None:
                os.close(queue_fd)
        self._fd = fd
        self.longest_wait_s = max(self.longest_wait_s, waited_s)
        with suppress(OSError):  # the holder's name is optional on a full disk
            # A shorter entry must not leave the end of the previous one.
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps([os.getpid(), own_command()]).encode(), 0)

    def _unlock(self) -> None:
        fd, self._fd, self._held = self._fd, None, False
        if fd is not None:
            # Closing the descriptor drops the flock.
            os.close(fd)

    @property
    def _queue_path(self) -> Path:
        return self._path.with_suffix(".next")

    def holder(self) -> Holder:
        """The process that holds the lock, or held it last."""
        try:
            # Another version may have written the file: read little, and fall back on any error.
            pid, command = json.loads(self._path.read_bytes()[:1000])
            return Holder(int(pid), one_line(str(command), 60))
        except (OSError, ValueError, TypeError):
            return Holder(0, "")

    def _watch(self) -> None:
        """Release the lock when another process waits for it."""
        pause = POLL_INTERVAL_S
        while True:
            with self._state:
                self._state.wait_for(lambda: self._held or self._closed)
                if self._state.wait_for(lambda: self._closed, pause):
                    return
            pause = POLL_INTERVAL_S
            if self._held and self._has_waiters():
                with self._state:
                    # A file that cannot be closed is not tried fifty times a second.
                    pause = POLL_INTERVAL_S if self._yield_lock() else DRAIN_TIMEOUT_S

    def _has_waiters(self) -> bool:
        try:
            fd = _try_lock(self._queue_path)
        except StoreError:
            return False
        if fd is None:
            return True
        os.close(fd)
        return False

    def _yield_lock(self) -> bool:
        """Wait until the file is not in use and release the lock; call with `_state` held. False if the file cannot be closed."""
        self._requested = True
        try:
            while self._held:
                now = time.monotonic()
                # A page with forty reads must not open the file forty times.
                draining = now >= self._acquired_at + MIN_HOLD_S
                if not self._holds and (draining or now >= self._idle_at + IDLE_RELEASE_S):
                    self._on_release()
                    self._unlock()
                    break
                # Without this, threads that overlap would keep the lock forever.
                self._draining = draining
                self._state.wait(RETRY_INTERVAL_S)
            return True
        except Exception:
            log.exception("%s cannot be released", self._file_name)
            return False
        finally:
            self._requested = self._draining = False
            self._state.notify_all()

    def _drop_in_child(self) -> None:
        """Drop the inherited lock in a forked child, which would otherwise keep it after the parent's end."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._held, self._closed = None, False, True


_locks: WeakSet[SharedLock] = WeakSet()


def release_all() -> None:
    """Release every lock that is not in use: this process does nothing for a while, and its files may be moved or deleted."""
    for lock in list(_locks):
        lock.release()


def _drop_locks_in_child() -> None:
    for lock in list(_locks):
        lock._drop_in_child()


def _stop_watchers() -> None:
    for lock in list(_locks):
        lock.stop_watcher()


os.register_at_fork(after_in_child=_drop_locks_in_child)
atexit.register(_stop_watchers)


def _try_lock(path: Path) -> int | None:
    """A descriptor of the locked file; None if another process holds it. Raises StoreError if the file cannot be created."""
    try:
        # O_CLOEXEC: a subprocess would keep the lock after this process ended.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"store {path.parent} cannot be opened: {error.strerror}") from error
    try:
        # flock, not lockf: the kernel ties it to the descriptor, and drops it when the process ends.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(OSError):
            if os.fstat(fd).st_ino == path.stat().st_ino:  # the file was not replaced in the meantime
                return fd
    except BlockingIOError:
        pass
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None
