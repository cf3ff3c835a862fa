"""The ranking of a query, with the controls and the chosen view: what the Inspect page draws once there is a request.

`page.py` imports it then, since the start page needs none of what a ranking needs. Below the ranking are the memory that is followed
through every stage, and the chosen view or tool. A query of an external trace has its recorded stages instead of a search: no control
changes what another pipeline did, so the sidebar says why there are none and what to do, and of the views and tools those are offered that
read recorded stages (`View.external`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any

import streamlit as st
from markupsafe import Markup
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.analysis.fusion_comparison import compare_fusions
from cems_workbench.analysis.ranks import ranked_ids, target_rank
from cems_workbench.analysis.stage_mistakes import KnownMistake
from cems_workbench.analysis.text_evidence import found_chunk
from cems_workbench.analysis.why.path import memory_path
from cems_workbench.config import asks_source
from cems_workbench.errors import WorkbenchError, counted
from cems_workbench.jobs.foreground import FOREGROUND
from cems_workbench.jobs.query_grades import query_grades
from cems_workbench.jobs.traces import traced_mistakes, traced_path, traced_query
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.pipeline.effects import later_words
from cems_workbench.pipeline.evidence import Request
from cems_workbench.pipeline.explained import explained
from cems_workbench.pipeline.list_sources import answered_lists
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.assembly import ASSEMBLY
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.platform.bidi import neutralise
from cems_workbench.ui.inspect import baseline, fetch_evidence, next_step, pasted, results, state, tables
from cems_workbench.ui.inspect.context import FUSIONS_HELP, InspectContext, about, token_count_text
from cems_workbench.ui.inspect.controls import Change
from cems_workbench.ui.inspect.fetch_evidence import forget_evidence, gather_ahead
from cems_workbench.ui.kit.address import go
from cems_workbench.ui.kit.html import excerpt, plain, render, write_script
from cems_workbench.ui.kit.session import for_all_sessions, kept
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.views import View, views_in
from cems_workbench.ui.kit.widgets import draw_provenance, errors_shown, switch


def draw(context: InspectContext) -> None:
    """Draw the choice of a memory to follow, and its path."""
    trace = context.trace
    ranked = ranked_ids(trace)
    rest = [memory_id for memory_id in sorted(trace.evidence.memories) if memory_id not in set(ranked)]
    if context.followed is None:
        state.follow(None)
    st.selectbox(
        "Follow a memory",
        [*ranked, *rest],
        index=None,
        key=state.FOLLOW,
        persist_state="session",
        placeholder="Follow a memory through every stage",
        label_visibility="collapsed",
        format_func=lambda key: f"{neutralise(short_id(key))}  {excerpt(trace.evidence.memories[key].content, 90)}",
    )
    if context.followed is not None:
        st.html(path_html(trace, context.followed, context.target))


def path_html(trace: Trace, memory_id: str, k: int | None = None) -> Markup:
    """A memory's path through the stages, with the one that lost it; `k` is the target rank."""
    memory = trace.evidence.memories[memory_id]
    path = memory_path(trace, memory_id, k or target_rank(trace.config))
    return render("inspect/path.html", path=path, memory=memory, about=about, found=found_chunk(trace, memory_id))


SECTIONS, GRADES = "what-happened", "inspect:grades"
"""Anchor of the sections, linked above the results."""


FIRST, MORE = 6, "inspect:more"
"""How many tools are in the row; the others are under More."""


def _choose_more() -> None:
    st.session_state[state.TOOL] = st.session_state[MORE]


def _offered(where: str, context: InspectContext) -> Mapping[str, View]:
    """The views or tools that can read the trace."""
    views = views_in(where)
    return {title: view for title, view in views.items() if view.external} if context.trace.external else views


def draw_sections(context: InspectContext) -> None:
    """Draw the choices of a memory to follow and of a view or tool, and the chosen one."""
    st.subheader("What happened, and why", anchor=SECTIONS)
    if st.session_state.pop(state.SCROLL, False):
        write_script("scroll_to_tool")
    if switch("Section", (state.HAPPENED, state.WHY), state.SECTION, remember=False) == state.HAPPENED:
        draw(context)
        views = _offered("inspect.views", context)
        chosen = views[switch("View", tuple(views), state.VIEW, remember=False)]
    else:
        tools = _offered("inspect.tools", context)
        first = next(iter(tools))
        if st.session_state.get(state.TOOL) not in tools:
            st.session_state[state.TOOL] = first
        shown = [title for i, title in enumerate(tools) if i < FIRST or title == st.session_state[state.TOOL]]
        with st.container(horizontal=True, gap="xsmall", vertical_alignment="center"):
            name = st.pills("Tool", shown, key=state.TOOL, required=True, label_visibility="collapsed", wrap=True)
            if rest := [title for title in tools if title not in shown]:
                st.menu_button("More", rest, key=MORE, type="tertiary", on_click=_choose_more)
        chosen = tools[name or first]
    if chosen.question and not context.trace.external:  # no change is searched for there
        st.caption(chosen.question)
    with errors_shown():
        chosen.draw(context)


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
            ("evidence", path, changed, traced.qid), lambda: traced_query(resources.store, traced.query_set, traced.qid)
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
        search: Any = {"icon": ":material/search:", "width": "stretch", "on_click": state.update}
        st.button("Search it here", key="inspect:traced:search", kwargs={"traced": None}, **search)
        if st.button(
            "Find the nearest preset", key="inspect:traced:nearest", icon=":material/near_me:", width="stretch"
        ):
            st.session_state["evaluate:against"] = "Recorded answers"
            st.session_state["evaluate:fidelity_sets"] = [traced.query_set]
            go("pages/evaluate.py")


def _recorded_figures(trace: Trace) -> str:
    """How many candidates there were, and how long the traced pipeline took, as far as its stages say."""
    spent = [stage.elapsed_ms or 0.0 for stage in trace.stages]
    # The last stage is often the span around the others, whose time is in its own.
    total = max(spent[-1], sum(spent[:-1])) if spent else 0.0
    took = f" · recorded {total:,.0f} ms" if total else ""
    evidence: Evidence = trace.evidence
    when = f" · {evidence.as_of:%Y-%m-%d %H:%M} UTC" if evidence.as_of is not None else ""
    return f"{len(evidence.memories)} candidates{took}{when}"


PLACE, PAINTED = "inspect:ranking", "inspect:painted"
"""Session keys of the element of the ranking that the browser has, and of the trace that a callback painted there."""
PAINT_DELAY_S = 0.08
"""Pause after the ranking, so that the browser paints it before it receives charts and controls."""
MOUNT_DELAY_S = 0.16
"""The same after a search, when the whole ranking is new to the browser."""
BUDGET_HELP = (
    "Tokens used by the results, of the budget{more}. {counted} Candidates: every memory found by a list. diverse (mmr): near duplicates "
    "are held back (Assembly in the sidebar). Search: lists, candidates and their scores, once per query. Replay: the stages above, on "
    "gathered evidence, on every change."
)


def draw_searched(
    request: Request, resources: Resources, started: float, draw_controls: Callable[[Resources, Change], None]
) -> None:
    """Draw the ranking of one query, the sidebar by `draw_controls`, and the chosen view; the page began at `started` (perf_counter)."""
    # Drawn once: after the first paint, or while waiting.
    draw_sidebar = cache(partial(draw_controls, resources, partial(change, resources)))
    trace = fetch_evidence.present_trace(request, resources)
    fetch = fetch_evidence.must_fetch(trace, request)
    if fetch:
        trace = fetch_evidence.fetched_trace(request, resources, trace, draw_sidebar)
    if trace is None:
        draw_sidebar()
        return
    if not fetch and trace.needs:
        fetch_evidence.offer_resume(trace.needs)
    context = _context(request, trace, resources)
    place, look_for_fix = _draw_ranking(context, started, fetch)
    if st.session_state.pop(PAINTED, None) is not trace:
        time.sleep(MOUNT_DELAY_S if fetch else PAINT_DELAY_S)
    draw_sidebar()
    st.session_state[PLACE] = place
    draw_sections(context)
    next_step.draw_rows(context)
    if explained(trace.evidence) is None:
        gather_ahead(context)
    look_for_fix()


def change(resources: Resources, values: Mapping[str, Any]) -> None:
    """Set parameters by `state.change`, in a callback, and paint the ranking where it stands: the browser then has only that to draw, and
    gets the rest of the page after a pause. Nothing is painted where evidence is missing."""
    state.change(values)
    request, place = state.present_request(), st.session_state.get(PLACE)
    if request is None or place is None:
        return
    with FOREGROUND.foreground_work(), suppress(WorkbenchError):  # the page shows it
        trace = fetch_evidence.present_trace(request, resources)
        if trace is not None and not trace.needs and (html := _ranking_html(_context(request, trace, resources))):
            place.html(html)
            st.session_state[PAINTED] = trace
            time.sleep(PAINT_DELAY_S)


def draw_traced(request: Request, resources: Resources, started: float) -> bool:
    """Draw the recorded stages of a query of an external trace, if one is open; instead of controls, why there are none."""
    trace = present_trace(resources)
    if trace is None:
        return False
    context = _context(replace(request, as_of=trace.evidence.as_of), trace, resources)
    _draw_ranking(context, started, False)
    draw_sidebar()
    draw_sections(context)
    next_step.draw_rows(context)
    return True


def _context(request: Request, trace: Trace, resources: Resources) -> InspectContext:
    off = frozenset[int]() if trace.external else state.variants_off(request)
    gather = partial(fetch_evidence.lists_for, trace=trace, request=request, resources=resources)
    against = None if trace.external else baseline.against(trace, off, gather)
    followed, store = state.followed(), resources.store
    key = (store.version, request.query, request.project, request.as_of)
    judged = kept(GRADES, key, lambda: query_grades(request, store))  # a slider changes no grade
    followed = followed if followed in trace.evidence.memories else None
    known = judged.grades, off, against, followed, judged.relevant_from, judged.answerable
    return InspectContext(request, trace, resources, *known)


def _draw_ranking(
    context: InspectContext, started: float, fetched: bool
) -> tuple[DeltaGenerator | None, Callable[[], None]]:
    """Draw the strip, what to do next, and the ranking, compared with a pinned baseline; then notes on it. Returns the element of the
    ranking, and the slow part of what to do next (`next_step.draw_next_step`)."""
    trace, against = context.trace, context.against
    st.html(results.strip_html(trace, 1000 * (time.perf_counter() - started)) + results.warnings_html(trace))
    if explained(trace.evidence) is not None:
        pasted.draw_said(trace, context.resources.store.memories.count() > 0)
    shown = () if trace.external else trace.stage(LISTS).fields.shown(trace.config)
    answered = answered_lists(trace.evidence.notes, shown)
    if answered or (asks_source(trace.config) and context.resources.engine() is not None):
        said = answered or "No list was returned by the live system"
        draw_provenance("inspect", said, partial(forget_evidence, context.resources))
    if (fusions := compare_fusions(trace)) is not None:
        st.caption(plain(fusions.line), help=FUSIONS_HELP)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="inspect:head"):
        st.markdown(f"## {counted(len(trace.results), 'results')}", width="content")
        figures, help = (_recorded_figures(trace), None) if trace.external else _figures(trace)
        st.caption(f"{figures} · [What happened, and why ↓](#{SECTIONS})", help=help)
        form = switch("Form of the ranking", state.FORMS, state.FORM)
    with st.container(key="inspect:step"):
        look_for_fix = next_step.draw_next_step(context, fetched)
    if against is not None:
        st.html(baseline.against_html(against))
    ranking = st.html(html) if (html := _ranking_html(context)) else None
    if form == state.SIDE_BY_SIDE:
        results.draw_grid()
        for name in (by_graph := tables.compared_with_graph(context)):
            tables.draw_graph_line(context, name, by_graph)
    if against is not None and against.gone() and (form == state.SIDE_BY_SIDE or not trace.results):
        st.html(baseline.lost_results_html(against))
    if mistakes := results.mistakes_html(trace, mistakes_of_set(context.resources) if trace.external else ()):
        st.html(mistakes)
    if trace.results:
        if summary := results.judged_summary(trace, context.grades, context.relevant, context.answerable):
            st.caption(
                plain(context.said(summary)), help="Human grades: 0 not relevant, 1 related, 2 helps, 3 answers it."
            )
        if later := later_words(trace):
            st.caption(f":material/schedule: {plain(later)}")
    return ranking, look_for_fix


def _ranking_html(context: InspectContext) -> Markup:
    """The ranking in the chosen form; empty if there are no cards."""
    known = context.trace, context.grades, context.followed, context.against
    if st.session_state.get(state.FORM) == state.SIDE_BY_SIDE:
        data = results.message(*known, tables.compared_with_graph(context))
        return render("inspect/side_by_side.html", results=context.trace.results, data=data)
    return results.results_html(*known) if context.trace.results else Markup("")


def _figures(trace: Trace) -> tuple[str, str]:
    """Tokens, selection strategy, candidates of a list, and times of search (once) and replay (on every change); and their help."""
    fields, config = trace.stage(ASSEMBLY).fields, trace.config.assembly
    of = f" of {fields.budget}" if fields.budget is not None else ""
    searched = fetch_evidence.search_ms(trace)
    figures = [
        f"{trace.tokens_used} tokens{of}",
        "diverse (mmr)" if fields.strategy == "mmr" else "",
        f"{trace.stage(LISTS).candidates_in} candidates",
        "" if searched is None else f"search {searched:,.0f} ms",
        f"replay {sum(stage.elapsed_ms or 0.0 for stage in trace.stages):.1f} ms",
    ]
    usual = fields.budget == config.max_tokens
    more = "" if usual else f", which is {config.max_tokens} except for aggregation queries"
    return " · ".join(filter(None, figures)), BUDGET_HELP.format(more=more, counted=token_count_text(config))
