"""A query of an external trace on the page: its recorded stages instead of a search.

No control changes what another pipeline did, so there are none: the sidebar says why and what to do, and of the views and tools those are
offered that read recorded stages (`View.external`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import streamlit as st

from cems_workbench.analysis.stage_mistakes import KnownMistake
from cems_workbench.errors import WorkbenchError
from cems_workbench.jobs.traces import traced_mistakes, traced_path, traced_query
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.session import for_all_sessions

NO_CONTROLS = (
    "This query was traced in another pipeline: its stages are recorded, and no setting changes them, so there are no sliders. To try "
    "settings, search the query here, or find the preset that comes nearest to that pipeline."
)


def present_trace(resources: Resources) -> Trace | None:
    """The recorded stages of the opened query as a trace; None if none is open, or after an error, which is drawn."""
    traced = state.traced()
    if traced is None:
        return None
    path = traced_path(resources.store.path, traced.query_set)
    try:
        changed = path.stat().st_mtime_ns if path.is_file() else 0
        found = for_all_sessions(
            ("evidence", path, changed, traced.qid),
            lambda: traced_query(resources.store, traced.query_set, traced.qid),
        )
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return None
    if found is None:
        st.warning(
            plain(f"{traced.query_set} has no recorded stages of {traced.qid} any more: the query is searched here.")
        )
        return None
    evidence, config = found
    return replay(evidence, config, clock=time.perf_counter)


def mistakes_of_set(resources: Resources) -> Sequence[KnownMistake]:
    """What the stages show of themselves over the set of the opened query; empty if none is open."""
    traced = state.traced()
    path = None if traced is None else traced_path(resources.store.path, traced.query_set)
    if path is None or not path.is_file():
        return ()
    return for_all_sessions(("mistakes", path, path.stat().st_mtime_ns), lambda: traced_mistakes(path))


def draw_sidebar() -> None:
    """Draw, instead of the controls, why there are none and what to do."""
    traced = state.traced()
    if traced is None:
        return
    with st.sidebar, st.container(key="inspect:traced"):
        st.markdown("### No controls")
        st.caption(NO_CONTROLS)
        st.button(
            "Search it here",
            key="inspect:traced:search",
            icon=":material/search:",
            on_click=state.leave_traced,
            width="stretch",
            help="Searches the query in this store under the present preset, with every control.",
        )
        if st.button(
            "Find the nearest preset",
            key="inspect:traced:nearest",
            icon=":material/near_me:",
            width="stretch",
            help="Opens Evaluate › Recorded answers with this set: which preset, with which parameters, comes closest?",
        ):
            st.session_state["evaluate:against"] = "Recorded answers"
            st.session_state["evaluate:fidelity_sets"] = [traced.query_set]
            st.switch_page("pages/evaluate.py")


def figures(trace: Trace) -> str:
    """How many candidates there were, and how long the traced pipeline took, as far as its stages say."""
    spent = [stage.elapsed_ms or 0.0 for stage in trace.stages]
    # The last stage is often the span around the others, whose time is in its own.
    total = max(spent[-1], sum(spent[:-1])) if spent else 0.0
    took = f" · recorded {total:,.0f} ms" if total else ""
    evidence: Evidence = trace.evidence
    when = f" · {evidence.as_of:%Y-%m-%d %H:%M} UTC" if evidence.as_of is not None else ""
    return f"{len(evidence.memories)} candidates{took}{when}"
