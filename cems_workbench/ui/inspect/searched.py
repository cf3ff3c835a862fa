"""The ranking of a query, with the controls and the chosen view: what the Inspect page draws once there is a request.

`page.py` imports it then, since the start page needs none of what a ranking needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import streamlit as st

from cems_workbench.analysis.engine_fusion import compare_fusions
from cems_workbench.config import asks_source
from cems_workbench.jobs.query_grades import query_grades
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.evidence import Request
from cems_workbench.pipeline.list_provenance import answered_lists
from cems_workbench.pipeline.request_effects import later_words
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.assembly import ASSEMBLY
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.ui.inspect import baseline, fetch_evidence, next_step, rows, state, traced
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.glossary import FUSIONS_HELP, token_count_text
from cems_workbench.ui.inspect.labelled import forget_evidence, gather_ahead
from cems_workbench.ui.inspect.results import judged_summary, results_html
from cems_workbench.ui.inspect.sections import SECTIONS, draw_sections
from cems_workbench.ui.inspect.side_by_side import draw_side_by_side
from cems_workbench.ui.inspect.strip import mistakes_html, strip_html, warnings_html
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.widgets import draw_provenance, switch

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
    request: Request, resources: Resources, started: float, draw_controls: Callable[[Resources], None]
) -> None:
    """Draw the ranking of one query, the sidebar by `draw_controls`, and the chosen view; the page began at `started` (perf_counter)."""
    draw_sidebar = cache(partial(draw_controls, resources))  # drawn once: after the first paint, or while waiting
    trace = fetch_evidence.present_trace(request, resources)
    fetch = fetch_evidence.must_fetch(trace, request)
    if fetch:
        trace = fetch_evidence.fetched_trace(request, resources, trace, draw_sidebar)
    if trace is None:
        draw_sidebar()
        return
    if not fetch and trace.needs:
        fetch_evidence.offer_resume(trace.needs)
    off, followed = state.variants_off(request), state.followed()
    judged = query_grades(request, resources.store)
    context = InspectContext(
        request=request,
        trace=trace,
        resources=resources,
        grades=judged.grades,
        variants_off=off,
        against=baseline.against(
            trace, off, lambda config: fetch_evidence.lists_for(config, trace, request, resources)
        ),
        followed=followed if followed in trace.evidence.memories else None,
        relevant_from=judged.relevant_from,
        answerable=judged.answerable,
    )
    look_for_fix = _draw_ranking(context, started, fetch)
    time.sleep(MOUNT_DELAY_S if fetch else PAINT_DELAY_S)
    draw_sidebar()
    draw_sections(context)
    rows.draw(context)
    gather_ahead(context)
    look_for_fix()


def draw_traced(request: Request, resources: Resources, started: float) -> bool:
    """Draw the recorded stages of a query of an external trace, if one is open; instead of controls, why there are none."""
    trace = traced.present_trace(resources)
    if trace is None:
        return False
    request = replace(request, as_of=trace.evidence.as_of)
    followed, judged = state.followed(), query_grades(request, resources.store)
    context = InspectContext(
        request=request,
        trace=trace,
        resources=resources,
        grades=judged.grades,
        variants_off=frozenset(),
        against=None,
        followed=followed if followed in trace.evidence.memories else None,
        relevant_from=judged.relevant_from,
        answerable=judged.answerable,
    )
    _draw_ranking(context, started, False)
    traced.draw_sidebar()
    draw_sections(context)
    rows.draw(context)
    return True


def _draw_ranking(context: InspectContext, started: float, fetched: bool) -> Callable[[], None]:
    """Draw the strip, what to do next, and the ranking, compared with a pinned baseline; then notes on it.

    Returns the slow part of what to do next (`next_step.draw`).
    """
    trace, against = context.trace, context.against
    st.html(strip_html(trace, 1000 * (time.perf_counter() - started)) + warnings_html(trace))
    answered = "" if trace.external else answered_lists(trace.evidence, trace.stage(LISTS).fields.shown(trace.config))
    if answered or (asks_source(trace.config) and context.resources.engine() is not None):
        draw_provenance(
            "inspect",
            answered or "No list was returned by the live system",
            partial(forget_evidence, context.resources),
        )
    fusions = compare_fusions(trace)
    if fusions is not None:
        st.caption(plain(fusions.line), help=FUSIONS_HELP)
    form = _draw_head(trace)
    look_for_fix = next_step.draw(context, fetched)
    if against is not None:
        st.html(baseline.against_html(against))
    if form == state.SIDE_BY_SIDE:
        draw_side_by_side(trace, context.grades, context.followed, against)
    elif trace.results:
        st.html(results_html(trace, context.grades, context.followed, against))
    if against is not None and against.gone() and (form == state.SIDE_BY_SIDE or not trace.results):
        st.html(baseline.lost_results_html(against))
    _draw_notes(context)
    return look_for_fix


def _draw_head(trace: Trace) -> str:
    """Draw the number of results, the figures of the search, and the choice of the ranking's form; the chosen form."""
    count = len(trace.results)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="inspect:head"):
        st.markdown(f"## {count} result{'s' if count != 1 else ''}", width="content")
        st.caption(
            f"{_figures(trace)} · [What happened, and why ↓](#{SECTIONS})",
            help=None if trace.external else _budget_help(trace),
        )
        return switch("Form of the ranking", state.FORMS, state.FORM)


def _figures(trace: Trace) -> str:
    return traced.figures(trace) if trace.external else f"{_budget_line(trace)} · {_times(trace)}"


def _times(trace: Trace) -> str:
    """Time of search (once per query) and replay (on every change)."""
    replayed = f"replay {sum(stage.elapsed_ms or 0.0 for stage in trace.stages):.1f} ms"
    searched = fetch_evidence.search_ms(trace)
    return replayed if searched is None else f"search {searched:,.0f} ms · {replayed}"


def _draw_notes(context: InspectContext) -> None:
    """Draw what else holds for this ranking: known mistakes, judgments, memories written later."""
    trace = context.trace
    of_set = traced.mistakes_of_set(context.resources) if trace.external else ()
    if mistakes := mistakes_html(trace, of_set):
        st.html(mistakes)
    if trace.results:
        if summary := judged_summary(trace, context.grades, context.relevant, context.answerable):
            st.caption(summary, help="Human grades: 0 not relevant, 1 related, 2 helps, 3 answers it.")
        if later := later_words(trace):
            st.caption(f":material/schedule: {plain(later)}")


def _budget_line(trace: Trace) -> str:
    """Tokens, selection strategy, and number of candidates: those of a list, as the strip and the command line count them."""
    budget = trace.stage(ASSEMBLY).fields.budget
    tokens = f"{trace.tokens_used} tokens" + (f" of {budget}" if budget is not None else "")
    diverse = " · diverse (mmr)" if trace.stage(ASSEMBLY).fields.strategy == "mmr" else ""
    return f"{tokens}{diverse} · {trace.stage(LISTS).candidates_in} candidates"


def _budget_help(trace: Trace) -> str:
    """Help of the line above the results, for this config."""
    config, budget = trace.config.assembly, trace.stage(ASSEMBLY).fields.budget
    more = f", which is {config.max_tokens} except for aggregation queries" if budget != config.max_tokens else ""
    return BUDGET_HELP.format(more=more, counted=token_count_text(config))
