"""Whose turn it is, between two that know nothing of each other, as in two processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cems_workbench.errors import StoreLockedError
from cems_workbench.platform import process_lock
from cems_workbench.platform.process_lock import Presence, SharedLock, own_command

HELD_UP = 2.0


class Side:
    """One of two, and what became of the file on its side."""

    def __init__(self, lock: Path) -> None:
        self.log: list[str] = []
        self.turn = SharedLock(lock, "the file", lambda: self.log.append("take"), lambda: self.log.append("give"))


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    both = Side(tmp_path / ".file.lock"), Side(tmp_path / ".file.lock")
    yield both
    for side in both:
        side.turn.close()


def test_alone_the_turn_is_kept(sides: tuple[Side, Side]) -> None:
    first, _ = sides
    for _ in range(3):
        with first.turn.use():
            pass
    assert first.log == ["take"]
    assert first.turn.held


def test_one_that_asks_gets_it_and_the_first_takes_it_again(sides: tuple[Side, Side]) -> None:
    first, second = sides
    for side in (first, second, first):
        with side.turn.use():
            assert side.turn.held
    assert first.log == ["take", "give", "take"]
    assert second.log == ["take", "give"]


def test_nobody_gets_it_while_it_is_in_use(sides: tuple[Side, Side]) -> None:
    first, second = sides
    order: list[str] = []

    def ask() -> None:
        with second.turn.use():
            order.append("second")

    with first.turn.use():
        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(process_lock.TURN + 0.1)
        with first.turn.use():  # what a piece of work does within itself is not held back
            order.append("first")
    asking.join(HELD_UP)
    assert order == ["first", "second"]


def test_work_that_never_ends_in_the_first_does_not_keep_the_second_out(sides: tuple[Side, Side]) -> None:
    first, second = sides
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            with first.turn.use():
                time.sleep(0.002)

    workers = [threading.Thread(target=work) for _ in range(3)]  # always one of them is at it
    for worker in workers:
        worker.start()
    try:
        started = time.monotonic()
        with second.turn.use():
            assert time.monotonic() - started < HELD_UP
    finally:
        over.set()
        for worker in workers:
            worker.join()


def test_who_does_not_get_it_is_told_by_whom_and_may_give_up(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sides
    said: list[str] = []
    monkeypatch.setattr(process_lock, "_telling", said.append)
    monkeypatch.setattr(process_lock, "TELL", 0.01)
    refusal = pytest.raises(StoreLockedError, match=r"the file is held by another process: pid \d+ \(")
    with first.turn.use(), refusal, second.turn.use(patience=0.1):
        pass
    assert said == [f"waiting for {first.turn.holder()}, which uses this store too"]
    assert not second.turn.held


def test_a_file_that_cannot_be_opened_leaves_the_turn_to_others(tmp_path: Path) -> None:
    def refuse() -> None:
        raise OSError("no")

    first = SharedLock(tmp_path / ".file.lock", "the file", refuse, lambda: None)
    with pytest.raises(OSError, match="no"), first.use():
        pass
    with Side(tmp_path / ".file.lock").turn.use(patience=0.1):
        pass


def test_a_turn_that_was_ended_can_be_taken_again_and_is_handed_over_then_too(sides: tuple[Side, Side]) -> None:
    first, second = sides
    with first.turn.use():
        pass
    first.turn.close()
    with first.turn.use():
        pass
    with second.turn.use():
        assert first.log == ["take", "give", "take", "give"]


def test_a_command_is_named_without_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, name in {
        ("/x/cems_workbench/__main__.py", "connect", "postgresql://me:secret@host/db"): "cems-workbench connect …",
        ("/usr/bin/cems-workbench", "doctor"): "cems-workbench doctor",
        ("streamlit", "run", "app.py", "--server.port", "1"): "cems-workbench app",
        ("/x/mine.py", "secret"): "mine.py …",
    }.items():
        monkeypatch.setattr("sys.argv", list(arguments))
        assert own_command() == name


def test_who_has_something_open_knows_whether_others_have(tmp_path: Path) -> None:
    first, second = Presence(tmp_path / ".open"), Presence(tmp_path / ".open")
    assert first.enter()
    assert not second.enter()
    assert not first.leave()
    assert second.leave()
