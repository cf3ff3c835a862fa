"""Tune: better weights searched on judged queries without overfitting, and taken away with the evidence for them."""

from __future__ import annotations

import streamlit as st

from cems_workbench.errors import WorkbenchError
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit import handles
from cems_workbench.ui.kit.assets import write_stylesheet
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.tune import choose as tune_choose
from cems_workbench.ui.tune import goal as tune_goal
from cems_workbench.ui.tune import history as tune_history
from cems_workbench.ui.tune import learned as tune_learned
from cems_workbench.ui.tune import queries as tune_queries
from cems_workbench.ui.tune import result as tune_result
from cems_workbench.ui.tune import run as tune_run
from cems_workbench.ui.tune import space as tune_space
from cems_workbench.ui.tune import state as tune_state
from cems_workbench.ui.tune import take as tune_take


def set_up(resources: Resources) -> None:
    """What is searched on, what may change, what is better, how it is measured; and the start."""
    ground = tune_choose.choose(resources)
    if ground is None:
        return
    st.markdown("###### What may change")
    space = tune_space.draw(ground.baseline, ground.evidence.header.config)
    if space is None:
        return
    st.markdown("###### What is better, and how that is measured")
    goal = tune_goal.draw_goal(ground, space)
    measured = tune_goal.draw_protocol(ground, goal) if goal is not None else None
    if goal is not None and measured is not None:
        tune_run.draw_start(tune_goal.ordered(ground, space, goal, measured))


def draw(view: str, resources: Resources) -> None:
    """One view; those of a result say so while there is none."""
    found = tune_state.found()
    if view == "Set up":
        set_up(resources)
    elif view == "History":
        tune_history.draw(resources)
    elif found is None:
        st.html(
            '<div class="wb-empty"><h3>Nothing has been searched yet</h3><p>Choose queries, parameters and a measure under '
            "<b>Set up</b>, and start the search.</p></div>"
        )
    else:
        draw_found(view, found, resources)


def draw_found(view: str, found: tune_state.Found, resources: Resources) -> None:
    """One view of a result."""
    warning = tune_state.outdated(found, resources)
    if warning:
        st.warning(plain(warning), icon=":material/history:")
    if view == "Result":
        tune_result.draw(found, resources)
    elif view == "What it learned":
        tune_learned.draw(found)
    elif view == "By query":
        tune_queries.draw(found)
    else:
        tune_take.draw(found, resources)


def main() -> None:
    """Draw the page: the search at work, or the chosen view."""
    state.prepare()
    write_stylesheet("workbench", "tune")
    try:
        resources = handles.resources()
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/lock:")
        return
    tune_state.take_turn()
    view = st.segmented_control(
        "View", tune_state.VIEWS, required=True, key=tune_state.VIEW, label_visibility="collapsed",
        persist_state="session",
    )  # fmt: skip
    try:
        if not tune_run.draw_running():
            draw(view or "Set up", resources)
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")
    handles.warm_up(resources)
