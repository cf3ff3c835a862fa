"""The Inspect page's state as tests see and set it; everything else goes through the page's widgets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamlit.testing.v1 import AppTest

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Evidence, Trace
from cems_workbench.ui.inspect.state import Baseline, Gathered, InspectState

STATE = "inspect:state"


def state_of(page: AppTest) -> InspectState:
    """The present state."""
    value: InspectState = page.session_state[STATE]
    return value


def set_state(page: AppTest, **changes: Any) -> None:
    """Replace some of it; the next run shows it."""
    page.session_state[STATE] = replace(state_of(page), **changes)


def gathered(page: AppTest) -> Gathered:
    """The evidence at hand, with what it was gathered for."""
    value = state_of(page).gathered
    assert value is not None
    return value


def evidence_of(page: AppTest) -> Evidence:
    """The evidence at hand."""
    return gathered(page).evidence


def config_of(page: AppTest) -> PipelineConfig:
    """The config as tuned."""
    return state_of(page).config


def set_config(page: AppTest, config: PipelineConfig) -> None:
    """Tune the config as a whole; no step of the history."""
    set_state(page, config=config)


def pinned(page: AppTest) -> Baseline:
    """The pinned baseline."""
    value = state_of(page).baseline
    assert value is not None
    return value


def replayed(page: AppTest) -> Trace:
    """The trace of the pinned baseline."""
    value = state_of(page).baseline_replay
    assert value is not None
    return value.trace


def remembered(page: AppTest, slot: str) -> Any:
    """What a view or tool made last under a slot of `InspectContext.remembered`."""
    return page.session_state[f"inspect:{slot}"][-1].value
