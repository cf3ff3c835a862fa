"""What is searched ahead stands still while somebody waits."""

from __future__ import annotations

import threading
import time

from cems_workbench.jobs.background_priority import Foreground

LONG = 600.0


def started(foreground: Foreground) -> threading.Thread:
    thread = threading.Thread(target=foreground.give_way, daemon=True)
    thread.start()
    return thread


def test_a_step_waits_until_nobody_is_waited_for() -> None:
    foreground = Foreground(quiet=0, most=LONG)
    foreground.give_way()  # nobody ever was
    with foreground.working():
        with foreground.working():
            step = started(foreground)
        step.join(0.05)
        assert step.is_alive(), "one of the two is at work still"
    step.join(30)
    assert not step.is_alive()


def test_a_moment_later_it_still_waits_and_what_takes_long_gets_no_more_than_the_longest_time() -> None:
    after = Foreground(quiet=LONG, most=LONG)
    with after.working():
        pass
    step = started(after)
    step.join(0.05)
    assert step.is_alive()
    bounded = Foreground(quiet=LONG, most=0.01)
    with bounded.working():
        began = time.monotonic()
        bounded.give_way()
        assert time.monotonic() - began >= 0.01
