"""Setup of the Tune page: query set, baseline, the offer to gather evidence, and tuning without judgments."""

from __future__ import annotations

import streamlit as st

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.jobs.catalogue import PRESENT_NAME
from cems_workbench.jobs.diagnosis import cannot_rerank
from cems_workbench.jobs.evaluation import agreed
from cems_workbench.jobs.query_set_evidence import (
    QuerySelection,
    discard_evidence,
    judged_selection,
)
from cems_workbench.jobs.tuning import TuningData, tuning_data
from cems_workbench.jobs.unlabelled import (
    gather_reference,
    store_data,
    trust_in_lists,
    unlabelled_selection,
    with_reference_reranker,
)
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.platform.bidi import neutralise
from cems_workbench.progress import Progress
from cems_workbench.settings import Settings
from cems_workbench.tuning.unlabelled import ListTrust
from cems_workbench.ui.evaluate.setup import server_answers
from cems_workbench.ui.evaluate.state import JUDGES, config_options
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.html import plain, render
from cems_workbench.ui.kit.session import for_all_sessions
from cems_workbench.ui.kit.tables import Column, draw_table
from cems_workbench.ui.kit.widgets import (
    draw_effects,
    draw_provenance,
    empty,
    offer_gather,
    offer_job,
)

UNLABELLED_NOTICE = (
    "Unlabelled: no judgments are used here. A reranker’s order, with its mistakes, replaces them; labels decide "
    "better."
)


def gathered(config: PipelineConfig, selection: QuerySelection, resources: Resources) -> TuningData | None:
    """The tuning data; None while reranker scores are missing, with the offer to gather them drawn in place."""
    data = store_data(config, selection, resources, for_all_sessions)
    if data is not None:
        st.info(UNLABELLED_NOTICE, icon=":material/label_off:")
        return data
    asking = with_reference_reranker(config)
    why_not = cannot_rerank(Settings(), asking, server_answers)
    if why_not:
        st.warning(
            f"Tuning without judgments needs a reranker, and none is available: {plain(why_not)}",
            icon=":material/block:",
        )
        return None
    message = (
        f"{UNLABELLED_NOTICE}\n\nEach of {len(selection.queries)} queries{_sample_text(selection, resources)} is searched once, and "
        f"{plain(model_key(asking.rerank))} scores the top of each list: seconds per query. After that, trying a config "
        "takes milliseconds."
    )

    def gather(progress: Progress) -> None:
        gather_reference(config, selection, resources, progress)

    if offer_job(
        "tune:stand_in",
        message,
        "Gather and score",
        gather,
        icon=":material/label_off:",
        kept="Gathered evidence and scores are kept; the job can be resumed.",
    ):
        st.rerun()
    return None


def _sample_text(selection: QuerySelection, resources: Resources) -> str:
    """A phrase saying that the queries are a sample of their set, or empty."""
    size = resources.store.query_sets.get(selection.query_set).size
    return f", drawn from {size}," if size > len(selection.queries) else ""


def draw_lists(data: TuningData) -> None:
    """Draw the diagnostics of each list that need no judgments."""
    trust = for_all_sessions(("trust", *data.labelled.key, data.baseline), lambda: trust_in_lists(data))
    st.markdown("## Reliability of each list")
    draw_table(trust, TRUST, key="tune:trust", width="content", placeholder="–")
    st.caption(
        "The search weights the lists by agreement alone. A list can agree with the reranker and share its mistakes."
    )


TRUST: list[Column[ListTrust]] = [
    Column("list", lambda one: one.source, 110),
    Column("queries", lambda one: one.queries, 70, help="Queries for which it returned results"),
    Column(
        "agreement",
        lambda one: one.agreement,
        90,
        "%.3f",
        "nDCG@10 of the list alone; the reranker’s first three have grades 3, 2 and 1",
    ),
    Column(
        "95 % interval",
        lambda one: f"{one.low:.3f}–{one.high:.3f}",
        120,
        help="Of the agreement: bootstrap over queries",
    ),
    Column("read", lambda one: 100 * one.read, 70, "%.0f %%", "Share of its first ten that the reranker scored"),
    Column(
        "shared",
        lambda one: 100 * one.shared,
        70,
        "%.0f %%",
        "Share of its first ten that are also in another list’s first ten",
    ),
    Column(
        "lead",
        lambda one: one.lead,
        70,
        "%.2f",
        "Gap between first and second score, relative to the drop from first to tenth. Shown, not used: on three judged sets it did not "
        "predict the better list.",
    ),
]


NO_JUDGMENTS = "None: a reranker’s order"
"""The option to tune without judgments."""


def choose(resources: Resources) -> TuningData | None:
    """Draw the setup; None while there are no data to tune on, with the reason drawn in place."""
    sets = {query_set.name: query_set for query_set in resources.store.query_sets.latest()}
    judgments = resources.store.judgments.read()
    if not sets or not (judgments or st.session_state.get("tune:judges") == NO_JUDGMENTS):
        _nothing(bool(sets))
        return None
    options = config_options(resources)
    boxes = st.columns([3, 3, 2, 2], vertical_alignment="bottom")
    name = boxes[0].selectbox(
        "Query set",
        sorted(sets),
        key="tune:set",
        persist_state="session",
        format_func=lambda name: f"{neutralise(name)} · {sets[name].size} queries · version {sets[name].version}",
        help="The judged queries of this set decide which config is better.",
    )
    if st.session_state.get("tune:baseline") not in options.configs:
        st.session_state["tune:baseline"] = PRESENT_NAME if state.changed_parameters() else state.present().preset
    base = boxes[1].selectbox(
        "Baseline",
        list(options.configs),
        key="tune:baseline",
        persist_state="session",
        help="The start of the search, which a proposal must beat. “As set in Inspect” is the current state of the sliders.",
    )
    kind = boxes[2].selectbox(
        "Judgments",
        [*JUDGES, NO_JUDGMENTS],
        key="tune:judges",
        persist_state="session",
        help="Whose grades count. “People, else models” uses a model’s grade only if no person graded the pair. With none, list weights "
        "are tuned to a reranker’s order, on all queries of the set.",
    )
    within = boxes[3].toggle(
        "Within the project",
        key="tune:only_project",
        persist_state="session",
        help="Search only the query’s project, if it has one.",
    )
    config = options.under_its_name(base)
    draw_effects({base: config}, bool(within))
    if kind == NO_JUDGMENTS:
        return gathered(config, unlabelled_selection(name, resources.store, bool(within)), resources)
    selection = judged_selection(name, resources, judgments, bool(within))
    if not selection.queries:
        st.info("No query of this set is judged yet. Label some results on the Label page, or import judgments.")
        return None
    if selection.without_project:
        st.caption(f"{selection.without_project[0].upper()}{selection.without_project[1:]}.")
    return _gathered(config, selection, JUDGES[kind], resources)


def _gathered(
    config: PipelineConfig, selection: QuerySelection, kind: str | None, resources: Resources
) -> TuningData | None:
    """The tuning data; while evidence is missing, None, with the offer to gather it."""
    grades = agreed(resources.store.judgments.read(), kind)
    data = tuning_data(config, selection, grades, resources, for_all_sessions)
    if data is not None:
        if data.evidence.answered:
            draw_provenance(
                "tune", f"Lists {data.evidence.answered}", lambda: discard_evidence(config, selection, resources)
            )
        return data
    whole = with_values(
        config, {"rerank.expected_misses": None}
    )  # a search tries other heads: what it reads has a score
    if offer_gather(
        "tune", [(config.name, whole, selection)], "after that, trying a config takes milliseconds", resources
    ):
        st.rerun()
    return None


def _nothing(has_queries: bool) -> None:
    lacking = "None of its queries is judged yet." if has_queries else "This store has no queries yet."
    empty("Find better weights on judged queries", render("tune/nothing_judged.html", lacking=lacking))
    if has_queries:
        st.button(
            "Propose weights without judgments",
            key="tune:without",
            icon=":material/label_off:",
            on_click=_without,
            help="Tuned to a reranker’s order. The result is marked everywhere as not based on judgments.",
        )


def _without() -> None:
    st.session_state["tune:judges"] = NO_JUDGMENTS
