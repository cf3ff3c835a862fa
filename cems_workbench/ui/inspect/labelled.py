"""Judged queries of the store and their evidence, for the query picker and for tools that measure a change on all of them.

Evidence is gathered once per gather parameters and store content, for all sessions; picker and tools share it. A built set is cached
in the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from cems_workbench.analysis.why import LabelledSet
from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.signals import SignalTable, signal_table
from cems_workbench.jobs.background_evidence import BackgroundEvidence, may_start_unasked
from cems_workbench.jobs.evidence_memory import EvidenceMemory, Grades, MemoryKey, gathered_judged_set, judged_queries
from cems_workbench.jobs.query_set_evidence import evidence_files
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.list_provenance import provenance
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.abstain import switched_off
from cems_workbench.records import Query
from cems_workbench.settings import Settings
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.widgets import errors_shown, progress_in, watch_work

LABELLED = "inspect:labelled"
GATHERED = "inspect:labelled:gathered"
NOTHING_MISSING = "inspect:ahead:nothing"
SIGNALS_SEEN = "inspect:abstain:judged_signals"
"""Keys of the session state."""


@st.cache_resource(show_spinner=False)
def evidence_memory() -> EvidenceMemory:
    """Evidence of judged queries, shared by all sessions."""
    return EvidenceMemory()


@dataclass(frozen=True)
class BuiltSet:
    """A labelled set, and its inputs: gather parameters, queries and judgments."""

    key: MemoryKey
    queries: list[Query]
    grades: Grades
    relevant_from: Mapping[str, int]
    """The lowest relevant grade per query, from its set."""
    labelled: LabelledSet
    answered: str
    """Which live system returned the lists, and when."""


def forget_evidence(resources: Resources) -> None:
    """Discard lists returned by a live system, for the query on the page and the judged queries, so that they are requested again."""
    evidence_memory().forget(state.present_config(), resources)
    st.session_state.pop(LABELLED, None)
    state.forget_evidence()


def evidence_of(queries: list[Query], config: PipelineConfig, resources: Resources) -> list[Evidence]:
    """The evidence of every query; missing evidence is gathered with progress.

    Any interaction stops gathering; gathered evidence is kept. Raises WorkbenchError on failure.
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
    """The last background gather of each open store, by its folder; shared by all sessions."""
    return {}


def gather_ahead(context: InspectContext) -> None:
    """Start gathering the judged queries for the current config in the background, or draw the progress.

    A stopped or failed gather is not restarted automatically, and neither is one that sends requests to another system.
    """
    last = _gather_of(context)
    if last is None and Settings().gather_ahead and may_start_unasked(context.trace.config):
        last = _start_gather(context)
    if last is not None and not last.over:
        text = "Searching the judged queries in the background, to measure changes on them: {done} of {total}"
        store = str(context.resources.store.path)
        watch_work(_gathers, store, "inspect:ahead:stop", text, "Stop", "Finished searches are kept.")


def _start_gather(context: InspectContext) -> BackgroundEvidence | None:
    """Start the background gather of the judged queries; None if nothing is missing.

    Judgments are read once per gather: "nothing missing" is remembered until another query is judged.
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
    gather = _gathers()[store] = BackgroundEvidence(evidence_memory(), queries, config, resources).start()
    return gather


def _gather_of(context: InspectContext) -> BackgroundEvidence | None:
    """The background gather for the current config; None if there was none."""
    last = _gathers().get(str(context.resources.store.path))
    same = last is not None and last.key == evidence_memory().key(context.trace.config, context.resources)
    return last if same else None


def labelled_set(context: InspectContext) -> LabelledSet | None:
    """The labelled queries under the current gather parameters; None until their evidence is gathered."""
    return _labelled(context, *judged_queries(context.resources))


def gathered_set(context: InspectContext) -> LabelledSet | None:
    """What files next to the store hold of the labelled queries, as the command line reads it; None if that is nothing."""
    resources, config = context.resources, context.trace.config
    files = tuple(sorted((path.name, path.stat().st_mtime_ns) for path in evidence_files(resources)))
    judged = resources.store.judgments.count_queries("human")
    asked = (evidence_memory().key(config, resources), files, judged)
    cached: tuple[object, LabelledSet | None] | None = st.session_state.get(GATHERED)
    if cached is None or cached[0] != asked:
        cached = st.session_state[GATHERED] = (asked, gathered_judged_set(config, resources))
    return cached[1]


def offer_labelled(context: InspectContext, key: str) -> LabelledSet | None:
    """The set, or None with a button drawn that gathers it. An error is drawn as one line."""
    queries, grades = judged_queries(context.resources)
    labelled = _labelled(context, queries, grades)
    if labelled is not None:
        if answered := st.session_state[LABELLED].answered:
            st.caption(plain(f"Judged queries: lists {answered}"))
        return labelled
    if not queries:
        st.caption(
            "No query of this store is judged. With judgments, this shows the effect of a change on all of them."
        )
        return None
    last = _gather_of(context)
    if last is not None and not last.over:
        st.caption(
            "Effects on the judged queries appear once these are searched; the progress is at the end of the page."
        )
        return None
    if last is not None and last.problem:
        st.caption(f"The judged queries could not be searched in the background: {plain(last.problem)}")
    place = st.empty()
    pressed = place.button(
        f"Measure on {len(queries)} judged queries",
        key=key,
        icon=":material/checklist:",
        help="Searches each judged query once, which takes a while; after that every change is replayed on all of them immediately. "
        "Using any other control stops it; finished searches are kept.",
    )
    if not pressed:
        return None
    place.empty()
    with errors_shown():
        return _build(context, queries, grades)
    return None


def judged_signals(context: InspectContext) -> SignalTable | None:
    """Abstain signals of the judged queries under the current config; None until they are gathered."""
    resources, config = context.resources, switched_off(context.trace.config)
    queries, grades = judged_queries(resources)
    if not queries or not evidence_memory().has(queries, context.trace.config, resources):
        return None
    relevant_from = _relevant_from(queries, resources)
    asked = (evidence_memory().key(context.trace.config, resources), config, queries, grades, relevant_from)
    cached: tuple[tuple[object, ...], SignalTable] | None = st.session_state.get(SIGNALS_SEEN)
    if cached is None or cached[0] != asked:
        evidences = evidence_of(queries, context.trace.config, resources)
        batch = LabelledBatch(queries, {query.qid: one for query, one in zip(queries, evidences, strict=True)}, grades)
        cached = st.session_state[SIGNALS_SEEN] = (asked, signal_table(batch, config, relevant_from))
    return cached[1]


def _labelled(context: InspectContext, queries: list[Query], grades: Grades) -> LabelledSet | None:
    """The set if its evidence is gathered; else None."""
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
