"""The Tune page: search for better weights without overfitting, and export the result with its evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import streamlit as st

from cems_workbench.errors import WorkbenchError
from cems_workbench.jobs.tuning import SearchResult
from cems_workbench.pipeline.resources import Resources
from cems_workbench.tuning.unlabelled import TUNABLE_SECTIONS
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import begin_page, plain, render
from cems_workbench.ui.kit.widgets import empty, switch
from cems_workbench.ui.tune import export, learned, result, search, setup
from cems_workbench.ui.tune.state import VIEW, outdated, page, set_view


def set_up(resources: Resources) -> None:
    """Draw the setup of a search: queries, parameters, goal, and the start button."""
    data = setup.choose(resources)
    if data is None:
        if st.session_state.get("tune:set") is not None and st.session_state.get("tune:judges") != setup.NO_JUDGMENTS:
            result.draw_sample(resources, st.session_state["tune:set"])
        return
    if data.stands_in:
        setup.draw_lists(data)
    st.markdown("## Parameters to tune")
    searched = search.draw(data.baseline, data.evidence.header.config, TUNABLE_SECTIONS if data.stands_in else ("",))
    if searched is None:
        return
    st.markdown("## Goal and measurement")
    wanted = search.draw_goal(data, searched)
    planned = search.draw_plan(data, searched, wanted) if wanted is not None else None
    if planned is not None:
        search.draw_start(planned)


def result_view(
    draw: Callable[[SearchResult, Resources], None], before: Callable[[Resources], bool] = lambda _: False
) -> Callable[[Resources], None]:
    """A view of the last result; without one it draws `before`, or an empty state."""

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
            st.info(setup.UNLABELLED_NOTICE, icon=":material/label_off:")
        draw(searched, resources)

    return drawn


VIEWS: Mapping[str, Callable[[Resources], None]] = {
    "Set up": set_up,
    "Result": result_view(result.draw, result.draw_sample),
    "What it learned": result_view(lambda result, _: learned.draw_learned(result)),
    "By query": result_view(lambda result, _: learned.draw_queries(result)),
    "Export": result_view(export.draw),
    "History": export.draw_history,
}


@session.show_errors
def main() -> None:
    """Draw the page: the running search, or the chosen view."""
    begin_page("Tune", "tune")
    resources = session.open_or_explain()
    if resources is None:
        return
    set_view()
    view = switch("View", list(VIEWS), VIEW)
    try:
        if not search.draw_running():
            VIEWS[view](resources)
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")
    session.warm_up(resources)
