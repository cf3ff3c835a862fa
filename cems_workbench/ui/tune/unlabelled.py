"""Tuning without judgments: gathering reranker scores, list diagnostics, and validation on judgments."""

from __future__ import annotations

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.jobs.diagnosis import cannot_rerank
from cems_workbench.jobs.evaluation import LabelledEvidence, agreed, labelled
from cems_workbench.jobs.query_set_evidence import QuerySelection
from cems_workbench.jobs.tuning import SearchResult, SearchSettings, TuningData
from cems_workbench.jobs.unlabelled import (
    by_judgments,
    gather_reference,
    store_data,
    trust_in_lists,
    with_reference_reranker,
)
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.progress import Progress
from cems_workbench.settings import Settings
from cems_workbench.tuning.optimizer import Trial, Watch
from cems_workbench.tuning.unlabelled import ListTrust
from cems_workbench.ui.evaluate.setup import server_answers
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.session import for_all_sessions
from cems_workbench.ui.kit.tables import Column, draw_table
from cems_workbench.ui.kit.widgets import offer_job
from cems_workbench.ui.tune.state import page

UNLABELLED_NOTICE = (
    "Unlabelled: no judgments are used here. A reranker’s order, with its mistakes, replaces them; labels decide "
    "better."
)
SEALED_SHARE = 0.2
"""The share of judged queries sealed when a proposal is validated on judgments, as in a labelled search."""


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


def current_judgments(result: SearchResult, resources: Resources) -> LabelledEvidence | None:
    """The evidence of an unlabelled search with the store's current judgments; None if none of its queries is judged."""
    grades = agreed(resources.store.judgments.read(), None)
    found = labelled(result.planned.data.evidence, grades, for_all_sessions)
    return found if found.batch.queries else None


def offer_judgments(result: SearchResult, resources: Resources) -> None:
    """Draw the offer to validate the proposal on existing judgments, if there are any."""
    if result.tuned.search.cancelled:
        return
    judged = current_judgments(result, resources)
    if judged is None:
        st.caption("None of these queries is judged, so the proposal cannot be validated on judgments yet.")
        return
    planned = result.planned
    settings = SearchSettings(
        planned.group_by, len(planned.plan.split.folds), SEALED_SHARE, planned.plan.trials, planned.plan.seed
    )

    def compare(progress: Progress) -> None:
        relevant_from = resources.store.query_sets.relevant_from(planned.data.query_set)
        held = by_judgments(result, judged, settings, relevant_from, lambda name: _watch(name, progress))
        page.update(result=held)

    message = (
        f"{len(judged.batch.queries)} of these queries are judged. Validate the proposal on them, and compare it with one tuned "
        "on judgments."
    )
    if offer_job(
        "tune:by_judgments",
        message,
        "Validate on judgments",
        compare,
        icon=":material/balance:",
        kept="Tried configs are kept.",
        help="Also runs the same search with judgments, for comparison. A fifth of the judged queries stays sealed.",
    ):
        st.rerun()


def _watch(name: str, progress: Progress) -> Watch:
    def watch(done: int, total: int, best: Trial) -> None:
        progress(f"{name}, with judgments", done, total)

    return watch
