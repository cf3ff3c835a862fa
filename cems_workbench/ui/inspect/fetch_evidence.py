"""Evidence for the page: reused while it answers the request, otherwise gathered with progress (`pipeline/gather.py:gather`).

A moved slider replays once, and so does a new query without a reranker. With a reranker a new query replays once for the order of the
lists, once more if the cache has scores, once after each batch of the reranker, and once with all scores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import WorkbenchError
from cems_workbench.jobs.background_evidence import searches_locally
from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.pipeline.gather import Request, gather, gather_lists, gather_scores
from cems_workbench.pipeline.missing_evidence import Need
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.scoring import wanted_scores, without_failures
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.pipeline.stages.result import ScoreNeed
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.results import settling_html
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.widgets import cancellable, errors_shown, progress_in

MAX_STALE_CONTROLS_S = 0.3
"""For so long the controls may be those of the last rerun: Streamlit fades what is not drawn again after half a second."""
FLUSH_SECONDS = 0.03
"""Pause after a painted order: Streamlit sends what was drawn every hundredth of a second, and the browser starts with it."""

LAST_SEARCH = "inspect:searched"
"""Session key of the evidence of the last search, and of how long it took in milliseconds."""


def present_trace(request: Request, resources: Resources) -> Trace | None:
    """The replay of the session's evidence, whatever it still needs; None if that belongs to another request."""
    evidence = state.evidence_for(request, resources.store)
    return None if evidence is None else _replayed(evidence, request)


def must_fetch(trace: Trace | None, request: Request) -> bool:
    """Must evidence be fetched before `trace` can be shown? What was cancelled, or could not be met, is fetched once."""
    return trace is None or (bool(trace.needs) and not state.attempted(request))


def fetched_trace(
    request: Request, resources: Resources, present: Trace | None, draw_controls: Callable[[], None]
) -> Trace | None:
    """The trace after fetching what `present`, the session's, is missing, with progress; None after an error, which is shown.

    `draw_controls`, which draws once, is called as soon as the order of the lists is painted, or earlier if that takes a while: there are
    many controls, and the browser would draw them first.

    Any interaction while this works, the cancel button among them, ends it at the next step: gathered lists are kept, and finished
    scores are in the store's cache.
    """
    state.attempt(request)
    with (
        errors_shown(),
        cancellable("inspect:cancel", "Stops now. Scores computed so far stay in the cache.") as progress,
    ):
        started = time.perf_counter()
        painter = _Painter(request, resources, st.empty(), draw_controls)
        if not _lists_are_fast(resources):
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


def _lists_are_fast(resources: Resources) -> bool:
    """Do the lists take some tenths of a second at most: models and indexes of this process, loaded?"""
    ready = session.warm_up_state().state == "ready" and isinstance(resources.embedder, TokenEmbedder)
    return ready and searches_locally(state.present_config())


def search_ms(trace: Trace) -> float | None:
    """Milliseconds of the search that this trace's evidence comes from; None if it was not made in this session."""
    last: tuple[Evidence, float] | None = st.session_state.get(LAST_SEARCH)
    return last[1] if last is not None and last[0] is trace.evidence else None


def judged_trace(trace: Trace, request: Request, resources: Resources) -> Trace:
    """The trace with a judgment of each of its results, fetched with progress if it is missing; the ranking is the same.

    An error is one line on the page, and the trace is unchanged.
    """
    if not wanted_scores(trace, "judge"):
        return trace
    place = st.empty()
    report = progress_in(place)
    try:
        judged = gather_scores(
            trace.evidence,
            trace.config,
            resources,
            lambda _, done, total: report("judging", done, total),
            switched_off=state.variants_off(request),
            only="judge",
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


def retry_failures(request: Request, resources: Resources) -> None:
    """Drop the failures of the present reranker for this request, so that the next rerun scores them again."""
    evidence = state.evidence_for(request, resources.store)
    if evidence is not None:
        key = model_key(state.present_config().rerank)
        state.keep_evidence(request, resources.store, without_failures(evidence, key))
    state.try_again()


def offer_resume(needs: Sequence[Need]) -> None:
    """After a cancel, or a need that could not be met: show what is missing, and offer to resume."""
    scores = sum(len(need.memory_ids) for need in needs if isinstance(need, ScoreNeed))
    if not scores:
        return
    text_box, button_box = st.columns([6, 1], vertical_alignment="center")
    text_box.info(f"{scores} candidates are not scored yet; the other scores are kept.", icon=":material/pause_circle:")
    button_box.button("Resume", key="inspect:go_on", on_click=state.try_again)


def lists_for(config: PipelineConfig, trace: Trace, request: Request, resources: Resources) -> Evidence | None:
    """The request's evidence under another config, at the same moment, with the scores that the cache has.

    No reranker is asked. None if it cannot be gathered.
    """
    try:
        gathered = gather_lists(replace(request, as_of=trace.evidence.as_of), config, resources)
        return gather_scores(gathered, config, resources, only="rerank", cached_only=True)
    except WorkbenchError:
        return None


def _replayed(evidence: Evidence, request: Request) -> Trace:
    return replay(evidence, state.present_config(), switched_off=state.variants_off(request), clock=time.perf_counter)
