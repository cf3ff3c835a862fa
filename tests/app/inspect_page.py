"""The Inspect page under AppTest: actions, reading values, and access to its state."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from streamlit.testing.v1 import AppTest

from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.pipeline import Evidence, Trace
from cems_workbench.ui.inspect.state import Baseline, Gathered, InspectState

from .pages import html, table_with

STATE = "inspect:state"
QUERY = "how many different doctors did I visit?"
DEPLOY = "how do we roll back a failed deploy?"
WIRED = "is this wired up and working in production"
PLAIN = {"query.mode": "hybrid", "expansion.skip_on_strong_signal.enabled": False}


def search(page: AppTest, query: str = QUERY) -> AppTest:
    """Type a query."""
    page.text_input(key="inspect:query").set_value(query).run()
    return page


def order(page: AppTest) -> list[str]:
    """The ids of the results, the first first."""
    return re.findall(r"<code>(.+?)</code>", html(page, "wb-results"))


def control(page: AppTest, kind: str, path: str) -> Any:
    """The control of a parameter."""
    return next(widget for widget in page.get(kind) if widget.key and widget.key.endswith(f":{path}"))


def choose_preset(page: AppTest, name: str) -> AppTest:
    """Choose a preset in the popover that lists them."""
    page.session_state[f"inspect:preset:{state_of(page).generation}"] = True
    return next(box for box in page.run().radio if name in box.options).set_value(name).run()


def open_group(page: AppTest, section: str) -> AppTest:
    """Open a group of controls, also those without effect; AppTest cannot click expanders: their state is set as by the browser."""
    page.session_state[f"inspect:group:{section}"] = True
    page.session_state[f"inspect:idle:{section}"] = True
    return page.run()


def show(page: AppTest, view: str) -> AppTest:
    """Choose a view."""
    page.session_state["inspect:view"] = view
    page.run()
    return page


def tool(page: AppTest, name: str) -> AppTest:
    """Choose a tool."""
    choose_tool(page, name).run()
    return page


def ranks(page: AppTest) -> Any:
    """The table of the ranks in Rank flow."""
    page.session_state[f"inspect:rank_flow:{page.session_state['inspect:follow']}:table"] = True
    return table_with(show(page, "Rank flow"), "lost at")


def choose_tool(page: AppTest, name: str) -> AppTest:
    """Have the next run draw a tool."""
    page.session_state["inspect:section"] = "Why, and what if"
    page.session_state["inspect:tool"] = name
    return page


def follow(page: AppTest, memory_id: str) -> AppTest:
    """Follow a memory."""
    box = page.selectbox(key="inspect:follow")
    label = next(option for option in box.options if option.split("  ")[0] == memory_id)
    return box.select_index(box.options.index(label)).run()


def configured(page: AppTest, changes: dict[str, Any], name: str = "cems") -> AppTest:
    """Have the next run rank by a preset with changes."""
    set_config(page, with_values(preset(name).config, changes))
    return page


def state_of(page: AppTest) -> InspectState:
    """The present state."""
    value: InspectState = page.session_state[STATE]
    return value


def set_state(page: AppTest, **changes: Any) -> None:
    """Replace some of it; the next run shows it."""
    page.session_state[STATE] = replace(state_of(page), **changes)


def gathered(page: AppTest) -> Gathered:
    """The current evidence, with the request it was gathered for."""
    value = state_of(page).gathered
    assert value is not None
    return value


def evidence_of(page: AppTest) -> Evidence:
    """The current evidence."""
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
    trace: Trace = page.session_state["inspect:baseline:replayed"][1]
    return trace


def remembered(page: AppTest, slot: str) -> Any:
    """What a view or tool made last under a slot of `InspectContext.remembered`."""
    return page.session_state[f"inspect:{slot}"][-1].value
