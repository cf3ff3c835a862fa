"""Evidence for the page: reused while it answers the request, otherwise gathered with progress (`pipeline/gather.py:gather`).

A moved slider replays once, and so does a new query without a reranker. With a reranker a new query replays once for the order of the
lists, once more if the cache has scores, once after each batch of the reranker, and once with all scores.

Evidence of the judged queries is gathered once per gather parameters and store content, for all sessions: the query picker and tools that
measure a change on all of them share it. A built set is cached in the session.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import streamlit as st

from cems_workbench.analysis.why.trial import LabelledSet
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import WorkbenchError, counted
from cems_workbench.evaluation.batch import LabelledBatch, SignalTable, signal_table
from cems_workbench.jobs.background import BackgroundEvidence, may_start_unasked, searches_locally
from cems_workbench.jobs.evidence_memory import EvidenceMemory, Grades, gathered_judged_set, judged_queries
from cems_workbench.jobs.query_set_evidence import evidence_files
from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.pipeline.gather import Request, gather, gather_lists, gather_scores
from cems_workbench.pipeline.list_sources import provenance
from cems_workbench.pipeline.missing_evidence import Need
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.scoring import wanted_scores, without_failures
from cems_workbench.pipeline.stages.abstain import switched_off
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.pipeline.stages.result import ScoreNeed
from cems_workbench.records import Query
from cems_workbench.settings import Settings
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.results import settling_html
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.session import kept
from cems_workbench.ui.kit.widgets import cancellable, errors_shown, progress_bar, watch_work

MAX_STALE_CONTROLS_S = 0.3
"""For so long the controls may be those of the last rerun: Streamlit fades what is not drawn again after half a second."""
FLUSH_SECONDS = 0.03
"""Pause after a painted order: Streamlit sends what was drawn every hundredth of a second, and the browser starts with it."""

LAST_SEARCH, REPLAYED = "inspect:searched", "inspect:replayed"
"""Session keys of the evidence of the last search, with how long it took in milliseconds, and of the last replay."""


def present_trace(request: Request, resources: Resources) -> Trace | None:
    """The replay of the session's evidence, whatever it still needs; None if that belongs to another request."""
    evidence = state.evidence_for(request, resources.store)
    return None if evidence is None else _replayed(evidence, request)


def must_fetch(trace: Trace | None, request: Request) -> bool:
    """Must evidence be fetched before `trace` can be shown? What was cancelled, or could not be met, is fetched once."""
    return trace is None or (bool(trace.needs) and state.present().attempted != (request, state.present_config()))


def fetched_trace(
    request: Request, resources: Resources, present: Trace | None, draw_controls: Callable[[], None]
) -> Trace | None:
    """The trace after fetching what `present`, the session's, is missing, with progress; None after an error, which is shown.

    `draw_controls`, which draws once, is called as soon as the order of the lists is painted, or earlier if that takes a while: there are
    many controls, and the browser would draw them first.

    Any interaction while this works, the cancel button among them, ends it at the next step: gathered lists are kept, and finished
    scores are in the store's cache.
    """
    state.update(attempted=(request, state.present_config()))
    with (
        errors_shown(),
        cancellable("inspect:cancel", "Stops now. Scores computed so far stay in the cache.") as progress,
    ):
        started = time.perf_counter()
        painter = _Painter(request, resources, st.empty(), draw_controls)
        loaded = session.warm_up_state().state == "ready" and isinstance(resources.embedder, TokenEmbedder)
        if not (loaded and searches_locally(state.present_config())):  # else the lists take some tenths of a second
            draw_controls()

        def report(label: str, done: int, total: int) -> None:
            progress(label, done, total)
            if time.perf_counter() - started > MAX_STALE_CONTROLS_S:
                draw_controls()

        evidence = gather(
            request,
            state.present_config(),
            resources,
            report,
            known=present,
            judge="decisive",
            switched_off=state.variants_off(request),
            observer=painter,
            clock=time.perf_counter,
        )
        latest = painter.latest
        trace = latest if latest is not None and latest.evidence is evidence else _replayed(evidence, request)
        st.session_state[LAST_SEARCH] = (evidence, 1000 * (time.perf_counter() - started))
        return trace
    return None


@dataclass
class _Painter:
    """Paints the rankings of a gather, and keeps its evidence in the session."""

    request: Request
    resources: Resources
    place: st.delta_generator.DeltaGenerator
    draw_controls: Callable[[], None]
    latest: Trace | None = None

    def ranking(self, trace: Trace, read: tuple[int, int] | None) -> None:
        """Paint a ranking, unless it is final already: then the page draws it in full."""
        self.latest = trace
        if read is None and not any(isinstance(need, ScoreNeed) for need in trace.needs):
            return
        if html := settling_html(trace, read, state.variants_off(self.request)):
            self.place.html(html)
            if read is None:
                time.sleep(FLUSH_SECONDS)
                self.draw_controls()

    def evidence(self, evidence: Evidence) -> None:
        """Keep the evidence for the next rerun."""
        state.keep_evidence(self.request, self.resources.store, evidence)


def search_ms(trace: Trace) -> float | None:
    """Milliseconds of the search that this trace's evidence comes from; None if it was not made in this session."""
    last: tuple[Evidence, float] | None = st.session_state.get(LAST_SEARCH)
    return last[1] if last is not None and last[0] is trace.evidence else None


def judged_trace(trace: Trace, request: Request, resources: Resources) -> Trace:
    """The trace with a judgment of each of its results, fetched with progress if it is missing; the ranking is the
    same. An error is one line on the page, and the trace is unchanged."""
    if not wanted_scores(trace, "judge"):
        return trace
    judged, off = trace.evidence, state.variants_off(request)
    with errors_shown(), progress_bar() as progress:

        def report(_: str, done: int, total: int) -> None:
            progress("judging", done, total)

        judged = gather_scores(judged, trace.config, resources, report, switched_off=off, only="judge", trace=trace)
    if judged is trace.evidence:
        return trace
    state.keep_evidence(request, resources.store, judged)
    return _replayed(judged, request)


def retry_failures(request: Request, resources: Resources) -> None:
    """Drop the failures of the present reranker for this request, so that the next rerun scores them again."""
    evidence = state.evidence_for(request, resources.store)
    if evidence is not None:
        key = model_key(state.present_config().rerank)
        state.keep_evidence(request, resources.store, without_failures(evidence, key))
    state.update(attempted=None)


def offer_resume(needs: Sequence[Need]) -> None:
    """After a cancel, or a need that could not be met: show what is missing, and offer to resume."""
    scores = sum(len(need.memory_ids) for need in needs if isinstance(need, ScoreNeed))
    if not scores:
        return
    text_box, button_box = st.columns([6, 1], vertical_alignment="center")
    text_box.info(f"Not scored yet: {counted(scores, 'candidates')}; others are kept.", icon=":material/pause_circle:")
    button_box.button("Resume", key="inspect:go_on", on_click=state.update, kwargs={"attempted": None})


def lists_for(config: PipelineConfig, trace: Trace, request: Request, resources: Resources) -> Evidence | None:
    """The request's evidence under another config, at the same moment, with the scores that the cache has. No reranker
    is asked. None if it cannot be gathered."""
    try:
        gathered = gather_lists(replace(request, as_of=trace.evidence.as_of), config, resources)
        return gather_scores(gathered, config, resources, only="rerank", cached_only=True)
    except WorkbenchError:
        return None


def _replayed(evidence: Evidence, request: Request) -> Trace:
    config, off = state.present_config(), state.variants_off(request)
    run = partial(replay, evidence, config, switched_off=off, clock=time.perf_counter)
    return kept(REPLAYED, (evidence, config, off), run)


LABELLED = "inspect:labelled"
GATHERED, JUDGED = "inspect:labelled:gathered", "inspect:judged"
NOTHING_MISSING = "inspect:ahead:nothing"
SIGNALS_SEEN = "inspect:abstain:judged_signals"
"""Keys of the session state."""


@st.cache_resource(show_spinner=False)
def evidence_memory() -> EvidenceMemory:
    """Evidence of judged queries, shared by all sessions."""
    return EvidenceMemory()


def forget_evidence(resources: Resources) -> None:
    """Discard lists returned by a live system, for the query on the page and the judged queries, so that they are requested again."""
    evidence_memory().forget(state.present_config(), resources)
    st.session_state.pop(LABELLED, None)
    state.forget_evidence()


def evidence_of(queries: list[Query], config: PipelineConfig, resources: Resources) -> list[Evidence]:
    """The evidence of every query; missing evidence is gathered with progress. Any interaction stops gathering;
    gathered evidence is kept. Raises WorkbenchError on failure."""
    memory = evidence_memory()
    if memory.has(queries, config, resources):
        return memory.get(queries, config, resources)
    with progress_bar() as progress:
        return memory.get(queries, config, resources, progress)


@st.cache_resource(show_spinner=False)
def _gathers() -> dict[str, BackgroundEvidence]:
    """The last background gather of each open store, by its folder; shared by all sessions."""
    return {}


def gather_ahead(context: InspectContext) -> None:
    """Start gathering the judged queries for the current config in the background, or draw the progress. A stopped or
    failed gather is not restarted automatically, and neither is one that sends requests to another system."""
    last = _gather_of(context)
    if last is None and Settings().gather_ahead and may_start_unasked(context.trace.config):
        last = _start_gather(context)
    if last is not None and not last.over:
        text = "Searching the judged queries in the background, to measure changes on them: {done} of {total}"
        store = str(context.resources.store.path)
        watch_work(_gathers, store, "inspect:ahead:stop", text, "Stop", "Finished searches are kept.")


def _start_gather(context: InspectContext) -> BackgroundEvidence | None:
    """Start the background gather of the judged queries; None if nothing is missing. Judgments are read once per
    gather: "nothing missing" is remembered until another query is judged."""
    resources, config = context.resources, context.trace.config
    asked = (evidence_memory().key(config, resources), resources.store.judgments.count_queries("human"))
    if st.session_state.get(NOTHING_MISSING) == asked:
        return None
    queries, _ = judged_queries(resources)
    if not queries or evidence_memory().has(queries, config, resources):
        st.session_state[NOTHING_MISSING] = asked
        return None
    store = str(resources.store.path)
    if (before := _gathers().get(store)) is not None:
        before.stop()
    gather = _gathers()[store] = BackgroundEvidence(evidence_memory(), queries, config, resources).start()
    return gather


def _gather_of(context: InspectContext) -> BackgroundEvidence | None:
    """The background gather for the current config; None if there was none."""
    last = _gathers().get(str(context.resources.store.path))
    same = last is not None and last.key == evidence_memory().key(context.trace.config, context.resources)
    return last if same else None


def _judged(resources: Resources) -> tuple[list[Query], Grades]:
    """`judged_queries`, kept until something is written."""
    return kept(JUDGED, resources.store.version, lambda: judged_queries(resources))


def labelled_set(context: InspectContext) -> LabelledSet | None:
    """The labelled queries under the current gather parameters; None until their evidence is gathered."""
    queries, grades = _judged(context.resources)
    gathered = queries and evidence_memory().has(queries, context.trace.config, context.resources)
    return _build(context, queries, grades) if gathered else None


def gathered_set(context: InspectContext) -> LabelledSet | None:
    """What files next to the store hold of the labelled queries, as the command line reads it; None if that is nothing."""
    resources, config = context.resources, context.trace.config
    files = tuple(sorted((path.name, path.stat().st_mtime_ns) for path in evidence_files(resources)))
    judged = resources.store.judgments.count_queries("human")
    asked = (evidence_memory().key(config, resources), files, judged)
    return kept(GATHERED, asked, lambda: gathered_judged_set(config, resources))


def offer_labelled(context: InspectContext, key: str) -> LabelledSet | None:
    """The set, or None with a button drawn that gathers it. An error is drawn as one line."""
    labelled = labelled_set(context)
    if labelled is not None:
        if answered := st.session_state[LABELLED][1][1]:
            st.caption(plain(f"Judged queries: lists {answered}"))
        return labelled
    queries, grades = _judged(context.resources)
    last = _gather_of(context)
    if not queries:
        st.caption(
            "No query of this store is judged. With judgments, this shows the effect of a change on all of them."
        )
        return None
    if last is not None and not last.over:
        st.caption("The judged queries are being searched; the progress is at the end of the page.")
        return None
    if last is not None and last.problem:
        st.caption(f"The judged queries could not be searched in the background: {plain(last.problem)}")
    place = st.empty()
    help = "Searches each judged query once; then every change is replayed on all of them. Any other control stops it."
    if not place.button(
        f"Measure on {counted(len(queries), 'judged queries')}", key, help, icon=":material/checklist:"
    ):
        return None
    place.empty()
    with errors_shown():
        return _build(context, queries, grades)
    return None


def judged_signals(context: InspectContext, key: str) -> SignalTable | None:
    """Abstain signals under the current config of the queries that `offer_labelled` gives, called with `key`; None if it gives none."""
    if offer_labelled(context, key) is None:
        return None
    asked, (_, _, evidences) = st.session_state[LABELLED]
    _, queries, grades, relevant_from = asked
    config = switched_off(context.trace.config)

    def make() -> SignalTable:
        return signal_table(LabelledBatch(queries, evidences, grades), config, relevant_from)

    return kept(SIGNALS_SEEN, (asked, config), make)


def _build(context: InspectContext, queries: list[Query], grades: Grades) -> LabelledSet:
    """The labelled set of these queries, gathered if that is missing; kept by gather parameters, queries and judgments.
    Beside it are kept which live system returned the lists, and when, and the evidence by qid."""
    config, resources = context.trace.config, context.resources
    relevant_from = resources.store.query_sets.relevant_from_of([query.qid for query in queries])

    def make() -> tuple[LabelledSet, str, Mapping[str, Evidence]]:
        evidences = evidence_of(queries, config, resources)
        named = {query.qid: evidence for query, evidence in zip(queries, evidences, strict=True)}
        return LabelledSet(named, grades, relevant_from), provenance(*(one.notes for one in evidences)), named

    return kept(LABELLED, (evidence_memory().key(config, resources), queries, grades, relevant_from), make)[0]
