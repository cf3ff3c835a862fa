"""Evidence for the page: kept while it answers the request, fetched with progress when a parameter asks for more; and the grades.

A moved slider replays once. A new query replays once where no reranker is on. Otherwise once to know whom the reranker is to read and to
show the order of the lists while it reads, once with the scores that the cache has, if any, once more after each batch of what
it reads, and once with all its scores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.grades import agreed_answerable, agreed_grades, as_judged
from cems_workbench.jobs.background_evidence import searches_here
from cems_workbench.jobs.labelling import meant_query
from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.missing_evidence import Need, ParameterNeed
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.scoring import (
    RERANKING,
    all_judged,
    judge_missing,
    score_missing,
    score_to_decide,
    without_failures,
)
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.pipeline.stages.result import ScoreNeed
from cems_workbench.progress import Progress
from cems_workbench.records import DEFAULT_SCALE
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.results import settling_html
from cems_workbench.ui.kit import shared_resources
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.progress import cancellable, progress_in

UNDRAWN_SECONDS = 0.3
"""Controls may be those of the run before for so long: Streamlit lets what is not drawn again fade after half a second."""
FLUSH_SECONDS = 0.03
"""Pause after an order that is painted: Streamlit sends what was drawn every hundredth of a second, and the browser begins with it."""

SEARCHED = "inspect:searched"
"""The evidence that was last searched for, and how long that took."""


def trace_at_hand(request: Request, resources: Resources) -> Trace | None:
    """The trace on the evidence at hand, whatever it still needs; None when that is of another request."""
    evidence = state.evidence_for(request, resources.store)
    return None if evidence is None else _replayed(evidence, request)


def has_to_fetch(trace: Trace | None, request: Request) -> bool:
    """Is there something to fetch before `trace_at_hand` can be shown? What was cancelled, or could not be met, is asked for once."""
    return trace is None or (bool(trace.needs) and not state.attempted(request))


def fetched_trace(
    request: Request, resources: Resources, present: Trace | None, draw_controls: Callable[[], None]
) -> Trace | None:
    """The trace after fetching what `present`, that at hand, is missing, with progress; None after an error, which is shown.

    `draw_controls`, which draws once, is called as soon as the order of the lists is painted, and before it where that takes a while: the
    controls are many, and the browser would draw them first.

    Any interaction while this runs, the cancel button among them, ends it at the next step: lists that were gathered are
    kept, and scores that were finished are in the store's cache.
    """
    state.attempt(request)
    try:
        with cancellable("inspect:cancel", "Stops now. Scores computed so far stay in the cache.") as progress:
            started, place = time.perf_counter(), st.empty()
            if not _found_at_once(resources):
                draw_controls()

            def report(label: str, done: int, total: int) -> None:
                progress(label, done, total)
                if time.perf_counter() - started > UNDRAWN_SECONDS:
                    draw_controls()

            def paint(so_far: Trace, read: tuple[int, int] | None) -> None:
                if html := settling_html(so_far, read, state.variants_off(request)):
                    place.html(html)
                    if read is None:
                        time.sleep(FLUSH_SECONDS)
                        draw_controls()

            found = _fetch(request, resources, present, report, paint)
            st.session_state[SEARCHED] = (found.evidence, 1000 * (time.perf_counter() - started))
            return found
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return None


def _found_at_once(resources: Resources) -> bool:
    """Are the lists there in some tenths of a second: by models and indexes that are loaded, of this process?"""
    ready = shared_resources.warmth().state == "ready" and isinstance(resources.embedder, TokenEmbedder)
    return ready and searches_here(state.present_config())


def search_ms(trace: Trace) -> float | None:
    """How long the search that brought this trace's evidence took, in milliseconds; None when it was not made in this session."""
    last: tuple[Evidence, float] | None = st.session_state.get(SEARCHED)
    return last[1] if last is not None and last[0] is trace.evidence else None


def judged_trace(trace: Trace, request: Request, resources: Resources) -> Trace:
    """The trace with a judgment of each of its results, fetched with progress where it is missing; the ranking is the same.

    An error is one line on the page, and the trace is as it was.
    """
    if all_judged(trace):
        return trace
    place = st.empty()
    report = progress_in(place)
    try:
        judged = judge_missing(
            trace.evidence,
            trace.config,
            resources,
            lambda _, done, total: report("judging", done, total),
            switched_off=state.variants_off(request),
            trace=trace,
        )
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return trace
    finally:
        place.empty()
    if judged is trace.evidence:
        return trace
    state.keep_evidence(request, resources.store, judged)
    return _replayed(judged, request)


def ask_failed_again(request: Request, resources: Resources) -> None:
    """Drop the failures of the present reranker for this request, so that the next run asks for them again."""
    evidence = state.evidence_for(request, resources.store)
    if evidence is not None:
        key = model_key(state.present_config().rerank)
        state.keep_evidence(request, resources.store, without_failures(evidence, key))
    state.try_again()


def offer_again(needs: Sequence[Need]) -> None:
    """After a cancel, or a need that could not be met: say what is missing, and offer to go on."""
    scores = sum(len(need.memory_ids) for need in needs if isinstance(need, ScoreNeed))
    if not scores:
        return
    text_box, button_box = st.columns([6, 1], vertical_alignment="center")
    text_box.info(f"{scores} candidates are not scored yet; the other scores are kept.", icon=":material/pause_circle:")
    button_box.button("Resume", key="inspect:go_on", on_click=state.try_again)


class Judged(NamedTuple):
    """Human grades of a query by memory id, from which on is relevant, and whether people, or else its set, say that something answers
    it; None where nobody does."""

    grades: Mapping[str, int] = MappingProxyType({})
    relevant_from: int = DEFAULT_SCALE.relevant_from
    answerable: bool | None = None


def lists_for(config: PipelineConfig, trace: Trace, request: Request, resources: Resources) -> Evidence | None:
    """The present request's evidence as another config asks for it, of the same moment, with the scores that the cache has.

    No reranker is asked. None when it cannot be gathered.
    """
    try:
        gathered = gather_lists(replace(request, as_of=trace.evidence.as_of), config, resources)
        return score_missing(gathered, config, resources, cached_only=True)
    except WorkbenchError:
        return None


def judged(request: Request, resources: Resources) -> Judged:
    """What people judged, when the query is one of the store's (`runs.labelling.meant_query`)."""
    store, meant = resources.store, meant_query(request, resources.store)
    if meant is None:
        return Judged()
    given = store.judgments.read(meant.qid, "human")
    grades = agreed_grades(given).get(meant.qid, {})
    relevant_from = store.query_sets.relevant_from_of([meant.qid])[meant.qid] if grades else DEFAULT_SCALE.relevant_from
    return Judged(grades, relevant_from, as_judged([meant], agreed_answerable(given))[0].answerable)


def _replayed(evidence: Evidence, request: Request) -> Trace:
    return replay(evidence, state.present_config(), switched_off=state.variants_off(request), clock=time.perf_counter)


def _fetch(
    request: Request,
    resources: Resources,
    present: Trace | None,
    progress: Progress,
    paint: Callable[[Trace, tuple[int, int] | None], None],
) -> Trace:
    """The lists, unless only scores are missing; then the scores, those in the cache first.

    `paint` is given the ranking of new lists, that with the cached scores, and one after each batch that the reranker reads, with how many
    texts it has read of how many; none where nothing is left to read.
    """
    config, off = state.present_config(), state.variants_off(request)
    trace = present
    searched = trace is None or any(isinstance(need, ParameterNeed) for need in trace.needs)
    if trace is None or searched:
        moment = request.as_of or (trace.evidence.as_of if trace is not None else None)
        gathered = gather_lists(replace(request, as_of=moment), config, resources, progress)
        trace = _replayed(gathered, request)
        if _waits(trace):
            paint(trace, None)
    cached = score_missing(trace.evidence, config, resources, progress, cached_only=True, switched_off=off, trace=trace)
    state.keep_evidence(request, resources.store, cached)  # before the slow part, which may be cancelled
    so_far = trace if _scores(cached) == _scores(trace.evidence) else _replayed(cached, request)
    if _waits(so_far) and not (searched and so_far is trace):
        paint(so_far, None)

    def settling(label: str, done: int, total: int) -> None:
        progress(label, done, total)
        if label == RERANKING and done < total:
            known = score_missing(cached, config, resources, cached_only=True, switched_off=off, trace=so_far)
            paint(_replayed(known, request), (done, total))

    scored = score_to_decide(cached, config, resources, settling, switched_off=off, trace=so_far)
    if scored is cached:
        return so_far
    state.keep_evidence(request, resources.store, scored)
    return _replayed(scored, request)


def _waits(trace: Trace) -> bool:
    """Is there a candidate that the reranker has not read?"""
    return any(isinstance(need, ScoreNeed) for need in trace.needs)


def _scores(evidence: Evidence) -> int:
    """How many scores it holds; none is ever taken out, so that as many are the same ones."""
    return sum(map(len, evidence.model_scores.values()))
