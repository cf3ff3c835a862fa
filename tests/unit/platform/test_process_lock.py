"""The lock between two sides that know nothing of each other, as in two processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cems_workbench.errors import StoreLockedError
from cems_workbench.platform import process_lock, waiting
from cems_workbench.platform.process_lock import SharedLock, own_command
from cems_workbench.platform.waiting import NOTICES

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
