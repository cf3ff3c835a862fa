"""Progress as plain lines, for output that is no terminal: a log, a file, a coding agent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cems_workbench.platform.waiting import WAITING
from cems_workbench.progress import Progress

FIRST_AFTER_S = 3.0
"""Seconds until the first line: what is done sooner says nothing."""
EVERY_S = 10.0
"""Seconds between two lines."""


@dataclass(slots=True)
class _Task:
    """What a label stands at; `base` of it was done at the moment `since`, so that resumed work does not count as fast."""

    base: int
    since: float
    done: int
    total: int
    reported: bool = True


class ProgressLines:
    """The lines about work that calls `report`: label, count, rate and what is left. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tasks: dict[str, _Task] = {}
        self._last = ""
        self._lock = threading.Lock()

    def report(self, label: str, done: int, total: int) -> None:
        """A `Progress`: what the work under this label stands at."""
        if label.startswith(WAITING):  # said by NOTICES
            return
        with self._lock:
            task = self._tasks.get(label)
            if task is None or done < task.done:  # the same work for another config begins again
                self._tasks.pop(label, None)
                self._tasks[label] = _Task(done, self._clock(), done, total)
            else:
                task.done, task.total, task.reported = done, total, True
            self._last = label

    def line(self) -> str | None:
        """A line about the outermost unfinished work reported since the last line, else about the latest; None if that is finished."""
        with self._lock:
            at_work = [label for label, task in self._tasks.items() if task.reported and task.done < task.total]
            for task in self._tasks.values():
                task.reported = False
            label = at_work[0] if at_work else self._last
            named = self._tasks.get(label)
            if named is None or named.done >= named.total > 0:
                return None
            return _words(label, named, self._clock())


def _words(label: str, task: _Task, now: float) -> str:
    """As in "gathering: 12 of 129, 1.3 a second, about 90 s left"."""
    if not task.total:
        return f"{label} …"
    counted = f"{label}: {task.done:,} of {task.total:,}"
    gone, seconds = task.done - task.base, now - task.since
    if not gone or seconds <= 0:
        return counted
    pace = gone / seconds
    return f"{counted}, {_rate(pace)}, about {_duration((task.total - task.done) / pace)} left"


def _rate(pace: float) -> str:
    if pace < 0.1:
        return f"one every {1 / pace:.0f} s"
    return f"{pace:,.0f} a second" if pace >= 10 else f"{pace:.1f} a second"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


@contextmanager
def progress_lines(
    say: Callable[[str], None], first_after_s: float = FIRST_AFTER_S, every_s: float = EVERY_S
) -> Iterator[Progress]:
    """A `Progress` whose state a thread says: a batch of a model may last longer than a line may be late."""
    lines, ended = ProgressLines(), threading.Event()

    def speak() -> None:
        wait_s = first_after_s
        while not ended.wait(wait_s):
            line = lines.line()
            if line is not None:
                say(line)
                wait_s = every_s

    thread = threading.Thread(target=speak, name="progress", daemon=True)
    thread.start()
    try:
        yield lines.report
    finally:
        ended.set()
        thread.join()
