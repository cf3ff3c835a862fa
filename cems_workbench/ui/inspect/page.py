"""Inspect: put a query in, see what each stage did with it, move a slider and see what would have happened."""

from __future__ import annotations

import time

import streamlit as st

from cems_workbench.analysis.ranks import Against
from cems_workbench.config import preset, preset_names
from cems_workbench.errors import WorkbenchError
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.inspect import baseline, gathering, state
from cems_workbench.ui.inspect.baseline import gone_html
from cems_workbench.ui.inspect.controls import draw_changed, draw_controls
from cems_workbench.ui.inspect.dictionary import draw_dictionary
from cems_workbench.ui.inspect.picker import draw_picker
from cems_workbench.ui.inspect.results import judged_summary, results_html
from cems_workbench.ui.inspect.share import draw_share, follow_link, open_link
from cems_workbench.ui.inspect.strip import strip_html, warnings_html
from cems_workbench.ui.inspect.transfer import draw_transfer
from cems_workbench.ui.inspect.typos import draw_typos
from cems_workbench.ui.inspect.views import all as views
from cems_workbench.ui.kit import handles
from cems_workbench.ui.kit.assets import write_stylesheet
from cems_workbench.ui.kit.escape import plain

EXAMPLES = 8
LONG_LABEL = 48  # characters from which a button may be cut, and shows its whole text as a tooltip
PAINT_SECONDS = 0.08
"""Pause after the ranking of a moved slider: the browser paints it before charts and controls are on their way to it."""


def sidebar() -> None:
    """Preset, its notes, and the controls of every stage."""
    present, names = state.present(), preset_names()
    key = f"preset:{present.generation}"
    with st.sidebar:
        st.selectbox(
            "Preset",
            names,
            names.index(present.preset),
            key=key,
            on_change=lambda: state.choose_preset(st.session_state[key]),
            help="A system of the field as a setting of this pipeline. Choosing one sets every parameter.",
        )
        st.caption(preset(present.preset).summary, help=preset(present.preset).notes)
        draw_changed()
        with st.container():
            if present.config_error:
                st.error(present.config_error)
        draw_controls(present.config, state.preset_config(), present.generation, state.change)


def ask(resources: Resources) -> Request | None:
    """The query box, project and as-of; None while there is no query."""
    st.text_input(
        "Query",
        key=state.QUERY,
        placeholder="What should the agent remember?",
        label_visibility="collapsed",
        icon=":material/search:",
        persist_state="session",
    )
    project_box, only_box, as_of_box = st.columns([3, 2, 2], vertical_alignment="bottom")
    projects = [name for name, _ in resources.store.memories.projects() if name]
    project = project_box.selectbox(
        "Project",
        projects,
        index=None,
        key=state.PROJECT,
        placeholder="none",
        accept_new_options=True,
        persist_state="session",
        help="The project the query is asked in: memories of it are preferred (Adjust → Project factors).",
    )
    only_box.toggle(
        "Only this project",
        wrap=True,
        key=state.ONLY_PROJECT,
        disabled=not project,
        help="Search that project's memories only.",
        persist_state="session",
    )
    as_of_box.date_input(
        "As of",
        value=None,
        key=state.AS_OF,
        format="YYYY-MM-DD",
        persist_state="session",
        help="The day ages are counted from (midnight UTC, or the very moment of a stored query). Empty: now, stamped when the query is "
        "searched.",
    )
    expansion = state.present_config().expansion
    if expansion.backend == "manual":
        most = expansion.max_expansions
        st.text_area(
            "Further queries, one a line",
            key=state.MANUAL,
            height=90,
            persist_state="session",
            help=f"Each is searched beside the query, as a variant of it; {most} at most (Expansion → Max expansions). Contributions shows "
            "what each of them gave.",
        )
    return state.present_request()


def welcome(resources: Resources) -> None:
    """Before the first query: what this is, and queries to start from."""
    st.html(
        '<div class="wb-empty"><h3>See why a memory was found, or was not</h3>'
        "<p>Type a query. Every stage of the retrieval shows what it did with each candidate; the sliders on the left "
        "replay it at once.</p></div>"
    )
    queries = resources.store.queries.read()
    if not queries:
        return
    st.caption("Or start from a judged query of this store:")
    kinds: dict[str | None, list[int]] = {}
    for i, query in enumerate(queries):
        kinds.setdefault(query.type, []).append(i)
    picks = sorted(kinds.values(), key=lambda rows: rows[0])
    first = [rows[turn] for turn in range(EXAMPLES) for rows in picks if turn < len(rows)][:EXAMPLES]
    with st.container(horizontal=True):
        for i in first:
            query = queries[i]
            text = plain(query.query)  # a label is read as Markdown
            whole = text if len(text) > LONG_LABEL else None
            st.button(text, key=f"example:{query.qid}", on_click=state.choose_query, args=(query,), help=whole)


def ranking(trace: Trace, grades: dict[str, int], against: Against | None, started: float) -> None:
    """The strip and the results, with how they differ from those of a pinned baseline."""
    st.html(strip_html(trace, 1000 * (time.perf_counter() - started)) + warnings_html(trace))
    summary = judged_summary(trace, grades)
    left, right = st.columns([2, 3], vertical_alignment="bottom")
    count = len(trace.results)
    left.markdown(f"##### {count} result{'s' if count != 1 else ''}")
    right.caption(views.budget_line(trace), text_alignment="right", help=views.BUDGET_HELP)
    if against is not None:
        st.html(baseline.against_html(against))
    if trace.results:
        if summary:
            st.caption(summary, help="Human grades: 0 not relevant, 1 related, 2 helps, 3 answers it.")
        st.html(results_html(trace, grades, state.followed(), against))
    else:
        views.nothing_found(trace)
        if against is not None and against.gone():
            st.html(gone_html(against))


def main() -> None:
    """Draw the page: what was asked for first, then the controls, then the charts."""
    started = time.perf_counter()
    write_stylesheet("workbench")
    try:
        resources = handles.resources()
    except WorkbenchError as error:
        st.error(str(error), icon=":material/lock:")
        st.caption("Close the other process, or set CEMS_WORKBENCH_STORE to another directory, and reload this page.")
        return
    if not resources.store.memories.count():
        sidebar()
        gathering.offer_sample_data(resources)
        return
    open_link(resources)
    request = ask(resources)
    follow_link(request)
    toolbar = st.container(horizontal=True)
    if request is None:
        welcome(resources)
        sidebar()
    else:
        inspect(request, resources, started)
    with toolbar:
        draw_picker(resources)
        config = state.present_config()
        if config.expansion.backend == "dictionary":
            draw_dictionary(resources)
        if config.query.typo_correction.enabled:
            draw_typos(resources)
        baseline.draw_baseline()
        evidence = state.evidence_for(request, resources.store) if request else None
        draw_transfer()
        if request is not None:
            draw_share(resources, request, evidence)
    handles.warm_up(resources)


def inspect(request: Request, resources: Resources, started: float) -> None:
    """The ranking, the sidebar, and the chosen view of one query."""
    trace = gathering.kept_trace(request, resources)
    at_once = trace is not None
    if not at_once:
        sidebar()  # fetching takes its time, and can be cancelled by any control
        trace = gathering.fetched_trace(request, resources)
    if trace is not None:
        ranking(trace, gathering.grades(request, resources), baseline.against(trace, request), started)
    if at_once:
        time.sleep(PAINT_SECONDS)
        sidebar()
    if trace is not None:
        views.draw(trace, request)
