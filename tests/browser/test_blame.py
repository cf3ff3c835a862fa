"""A person pastes a wrong answer, sees the stale memory behind it with its words marked, and lets its successor in."""

from __future__ import annotations

import pytest

from cems_workbench.builtin import DEFAULT_PRESET

from .pages import Inspect, Window
from .whole_way import case


@pytest.mark.thorough
def test_from_a_wrong_answer_to_the_successor_of_its_memory(window: Window) -> None:
    Inspect.open(window).preset(DEFAULT_PRESET)
    case(window, prove=False)
    window.expect_no_error()
