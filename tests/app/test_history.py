"""Undo and redo on the Inspect page: sliders, presets, resets and applied configs."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.config import preset, with_values
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect import state as history

from .inspect_page import config_of, control, order, search, state_of
from .pages import OpenPage, press

pytestmark = [pytest.mark.models]
CEMS = preset("cems").config


def set_slider(page: AppTest, path: str, value: float) -> AppTest:
    page = control(page, "slider", path).set_value(value).run()  # type: ignore[attr-defined]
    assert not page.exception
    return page


def steps(page: AppTest) -> tuple[bool, bool]:
    """Can something be undone, can something be redone?"""
    return not page.button(key="inspect:undo").disabled, not page.button(key="inspect:redo").disabled


def test_a_slider_move_is_undone_and_redone_with_ranking_and_control(open_page: OpenPage) -> None:
    page = search(open_page())
    assert steps(page) == (False, False)
    before = order(page)
    page = set_slider(page, "fusion.score_blend", 1.0)
    after = order(page)
    assert after != before
    page = press(page, "inspect:undo")
    assert order(page) == before
    assert control(page, "slider", "fusion.score_blend").value == CEMS.fusion.score_blend  # type: ignore[attr-defined]
    assert steps(page) == (False, True)
    page = press(page, "inspect:redo")
    assert order(page) == after
    assert control(page, "slider", "fusion.score_blend").value == 1.0  # type: ignore[attr-defined]
    assert steps(page) == (True, False)


def test_a_drag_is_one_step_and_two_sliders_are_two(open_page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "DRAG_S", 3600.0)
    page = search(open_page())
    for k in (50, 40, 30):
        page = set_slider(page, "fusion.k", k)
    page = set_slider(page, "fusion.score_blend", 1.0)
    page = press(page, "inspect:undo")
    assert config_of(page) == with_values(CEMS, {"fusion.k": 30})
    page = press(page, "inspect:undo")
    assert config_of(page) == CEMS
    assert steps(page) == (False, True)


def test_preset_reset_and_apply_are_steps_and_a_refused_value_is_none(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "DRAG_S", -1.0)
    page = search(open_page())
    page = page.selectbox(key="inspect:preset:0").set_value("recollection").run()
    page = set_slider(page, "fusion.k", 30)
    page = press(page, "inspect:reset")
    assert config_of(page) == preset("recollection").config
    page = press(page, "inspect:undo")
    assert config_of(page).fusion.k == 30
    page = press(page, "inspect:undo")
    page = press(page, "inspect:undo")
    assert (state_of(page).preset, config_of(page)) == ("cems", CEMS)
    assert page.selectbox(key=f"inspect:preset:{state_of(page).generation}").value == "cems"
    assert steps(page) == (False, True)


def test_every_way_to_change_the_config_is_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, object] = {}
    monkeypatch.setattr(state.st, "session_state", kept)
    monkeypatch.setattr(history, "DRAG_S", -1.0)
    other = with_values(CEMS, {"fusion.k": 7})
    for act in (
        lambda: state.change({"fusion.k": 30, "gap.ratio": 0.2}),
        lambda: state.reset_parameter("gap.ratio"),
        lambda: state.use_config(other),
        lambda: state.choose_preset("qmd"),
        lambda: state.reset(),
        lambda: state.change({"fusion.k": -5}),
    ):
        act()
    assert state.present().config_error
    assert [(step.preset, step.config.fusion.k) for step in state.present().history.past] == [
        ("cems", 60),
        ("cems", 30),
        ("cems", 30),
        ("cems", 7),
    ]
    state.undo()
    assert state.present().config_error is None
    assert state.present_config() == other
