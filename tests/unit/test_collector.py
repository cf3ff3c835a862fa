"""What long full collections leave is left out of the next ones, and looked through again after a while."""

from __future__ import annotations

import gc

import pytest

from cems_workbench import collector

FULL, YOUNG = {"generation": 2}, {"generation": 0}


class Clock:
    """Seconds, as they are set."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the collector was told, in order."""
    told: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: told.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: told.append("unfreeze"))
    return told


def test_what_a_long_collection_leaves_is_left_out_and_looked_through_again_after_a_while(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(collector, "time", clock)
    watch = collector._Watch()

    def collected(seconds: float, info: dict[str, int] = FULL) -> list[str]:
        done.clear()
        watch("start", info)
        clock.now += seconds
        watch("stop", info)
        return done

    assert collected(collector.LONG / 2) == []
    assert collected(collector.LONG * 2, YOUNG) == []
    assert collected(collector.LONG * 2) == ["freeze"]
    clock.now += collector.RENEWED
    assert collected(collector.LONG / 2) == ["unfreeze"]
    assert collected(collector.LONG / 2) == []
    assert collected(collector.LONG * 2) == ["freeze"]


def test_it_is_watched_once_however_many_pages_ask() -> None:
    for _ in range(3):
        collector.watch()
    assert sum(isinstance(each, collector._Watch) for each in gc.callbacks) == 1
