"""Lines about waits: once, then every ten seconds, whatever the number of waits; against a real second process, on a clock of the test."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cems_workbench.cli.terminal import ProgressLines
from cems_workbench.platform import process_lock, waiting
from cems_workbench.platform.process_lock import SharedLock
from cems_workbench.platform.waiting import WaitNotices

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
