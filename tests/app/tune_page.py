"""Access to the Tune page's state; everything else goes through the page's widgets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamlit.testing.v1 import AppTest

from cems_workbench.ui.tune.state import TuneState

STATE = "tune:state"


def tune_state_of(page: AppTest) -> TuneState:
    """The present state."""
    value: TuneState = page.session_state[STATE]
    return value


def set_tune_state(page: AppTest, **changes: Any) -> None:
    """Replace some of it; the next run shows it."""
    page.session_state[STATE] = replace(tune_state_of(page), **changes)
