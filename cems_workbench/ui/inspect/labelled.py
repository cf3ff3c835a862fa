"""The judged queries of the store and their evidence: for the query picker, and for tools that measure a change on all of them.

Evidence is gathered once per gather parameters and content, for every session; picker and tools have the same, so that neither gathers
what the other has. A built set is kept in the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from cems_workbench.analysis.why import LabelledSet
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.signals import SignalTable, signal_table
from cems_workbench.jobs.background_evidence import BackgroundEvidence, may_start_unasked
from cems_workbench.jobs.evidence_memory import EvidenceMemory, Grades, MemoryKey, judged_queries
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.list_provenance import provenance
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.abstain import switched_off
from cems_workbench.records import Query
from cems_workbench.settings import Settings
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.progress import progress_in

LABELLED = "inspect:labelled"
NOTHING_MISSING = "inspect:ahead:nothing"
SIGNALS_SEEN = "inspect:abstain:judged_signals"
"""Keys of the session state."""
EVERY = 1.0
"""Seconds between two looks at a background gather."""


@st.cache_resource(show_spinner=False)
def evidence_memory() -> EvidenceMemory:
    """Evidence of judged queries, for every session of the app."""
    return EvidenceMemory()


@dataclass(frozen=True)
class BuiltSet:
    """A labelled set, and what it was built from: the gather parameters, the queries and the judgments."""

    key: MemoryKey
    queries: list[Query]
    grades: Grades
    relevant_from: Mapping[str, int]
    """Of each query the lowest relevant grade, as its set says."""
    labelled: LabelledSet
    answered: str
    """By whom and when the lists were answered, where that was a running system."""


def forget_evidence(resources: Resources) -> None:
    """Have the lists of a running system asked for anew: those of the query on the page, and those of the judged queries."""
    evidence_memory().forget(state.present_config(), resources)
    st.session_state.pop(LABELLED, None)
    state.forget_evidence()


def evidence_of(queries: list[Query], config: PipelineConfig, resources: Resources) -> list[Evidence]:
    """The evidence of every query, gathered where it is missing, with progress.

    Any interaction ends the gathering; what was gathered by then is kept. Raises WorkbenchError where that fails.
    """
    memory = evidence_memory()
    if memory.has(queries, config, resources):
        return memory.get(queries, config, resources)
    place = st.empty()
    try:
        return memory.get(queries, config, resources, progress_in(place))
    finally:
        place.empty()


@st.cache_resource(show_spinner=False)
def _gathers() -> dict[str, BackgroundEvidence]:
    """The last background gather of each store that this process opened, by its folder; shared by all sessions."""
    return {}


def gather_ahead(context: InspectContext) -> None:
    """Begin to search the judged queries in the background as the page is set, or say how far that is.

    What was stopped, or failed, is not begun again by itself, and neither is what asks another system for its answers.
    """
    last = _gather_of(context)
    if last is None and Settings().gather_ahead and may_start_unasked(context.trace.config):
        last = _begun(context)
    if last is not None and not last.over:
        _watch(str(context.resources.store.path))


def _begun(context: InspectContext) -> BackgroundEvidence | None:
    """The background gather of the judged queries, begun now; None where nothing is missing.

    All judgments are read once for a gather: where nothing was missing, that is known until a query more is judged.
    """
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
    found = _gathers()[store] = BackgroundEvidence(evidence_memory(), queries, config, resources).start()
    return found


def _gather_of(context: InspectContext) -> BackgroundEvidence | None:
    """The background gather of what the page is set to; None where there was none."""
    last = _gathers().get(str(context.resources.store.path))
    same = last is not None and last.key == evidence_memory().key(context.trace.config, context.resources)
    return last if same else None


@st.fragment(run_every=EVERY)
def _watch(store: str) -> None:
    """How far the gather is, drawn again and again without the rest of the page; the whole page when it is over."""
    at_work = _gathers()[store]
    if at_work.over:
        st.rerun()
    bar, button = st.columns([5, 1], vertical_alignment="center")
    bar.progress(
        at_work.done / max(1, at_work.total),
        text=f"Searching the judged queries in the background, to measure fixes on them: {at_work.done} of {at_work.total}",
    )
    button.button(
        "Stop", key="inspect:ahead:stop", on_click=at_work.stop, width="stretch", help="What was searched is kept."
    )


def labelled_set(context: InspectContext) -> LabelledSet | None:
    """The labelled queries under the gather parameters of now; None while their evidence has not been gathered."""
    return _labelled(context, *judged_queries(context.resources))


def offer_labelled(context: InspectContext, key: str) -> LabelledSet | None:
    """The set, or a button that gathers it with progress; None while it is not there. An error is one line."""
    queries, grades = judged_queries(context.resources)
    labelled = _labelled(context, queries, grades)
    if labelled is not None:
        if said := st.session_state[LABELLED].answered:
            st.caption(plain(f"Judged queries: lists {said}"))
        return labelled
    if not queries:
        st.caption("No query of this store is judged. With judgments, this shows what a change does to all of them.")
        return None
    last = _gather_of(context)
    if last is not None and not last.over:
        st.caption(
            "Effects on the judged queries follow as soon as they are searched; how far that is stands at the end of the page."
        )
        return None
    if last is not None and last.problem:
        st.caption(f"The judged queries could not be searched in the background: {plain(last.problem)}")
    place = st.empty()
    pressed = place.button(
        f"Measure on {len(queries)} judged queries",
        key=key,
        icon=":material/checklist:",
        help="Searches each judged query once, which takes a while; after that every change is replayed on all of them at once. "
        "Using any other control stops it; finished searches are kept.",
    )
    if not pressed:
        return None
    place.empty()
    try:
        return _build(context, queries, grades)
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return None


def judged_signals(context: InspectContext) -> SignalTable | None:
    """What each signal of abstain says of the judged queries under the config of now; None while they are not searched."""
    resources, config = context.resources, switched_off(context.trace.config)
    queries, grades = judged_queries(resources)
    if not queries or not evidence_memory().has(queries, context.trace.config, resources):
        return None
    relevant_from = _relevant_from(queries, resources)
    asked = (evidence_memory().key(context.trace.config, resources), config, queries, grades, relevant_from)
    kept: tuple[tuple[object, ...], SignalTable] | None = st.session_state.get(SIGNALS_SEEN)
    if kept is None or kept[0] != asked:
        evidences = evidence_of(queries, context.trace.config, resources)
        batch = LabelledBatch(queries, {query.qid: one for query, one in zip(queries, evidences, strict=True)}, grades)
        kept = st.session_state[SIGNALS_SEEN] = (asked, signal_table(batch, config, relevant_from))
    return kept[1]


def _labelled(context: InspectContext, queries: list[Query], grades: Grades) -> LabelledSet | None:
    """The set when its evidence is there."""
    config = context.trace.config
    built: BuiltSet | None = st.session_state.get(LABELLED)
    key = evidence_memory().key(config, context.resources)
    asked = (key, queries, grades, _relevant_from(queries, context.resources))
    if built is not None and (built.key, built.queries, built.grades, built.relevant_from) == asked:
        return built.labelled
    there = queries and evidence_memory().has(queries, config, context.resources)
    return _build(context, queries, grades) if there else None


def _build(context: InspectContext, queries: list[Query], grades: Grades) -> LabelledSet:
    config = context.trace.config
    evidences = evidence_of(queries, config, context.resources)
    relevant_from = _relevant_from(queries, context.resources)
    named = {query.qid: evidence for query, evidence in zip(queries, evidences, strict=True)}
    labelled = LabelledSet(named, grades, relevant_from)
    key = evidence_memory().key(config, context.resources)
    st.session_state[LABELLED] = BuiltSet(key, queries, grades, relevant_from, labelled, provenance(*evidences))
    return labelled


def _relevant_from(queries: list[Query], resources: Resources) -> Mapping[str, int]:
    return resources.store.query_sets.relevant_from_of([query.qid for query in queries])
