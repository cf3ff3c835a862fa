"""Undo and redo as a value: steps, drags, depth."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.config import preset, with_values
from cems_workbench.ui.inspect.state import DRAG_S, MAX_STEPS, History, Setting

START = Setting("cems", preset("cems").config)


def at_k(k: int) -> Setting:
    return Setting("cems", with_values(START.config, {"fusion.k": k}))


def test_a_step_is_undone_and_redone() -> None:
    history = History().after(START, at_k(30), "fusion.k", 0.0)
    history, setting = history.undone(at_k(30))
    assert setting == START
    assert not history.past
    history, setting = history.redone(START)
    assert setting == at_k(30)
    assert not history.future
    assert history.past == (START,)


def test_a_change_to_what_is_set_is_no_step() -> None:
    assert History().after(START, START, None, 0.0) == History()


def test_a_drag_of_one_slider_is_one_step() -> None:
    history = History()
    settings = [START, *(at_k(k) for k in (59, 58, 57, 56))]
    for i, (before, now) in enumerate(pairwise(settings)):
        history = history.after(before, now, "fusion.k", i * DRAG_S)
    assert history.past == (START,)
    assert history.undone(settings[-1])[1] == START


def test_a_drag_to_and_fro_leaves_nothing_to_undo() -> None:
    history = History().after(START, at_k(30), "fusion.k", 0.0).after(at_k(30), START, "fusion.k", 0.5)
    assert history.past == ()


def test_the_same_slider_moved_later_is_a_step_of_its_own() -> None:
    history = History().after(START, at_k(30), "fusion.k", 0.0)
    history = history.after(at_k(30), at_k(20), "fusion.k", DRAG_S + 0.1)
    assert history.past == (START, at_k(30))


def test_another_parameter_or_an_apply_is_a_step_of_its_own_at_once() -> None:
    history = History().after(START, at_k(30), "fusion.k", 0.0).after(at_k(30), at_k(20), None, 0.1)
    history = history.after(at_k(20), START, "filter.min_score", 0.2)
    assert history.past == (START, at_k(30), at_k(20))


def test_a_slider_moved_right_after_an_undo_does_not_join_the_step_before() -> None:
    history = History().after(START, at_k(30), "fusion.k", 0.0).after(at_k(30), at_k(20), "gap.ratio", 0.1)
    history, setting = history.undone(at_k(20))
    history = history.after(setting, at_k(10), "fusion.k", 0.2)
    assert history.past == (START, at_k(30))


def test_a_new_step_drops_what_was_undone() -> None:
    history = History().after(START, at_k(30), None, 0.0)
    history, setting = history.undone(at_k(30))
    history = history.after(setting, at_k(99), None, 1.0)
    assert history.future == ()
    assert history.redone(at_k(99)) == (history, at_k(99))


def test_the_oldest_steps_are_forgotten_past_the_depth() -> None:
    history = History()
    for k in range(1, MAX_STEPS + 11):
        history = history.after(at_k(k), at_k(k + 1), None, float(k))
    assert len(history.past) == MAX_STEPS
    assert history.past[0] == at_k(11)


@given(st.lists(st.sampled_from(["set", "undo", "redo"]), max_size=40))
def test_undo_and_redo_walk_one_line_of_settings(acts: list[str]) -> None:
    """After any operations, the settings in order are the undo steps, the current one, the redo steps; a change drops the redo steps."""
    history, now, line, place = History(), START, [START], 0
    for turn, act in enumerate(acts):
        if act == "set":
            new = at_k(turn + 1)
            history, now = history.after(now, new, None, float(turn)), new
            line, place = [*line[: place + 1], new], place + 1
        elif act == "undo":
            history, now = history.undone(now)
            place = max(0, place - 1)
        else:
            history, now = history.redone(now)
            place = min(len(line) - 1, place + 1)
        assert [*history.past, now, *reversed(history.future)] == line
        assert now == line[place]
