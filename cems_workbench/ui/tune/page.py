"""Tune: better weights searched on judged queries without overfitting, and taken away with the evidence for them."""

from __future__ import annotations

import streamlit as st

from cems_workbench.errors import WorkbenchError
from cems_workbench.pipeline.resources import Resources
from cems_workbench.runs.tuning import SearchResult
from cems_workbench.ui.kit import handles
from cems_workbench.ui.kit.assets import write_stylesheet
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.panels import empty
from cems_workbench.ui.kit.switch import switch
from cems_workbench.ui.kit.templates import render
from cems_workbench.ui.tune import choose, goal, history, learned, queries, result, run, space, take
from cems_workbench.ui.tune.state import VIEW, VIEWS, outdated, page, set_view


def set_up(resources: Resources) -> None:
    """What is searched on, what may change, what is better, how it is measured; and the start."""
    data = choose.choose(resources)
    if data is None:
        return
    st.markdown("###### What may change")
    searched = space.draw(data.baseline, data.evidence.header.config)
    if searched is None:
        return
    st.markdown("###### What is better, and how that is measured")
    wanted = goal.draw_goal(data, searched)
    planned = goal.draw_plan(data, searched, wanted) if wanted is not None else None
    if planned is not None:
        run.draw_start(planned)


def draw(view: str, resources: Resources) -> None:
    """One view; those of a result say so while there is none."""
    searched = page.get().result
    if view == "Set up":
        set_up(resources)
    elif view == "History":
        history.draw(resources)
    elif searched is None:
        empty("Nothing has been searched yet", render("tune/nothing_searched.html"))
    else:
        draw_result(view, searched, resources)


def draw_result(view: str, searched: SearchResult, resources: Resources) -> None:
    """One view of a result."""
    warning = outdated(searched, resources)
    if warning:
        st.warning(plain(warning), icon=":material/history:")
    if view == "Result":
        result.draw(searched, resources)
    elif view == "What it learned":
        learned.draw(searched)
    elif view == "By query":
        queries.draw(searched)
    else:
        take.draw(searched, resources)


def main() -> None:
    """Draw the page: the search at work, or the chosen view."""
    write_stylesheet("workbench", "tune")
    try:
        resources = handles.resources()
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/lock:")
        return
    set_view()
    view = switch("View", VIEWS, VIEW)
    try:
        if not run.draw_running():
            draw(view, resources)
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")
    handles.warm_up(resources)
