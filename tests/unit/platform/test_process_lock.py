"""The lock between two processes, and the lines about waiting for it."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cems_workbench.cli.terminal import ProgressLines
from cems_workbench.errors import StoreLockedError
from cems_workbench.platform import process_lock, waiting
from cems_workbench.platform.process_lock import SharedLock, own_command
from cems_workbench.platform.waiting import NOTICES, WaitNotices

MAX_WAIT_S = 2.0


class Side:
    """One side, with a log of its file being opened and closed."""

    def __init__(self, lock: Path) -> None:
        self.log: list[str] = []
        self.lock = SharedLock(lock, "the file", lambda: self.log.append("open"), lambda: self.log.append("close"))


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    both = Side(tmp_path / ".file.lock"), Side(tmp_path / ".file.lock")
    yield both
    for side in both:
        side.lock.close()


def test_lock_is_kept_without_waiters(sides: tuple[Side, Side]) -> None:
    first, _ = sides
    for _ in range(3):
        with first.lock.acquire():
            pass
    assert first.log == ["open"]
    assert first.lock.held


def test_lock_is_released_to_a_waiter_and_acquired_again(sides: tuple[Side, Side]) -> None:
    first, second = sides
    for side in (first, second, first):
        with side.lock.acquire():
            assert side.lock.held
    assert first.log == ["open", "close", "open"]
    assert second.log == ["open", "close"]


def test_lock_is_not_released_while_in_use(sides: tuple[Side, Side]) -> None:
    first, second = sides
    order: list[str] = []

    def ask() -> None:
        with second.lock.acquire():
            order.append("second")

    with first.lock.acquire():
        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(process_lock.MIN_HOLD_S + 0.1)
        with first.lock.acquire():  # what a piece of work does within itself is not held back
            order.append("first")
    asking.join(MAX_WAIT_S)
    assert order == ["first", "second"]


def test_lock_is_released_despite_overlapping_uses(sides: tuple[Side, Side]) -> None:
    first, second = sides
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            with first.lock.acquire():
                time.sleep(0.002)

    workers = [threading.Thread(target=work) for _ in range(3)]  # always one of them is at it
    for worker in workers:
        worker.start()
    try:
        started = time.monotonic()
        with second.lock.acquire():
            assert time.monotonic() - started < MAX_WAIT_S
    finally:
        over.set()
        for worker in workers:
            worker.join()


def test_waiter_is_notified_and_times_out(sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = sides
    notices: list[str] = []
    monkeypatch.setattr(NOTICES, "_notifier", notices.append)
    monkeypatch.setattr(waiting, "NOTICE_AFTER_S", 0.01)
    refusal = pytest.raises(StoreLockedError, match=r"the file is held by another process: pid \d+ \(")
    with first.lock.acquire(), refusal, second.lock.acquire(timeout_s=0.1):
        pass
    assert notices == [f"waiting for {first.lock.holder()}, which uses this store too"]
    assert not second.lock.held


def test_lock_is_released_if_the_file_cannot_be_opened(tmp_path: Path) -> None:
    def refuse() -> None:
        raise OSError("no")

    first = SharedLock(tmp_path / ".file.lock", "the file", refuse, lambda: None)
    with pytest.raises(OSError, match="no"), first.acquire():
        pass
    with Side(tmp_path / ".file.lock").lock.acquire(timeout_s=0.1):
        pass


def test_lock_can_be_acquired_again_after_close(sides: tuple[Side, Side]) -> None:
    first, second = sides
    with first.lock.acquire():
        pass
    first.lock.close()
    with first.lock.acquire():
        pass
    with second.lock.acquire():
        assert first.log == ["open", "close", "open", "close"]


def test_command_is_named_without_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, name in {
        ("/x/cems_workbench/__main__.py", "connect", "postgresql://me:secret@host/db"): "cems-workbench connect …",
        ("/usr/bin/cems-workbench", "doctor"): "cems-workbench doctor",
        ("streamlit", "run", "app.py", "--server.port", "1"): "cems-workbench app",
        ("/x/mine.py", "secret"): "mine.py …",
    }.items():
        monkeypatch.setattr("sys.argv", list(arguments))
        assert own_command() == name


KEEP = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
file.write('[4242, "cems-workbench import …"]')
file.flush()
print("held", flush=True)
sys.stdin.read()
"""


def lock_of(path: Path) -> SharedLock:
    return SharedLock(path, "the file", lambda: None, lambda: None)


def kept(path: Path) -> subprocess.Popen[str]:
    """Another process that has the lock and does not release it when asked, until it ends."""
    other = subprocess.Popen(
        [sys.executable, "-c", KEEP, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None and other.stdout.readline() == "held\n"
    return other


@pytest.fixture
def notices(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], float]], WaitNotices]:
    def on(clock: Callable[[], float]) -> WaitNotices:
        made = WaitNotices(clock)
        monkeypatch.setattr(process_lock, "NOTICES", made)
        return made

    return on


def test_wait_for_another_process_is_said_once_and_then_every_ten_seconds(tmp_path: Path, notices) -> None:
    now, said, ended = [0.0], [], []

    def clock() -> float:
        now[0] += 0 if ended else 0.5
        return now[0]

    def notify(line: str) -> None:
        said.append((now[0], line))
        if len(said) == 3:  # the third line is what the other process waits for
            other.communicate()
            ended.append(True)

    other = kept(tmp_path / ".file.lock")
    notices(clock).notify(notify)
    mine = lock_of(tmp_path / ".file.lock")
    with mine.acquire():
        lines = [line for _, line in said]
    mine.close()
    first = "waiting for pid 4242 (cems-workbench import …), which uses this store too"
    assert lines[0] == first and all(line.startswith(f"{first}, ") and line.endswith(" s so far") for line in lines[1:])
    moments = [moment for moment, _ in said]
    assert moments[0] < 2 and all(10 <= b - a < 12 for a, b in itertools.pairwise(moments))


def test_waits_that_follow_one_another_are_one_wait(tmp_path: Path, notices) -> None:
    """34 files of a store that another process has are one line, and not 34."""
    now, said = [0.0], []
    made = notices(lambda: now[0])
    made.notify(said.append)
    for number in range(34):
        since, now[0] = now[0], now[0] + 0.5
        made.say("the files of STORE", f"pid {number}, which uses this store too", since)
    assert said == [f"waiting for pid {number}, which uses this store too" for number in (0, 20)]
    made.say("a database", "the team's database", since)
    assert len(said) == 3  # another thing
    made.say("the files of STORE", "pid 1, which uses this store too", now[0] - waiting.NOTICE_AFTER_S / 2)
    assert len(said) == 3  # too short to be said


def test_each_reader_is_told(notices) -> None:
    said: list[str] = []
    reader = ["Ann"]
    made = notices(lambda: 5.0)
    made.notify(lambda line: said.append(reader[0]), lambda: reader[0])
    for reader[0] in ("Ann", "Ben", "Ann"):
        made.say("a file", "pid 1", 0.0)
    assert said == ["Ann", "Ben"]


def test_a_wait_is_not_said_again_as_progress() -> None:
    lines = ProgressLines()
    lines.report(f"{waiting.WAITING}pid 4242 (cems-workbench import …)", 0, 1)
    assert lines.line() is None
    lines.report("embedding", 3, 9)
    assert lines.line() is not None
