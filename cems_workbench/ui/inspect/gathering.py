"""Evidence for the page: kept while it answers the request, fetched with progress when a parameter asks for more."""

from __future__ import annotations

import time
from collections.abc import Sequence

import streamlit as st

from cems_workbench import formats
from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.needs import Need, ParameterNeed
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.scoring import all_judged, judge_missing, score_missing, without_failures
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.pipeline.stages.result import ScoreNeed
from cems_workbench.progress import Progress
from cems_workbench.runs.importing import SAMPLE_DATA
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.progress import progress_in


def kept_trace(request: Request, resources: Resources) -> Trace | None:
    """The trace when nothing has to be fetched for it: the usual case after a slider has moved; else None.

    What was cancelled, or could not be met, is not fetched a second time: the page offers to go on.
    """
    kept = state.evidence_for(request, resources.store)
    if kept is None:
        return None
    trace = _replayed(kept, request)
    if trace.needs and not state.attempted(request):
        return None
    if trace.needs:
        _offer_again(trace.needs)
    return trace


def fetched_trace(request: Request, resources: Resources) -> Trace | None:
    """The trace after fetching what is missing, with progress; None after an error, which is shown.

    Any interaction while this runs, the cancel button among them, ends it at the next step: lists that were gathered are
    kept, and scores that were finished are in the store's cache.
    """
    kept = state.evidence_for(request, resources.store)
    needs = _replayed(kept, request).needs if kept is not None else []
    state.attempt(request)
    area = st.empty()
    try:
        with area.container():
            return _replayed(_fetch(request, resources, kept, needs, _progress_with_cancel()), request)
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return None
    finally:
        area.empty()


def judged_trace(trace: Trace, request: Request, resources: Resources) -> Trace:
    """The trace with a judgment of each of its results, fetched with progress where it is missing; the ranking is the same.

    An error is one line on the page, and the trace is as it was.
    """
    if all_judged(trace):
        return trace
    area = st.empty()
    report = progress_in(area)
    try:
        judged = judge_missing(
            trace.evidence, trace.config, resources, lambda _, done, total: report("judging", done, total),
            switched_off=state.variants_off(request),
        )  # fmt: skip
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return trace
    finally:
        area.empty()
    if judged is trace.evidence:
        return trace
    state.keep_evidence(request, resources.store, judged)
    return _replayed(judged, request)


def ask_failed_again(request: Request, resources: Resources) -> None:
    """Drop the failures of the present reranker for this request, so that the next run asks for them again."""
    kept = state.evidence_for(request, resources.store)
    if kept is not None:
        state.keep_evidence(request, resources.store, without_failures(kept, model_key(state.present_config().rerank)))
    state.try_again()


def _replayed(evidence: Evidence, request: Request) -> Trace:
    return replay(evidence, state.present_config(), switched_off=state.variants_off(request), clock=time.perf_counter)


def _fetch(
    request: Request, resources: Resources, kept: Evidence | None, needs: Sequence[Need], progress: Progress
) -> Evidence:
    """The lists, unless only scores are missing; then the scores, those in the cache first."""
    config = state.present_config()
    if kept is None or any(isinstance(need, ParameterNeed) for need in needs):
        moment = request.as_of or (kept.as_of if kept is not None else None)
        again = Request(request.query, request.project, moment, request.project_only, request.manual)
        kept = gather_lists(again, config, resources, progress)
    off = state.variants_off(request)
    kept = score_missing(kept, config, resources, progress, cached_only=True, switched_off=off)
    state.keep_evidence(request, resources.store, kept)  # before the slow part, which may be cancelled
    scored = score_missing(kept, config, resources, progress, switched_off=off)
    state.keep_evidence(request, resources.store, scored)
    return scored


def _progress_with_cancel() -> Progress:
    bar_box, button_box = st.columns([6, 1], vertical_alignment="center")
    button_box.button("Cancel", key="cancel", help="Stops here; what was scored stays in the cache.")
    return progress_in(bar_box.empty())


def _offer_again(needs: Sequence[Need]) -> None:
    """After a cancel, or a need that could not be met: say what is missing, and offer to go on."""
    scores = sum(len(need.memory_ids) for need in needs if isinstance(need, ScoreNeed))
    if not scores:
        return
    text_box, button_box = st.columns([6, 1], vertical_alignment="center")
    text_box.info(f"{scores} candidates are not scored; what was scored is kept.", icon=":material/pause_circle:")
    button_box.button("Go on", key="go_on", on_click=state.try_again)


def grades(request: Request, resources: Resources) -> dict[str, int]:
    """Human grades by memory id, when the query is one of the store's query set.

    Of several with the same words, the one of the same project and moment is meant, else the latest.
    """
    same = [query for query in resources.store.queries.read() if query.query == request.query]
    if not same:
        return {}
    meant = max(
        same, key=lambda query: (query.as_of == request.as_of, query.project == request.project, str(query.as_of))
    )
    return agreed_grades(resources.store.judgments.read(meant.qid, "human")).get(meant.qid, {})


def offer_sample_data(resources: Resources) -> None:
    """The empty store: how to fill it, and one button that does."""
    st.html(
        '<div class="wb-empty"><h3>This store is empty</h3><p>Import your own memories on the <b>Memories</b> page, or begin '
        "with the sample.</p></div>"
    )
    if SAMPLE_DATA.is_dir() and st.button("Load the sample memories", type="primary"):
        progress = progress_in(st.empty())
        for parsed in formats.read_path(SAMPLE_DATA):
            resources.store.add(parsed, progress)
        try:
            resources.refresh(progress)
        except WorkbenchError as error:  # the memories are there; without an embedder they cannot be searched yet
            st.error(plain(str(error)))
            return
        st.rerun()
