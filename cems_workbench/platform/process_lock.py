"""Whose turn it is: a file that one process at a time may have open, handed over as soon as another process asks for it.

A process takes its turn when it first needs the file, and keeps it while nobody else asks: alone it never waits, and pays nothing but a
look every `LOOK` seconds. One that asks is let in when the work at hand is done (a transaction, a query), `TURN` seconds after the turn was
taken at the earliest, so that a page that reads forty times does not open the file forty times.

Two files stand for it, locked with flock, which ends with the process, however that ends. Who has the turn holds `NAME.lock` and has
written into it who that is. Who waits for it holds `NAME.next`, which is how the holder learns of it; others queue for that one, also the
process that has just let go. See docs/internals/decisions/0017-inter-process-locking.md.
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

log = logging.getLogger(__name__)
LOOK, STEP = 0.02, 0.003
"""Seconds between two looks whether somebody waits, and between two tries to take what one waits for."""
TURN, IDLE = 0.12, 0.03
"""Seconds that a turn lasts at least while its process goes on using the file, and after which it does not go on."""
GATE = 1.0
"""Seconds for which a thread that begins is held back, so that the work at hand comes to an end."""
TELL, PATIENCE = 0.3, 30.0
"""Seconds after which who waits says so, and after which he gives up."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process and what it is: a command's name without its arguments, which may be secrets."""

    pid: int
    command: str

    def __str__(self) -> str:
        """As in "pid 123 (cems-workbench import …)"."""
        return f"pid {self.pid} ({self.command})" if self.pid else "another process"


def own_command() -> str:
    """What this process calls itself where others wait for it."""
    name, *rest = (Path(sys.argv[0]).name if sys.argv else "", *sys.argv[1:])
    if name in ("streamlit", "__main__.py", "cems-workbench", "cems_workbench"):
        name, rest = "cems-workbench", ["app"] if name == "streamlit" else rest
    shown = rest[:1] if name == "cems-workbench" else []
    return one_line(" ".join([name or "python", *shown, *(["…"] if rest[len(shown) :] else [])]), 60)


Telling = Callable[[str], None]


def _logged(line: str) -> None:
    log.warning(line)


_telling: Telling = _logged


def tell_waiting(telling: Telling) -> None:
    """Have this called with a line when this process begins to wait for another one; it is logged else."""
    global _telling
    _telling = telling


def tell(line: str) -> None:
    """Say what this process waits for, to whoever wants to hear it."""
    _telling(line)


class SharedLock:
    """The turns of this process at one file. Methods may be called from any thread."""

    def __init__(self, lock: Path, what: str, take: Callable[[], None], give: Callable[[], None]) -> None:
        """`take` opens the file at the beginning of each turn, `give` closes it at the end of one; `what` is its name in errors."""
        self._path, self._what = lock, what
        self._take, self._give = take, give
        self._state = threading.Condition()
        self._held = self._taking = self._asked = self._ending = self._closed = False
        self._inside: dict[int, int] = {}
        self._since = self._idle_since = 0.0
        self._fd: int | None = None
        self._watch: threading.Thread | None = None
        self.waited = 0.0
        """The longest that a turn was waited for, in seconds."""
        _turns.add(self)

    @contextmanager
    def use(self, patience: float | None = None) -> Iterator[None]:
        """While the block runs it is this process's turn. May be nested.

        Raises StoreLockedError where another process does not let go within `patience` seconds (by default `PATIENCE`), and what
        `take` raises.
        """
        thread = threading.get_ident()
        self._enter(thread, PATIENCE if patience is None else patience)
        try:
            yield
        finally:
            self._leave(thread)

    def close(self, end: Callable[[], None] | None = None) -> None:
        """End the turn, if it is one. `end` closes the file instead of `give`; what it raises leaves all as it was."""
        with self._state:
            if self._held:
                (end or self._give)()
                self._unlock()
        self.stop_watcher()

    def stop_watcher(self) -> None:
        """Have the thread end that looks whether somebody waits; a thread that is there when Python ends makes DuckDB complain."""
        with self._state:
            self._closed = True
            self._state.notify_all()
        if self._watch is not None and self._watch is not threading.current_thread():
            self._watch.join(GATE)

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._path.name

    @property
    def held(self) -> bool:
        """Whether it is this process's turn now."""
        return self._held

    def _enter(self, thread: int, patience: float) -> None:
        with self._state:
            if self._ending and thread not in self._inside:
                self._state.wait_for(lambda: not self._ending, GATE)
            while not self._held:
                if self._taking:
                    self._state.wait()
                    continue
                self._taking = True
                self._state.release()
                try:
                    self._lock_file(patience)
                    try:
                        self._take()
                    except BaseException:
                        self._unlock()
                        raise
                finally:
                    self._state.acquire()
                    self._taking = False
                    self._state.notify_all()
                self._held, self._since = True, time.monotonic()
                if self._watch is None or self._closed:
                    self._closed = False
                    self._watch = threading.Thread(target=self._look_out, name="turns", daemon=True)
                    self._watch.start()
            self._inside[thread] = self._inside.get(thread, 0) + 1

    def _leave(self, thread: int) -> None:
        with self._state:
            left = self._inside.pop(thread, 1) - 1
            if left:
                self._inside[thread] = left
            if not self._inside:
                self._idle_since = time.monotonic()
                if self._asked:
                    self._state.notify_all()

    def _lock_file(self, patience: float) -> None:
        """Hold the lock; wait for it, behind who waits already."""
        started, told, waiting = time.monotonic(), False, None
        try:
            while True:
                waiting = _locked(self._next) if waiting is None else waiting
                fd = None if waiting is None else _locked(self._path)
                took = time.monotonic() - started
                if fd is not None:
                    break
                if took > TELL and not told:
                    told = True
                    tell(f"waiting for {self.holder()}, which uses this store too")
                if took > patience:
                    raise StoreLockedError(
                        f"{self._what} is held by another process: {self.holder()} has not let go of it for {took:.0f} s; "
                        "end that one, or pass another --store"
                    )
                time.sleep(STEP)
        finally:
            if waiting is not None:
                os.close(waiting)
        self._fd = fd
        self.waited = max(self.waited, took)
        with suppress(OSError):  # a full disk
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps([os.getpid(), own_command()]).encode(), 0)

    def _unlock(self) -> None:
        fd, self._fd, self._held = self._fd, None, False
        if fd is not None:
            os.close(fd)

    @property
    def _next(self) -> Path:
        return self._path.with_suffix(".next")

    def holder(self) -> Holder:
        """Who has the turn, or had it last."""
        try:
            pid, command = json.loads(self._path.read_bytes()[:1000])
            return Holder(int(pid), one_line(str(command), 60))
        except (OSError, ValueError, TypeError):
            return Holder(0, "")

    def _look_out(self) -> None:
        """See to it that the turn ends when somebody waits."""
        pause = LOOK
        while True:
            with self._state:
                self._state.wait_for(lambda: self._held or self._closed)
                if self._state.wait_for(lambda: self._closed, pause):
                    return
            pause = LOOK
            if self._held and self._somebody_waits():
                with self._state:
                    pause = LOOK if self._hand_over() else GATE

    def _somebody_waits(self) -> bool:
        try:
            fd = _locked(self._next)
        except StoreError:
            return False
        if fd is None:
            return True
        os.close(fd)
        return False

    def _hand_over(self) -> bool:
        """Wait until the file is left alone, and give it; the state's lock is held. False where it cannot be closed now."""
        self._asked = True
        try:
            while self._held:
                now = time.monotonic()
                ending = now >= self._since + TURN
                if not self._inside and (ending or now >= self._idle_since + IDLE):
                    self._give()
                    self._unlock()
                    break
                self._ending = ending
                self._state.wait(STEP)
            return True
        except Exception:
            log.exception("%s cannot be handed over", self._what)
            return False
        finally:
            self._asked = self._ending = False
            self._state.notify_all()

    def _forget(self) -> None:
        """In a fork, which has no part in the turn of its parent, but would keep it beyond the parent's end."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._held, self._closed = None, False, True


class Presence:
    """Which processes have something open, one file for all of them. Not for several threads at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    def enter(self) -> bool:
        """Say that this process has it open; whether no other one has."""
        alone = self._alone()
        if self._fd is None:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._fd, fcntl.LOCK_SH)
        return alone

    def leave(self) -> bool:
        """Say that this process has it open no more; whether no other one has. Nobody knows where the folder is gone: False."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        try:
            return self._alone()
        except StoreError:
            return False

    def _alone(self) -> bool:
        if self._fd is not None:
            return False
        fd = _locked(self._path)
        if fd is not None:
            os.close(fd)
        return fd is not None


_turns: WeakSet[SharedLock] = WeakSet()


def longest_waits() -> dict[str, float]:
    """The longest that this process has waited for a turn, in seconds, by the name of the lock."""
    found: dict[str, float] = {}
    for turn in list(_turns):
        found[turn.name] = max(turn.waited, found.get(turn.name, 0.0))
    return found


def _forget_turns() -> None:
    for turn in list(_turns):
        turn._forget()


def _look_away() -> None:
    for turn in list(_turns):
        turn.stop_watcher()


os.register_at_fork(after_in_child=_forget_turns)
atexit.register(_look_away)


def _locked(path: Path) -> int | None:
    """The file, open and locked; None while somebody else has it. Raises StoreError where there can be no such file."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"store {path.parent} cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(OSError):
            if os.fstat(fd).st_ino == path.stat().st_ino:  # else it was removed, and others lock another one
                return fd
    except BlockingIOError:
        pass
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None
