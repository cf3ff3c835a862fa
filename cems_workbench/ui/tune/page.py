"""Tune: better weights searched on judged queries without overfitting, and taken away with the evidence for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import streamlit as st

from cems_workbench.errors import WorkbenchError
from cems_workbench.jobs.tuning import SearchResult
from cems_workbench.pipeline.resources import Resources
from cems_workbench.tuning.unlabelled import TUNABLE_SECTIONS
from cems_workbench.ui.kit import shared_resources
from cems_workbench.ui.kit.assets import begin_page
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.panels import empty
from cems_workbench.ui.kit.switch import switch
from cems_workbench.ui.kit.templates import render
from cems_workbench.ui.tune import (
    export,
    goal,
    history,
    learned,
    queries,
    result,
    run,
    sample,
    setup,
    space,
    unlabelled,
)
from cems_workbench.ui.tune.state import VIEW, outdated, page, set_view


def set_up(resources: Resources) -> None:
    """What is searched on, what may change, what is better, how it is measured; and the start."""
    data = setup.choose(resources)
    if data is None:
        if st.session_state.get("tune:set") is not None and st.session_state.get("tune:judges") != setup.WITHOUT:
            sample.draw(resources, st.session_state["tune:set"])
        return
    if data.stands_in:
        unlabelled.draw_lists(data)
    st.markdown("## What may change")
    searched = space.draw(data.baseline, data.evidence.header.config, TUNABLE_SECTIONS if data.stands_in else ("",))
    if searched is None:
        return
    st.markdown("## What is better, and how that is measured")
    wanted = goal.draw_goal(data, searched)
    planned = goal.draw_plan(data, searched, wanted) if wanted is not None else None
    if planned is not None:
        run.draw_start(planned)


def of_result(
    draw: Callable[[SearchResult, Resources], None], before: Callable[[Resources], bool] = lambda _: False
) -> Callable[[Resources], None]:
    """A view of the last result; while there is none it draws `before`, and where that has nothing either it says so."""

    def drawn(resources: Resources) -> None:
        searched = page.get().result
        if searched is None:
            if not before(resources):
                empty("Nothing has been searched yet", render("tune/nothing_searched.html"))
            return
        warning = outdated(searched, resources)
        if warning:
            st.warning(plain(warning), icon=":material/history:")
        if searched.planned.data.stands_in:
            st.info(unlabelled.SAID, icon=":material/label_off:")
        draw(searched, resources)

    return drawn


VIEWS: Mapping[str, Callable[[Resources], None]] = {
    "Set up": set_up,
    "Result": of_result(result.draw, sample.draw),
    "What it learned": of_result(lambda searched, _: learned.draw(searched)),
    "By query": of_result(lambda searched, _: queries.draw(searched)),
    "Take it away": of_result(export.draw),
    "History": history.draw,
}


@shared_resources.said_in_place
def main() -> None:
    """Draw the page: the search at work, or the chosen view."""
    begin_page("Tune", "tune")
    resources = shared_resources.opened()
    if resources is None:
        return
    set_view()
    view = switch("View", list(VIEWS), VIEW)
    try:
        if not run.draw_running():
            VIEWS[view](resources)
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")
    shared_resources.warm_up(resources)
