"""Progress where output is no terminal: lines with a count and a rate, the first after three seconds."""

from __future__ import annotations

import sys
import time
from functools import partial

import pytest

from cems_workbench.cli import options
from cems_workbench.cli.options import progress_bar
from cems_workbench.cli.terminal import ProgressLines, progress_lines


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_line_has_count_rate_and_what_is_left(clock: Clock) -> None:
    lines = ProgressLines(clock)
    assert lines.line() is None
    lines.report("gathering", 0, 1200)
    assert lines.line() == "gathering: 0 of 1,200"
    clock.now = 10.0
    lines.report("gathering", 25, 1200)
    assert lines.line() == "gathering: 25 of 1,200, 2.5 a second, about 8 min left"
    clock.now = 20.0  # nothing was reported: the same count, and the rate falls
    assert lines.line() == "gathering: 25 of 1,200, 1.2 a second, about 16 min left"


def test_what_was_finished_before_a_resume_is_not_in_the_rate(clock: Clock) -> None:
    lines = ProgressLines(clock)
    lines.report("gathering", 100, 129)
    clock.now = 40.0
    lines.report("gathering", 102, 129)
    assert lines.line() == "gathering: 102 of 129, one every 20 s, about 9 min left"


def test_work_inside_other_work_is_not_named(clock: Clock) -> None:
    lines = ProgressLines(clock)
    for i in range(3):
        lines.report("queries", i, 9)
        lines.report("reranking", 1, 3)
    assert (lines.line() or "").startswith("queries: 2 of 9")
    lines.report("reranking", 2, 3)  # one query lasts longer than a line
    assert (lines.line() or "").startswith("reranking: 2 of 3")


def test_finished_work_is_not_named(clock: Clock) -> None:
    lines = ProgressLines(clock)
    lines.report("searching", 3, 3)
    assert lines.line() is None


def test_work_of_unknown_size_is_named(clock: Clock) -> None:
    lines = ProgressLines(clock)
    lines.report("asking the source", 0, 0)
    assert lines.line() == "asking the source …"


def test_lines_come_while_the_work_says_nothing() -> None:
    said: list[str] = []
    with progress_lines(said.append, first_after_s=0.01, every_s=0.02) as progress:
        progress("reranking", 1, 2)
        deadline = time.monotonic() + 10
        while len(said) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert len(said) >= 3 and set(said) == {"reranking: 1 of 2"}


@pytest.mark.parametrize(("quiet", "lines"), [(False, 1), (True, 0)], ids=["text", "json"])
def test_a_command_says_lines_on_stderr_unless_it_prints_json(quiet, lines, capsys, monkeypatch):
    monkeypatch.setattr(options, "progress_lines", partial(progress_lines, first_after_s=0.05))
    assert not sys.stderr.isatty()
    with progress_bar(quiet) as progress:
        progress("embedding memories", 3, 9)
        time.sleep(0.3)
    out, err = capsys.readouterr()
    assert out == "" and err.splitlines() == ["embedding memories: 3 of 9"] * lines


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar() as progress:
        progress("embedding memories", 9, 9)
    assert capsys.readouterr() == ("", "")
