"""What long full collections leave is left out of the next ones, and looked through again after a while."""

from __future__ import annotations

import gc

import pytest

from cems_workbench.platform import start_up

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


def test_what_a_long_collection_leaves_is_left_out_and_looked_through_again_after_a_while(done, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(start_up, "time", clock)
    watch = start_up._FreezeLongLived()

    def collected(seconds: float, info: dict[str, int] = FULL) -> list[str]:
        done.clear()
        watch("start", info)
        clock.now += seconds
        watch("stop", info)
        return done

    assert collected(start_up.FREEZE_AFTER_S / 2) == []
    assert collected(start_up.FREEZE_AFTER_S * 2, YOUNG) == []
    assert collected(start_up.FREEZE_AFTER_S * 2) == ["freeze"]
    clock.now += start_up.REFREEZE_EVERY_S
    assert collected(start_up.FREEZE_AFTER_S / 2) == ["unfreeze"]
    assert collected(start_up.FREEZE_AFTER_S / 2) == []
    assert collected(start_up.FREEZE_AFTER_S * 2) == ["freeze"]


def test_it_is_watched_once_however_many_pages_ask() -> None:
    for _ in range(3):
        start_up.watch()
    assert sum(isinstance(each, start_up._FreezeLongLived) for each in gc.callbacks) == 1
