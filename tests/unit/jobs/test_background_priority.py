"""What is searched ahead stands still while somebody waits."""

from __future__ import annotations

import threading
import time

from cems_workbench.jobs.background import ForegroundGate

LONG = 600.0


def started(foreground: ForegroundGate) -> threading.Thread:
    thread = threading.Thread(target=foreground.wait_while_busy, daemon=True)
    thread.start()
    return thread


def test_a_step_waits_until_nobody_is_waited_for() -> None:
    foreground = ForegroundGate(quiet_s=0, max_wait_s=LONG)
    foreground.wait_while_busy()  # nobody ever was
    with foreground.foreground_work():
        with foreground.foreground_work():
            step = started(foreground)
        step.join(0.05)
        assert step.is_alive(), "one of the two is at work still"
    step.join(30)
    assert not step.is_alive()


def test_a_moment_later_it_still_waits_and_what_takes_long_gets_no_more_than_the_longest_time() -> None:
    after = ForegroundGate(quiet_s=LONG, max_wait_s=LONG)
    with after.foreground_work():
        pass
    step = started(after)
    step.join(0.05)
    assert step.is_alive()
    bounded = ForegroundGate(quiet_s=LONG, max_wait_s=0.01)
    with bounded.foreground_work():
        began = time.monotonic()
        bounded.wait_while_busy()
        assert time.monotonic() - began >= 0.01
