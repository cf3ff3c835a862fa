"""Tuning without judgments on the page: the gathering of what a reranker reads, what is known of each list, and the proof by judgments."""

from __future__ import annotations

import math
from dataclasses import asdict

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
from cems_workbench.ui.evaluate.missing_scores import server_answers
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.job_cache import for_all_sessions
from cems_workbench.ui.kit.panels import offered
from cems_workbench.ui.kit.tables import draw_table
from cems_workbench.ui.tune.state import page

SAID = (
    "Unlabelled: no judgment chooses anything here. What a reranker puts first stands in for judgments, with its mistakes; labels decide "
    "better."
)
SEALED = 0.2
"""The share of the judged queries that is left out when a proposal is held against judgments, as a labelled search leaves it out."""


def gathered(config: PipelineConfig, selection: QuerySelection, resources: Resources) -> TuningData | None:
    """What is searched on; None while a reranker has not read what it needs to, which is said in place with the offer to let it."""
    data = store_data(config, selection, resources, for_all_sessions)
    if data is not None:
        st.info(SAID, icon=":material/label_off:")
        return data
    asking = with_reference_reranker(config)
    why_not = cannot_rerank(Settings(), asking, server_answers)
    if why_not:
        st.warning(
            f"Without judgments the order of a reranker is needed, and there is none: {plain(why_not)}",
            icon=":material/block:",
        )
        return None
    message = (
        f"{SAID}\n\nEach of {len(selection.queries)} queries{_drawn(selection, resources)} is searched once, and "
        f"{plain(model_key(asking.rerank))} reads what each list ranks first: seconds a query. After that a config "
        "takes milliseconds to try."
    )

    def gather(progress: Progress) -> None:
        gather_reference(config, selection, resources, progress)

    if offered(
        "tune:stand_in",
        message,
        "Gather and read",
        gather,
        icon=":material/label_off:",
        kept="What was gathered and read is kept; it can be resumed.",
    ):
        st.rerun()
    return None


def _drawn(selection: QuerySelection, resources: Resources) -> str:
    """That they are a sample of their set, where they are."""
    size = resources.store.query_sets.get(selection.query_set).size
    return f", drawn from {size}," if size > len(selection.queries) else ""


def draw_lists(data: TuningData) -> None:
    """How far each list can be trusted, as far as that shows without judgments."""
    trust = for_all_sessions(("trust", *data.labelled.key, data.baseline), lambda: trust_in_lists(data))
    st.markdown("## How far each list can be trusted")
    rows = [
        {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in asdict(one).items()}
        | {"interval": f"{one.low:.3f}–{one.high:.3f}", "read": _percent(one.read), "shared": _percent(one.shared)}
        for one in trust
    ]
    shown = ("source", "queries", "agreement", "interval", "read", "shared", "lead")
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    draw_table(
        [{name: row[name] for name in shown} for row in rows],
        key="tune:trust",
        width="content",
        placeholder="–",
        columns={
            "source": text("list", width=110),
            "queries": number("queries", width=70, help="In which it found anything"),
            "agreement": number(
                "agreement",
                format="%.3f",
                width=90,
                help="nDCG@10 of the list alone, by what the reranker puts first: its first three have grades 3, 2 and 1",
            ),
            "interval": text("95 % interval", width=120, help="Of the agreement, by bootstrap over queries"),
            "read": number("read", format="%d %%", width=70, help="Share of its first ten that the reranker read"),
            "shared": number(
                "shared", format="%d %%", width=70, help="Share of its first ten that another list has among its own"
            ),
            "lead": number(
                "lead",
                format="%.2f",
                width=70,
                help="How far its first score stands before the second, by the fall from first to tenth. Shown, not used: on three "
                "judged sets it did not say which list is the better one.",
            ),
        },
    )
    st.caption(
        "The search weighs the lists by agreement alone. A list can agree and still be wrong where the reranker is."
    )


def _percent(share: float) -> int | None:
    return None if math.isnan(share) else round(100 * share)


def judgments_at_hand(result: SearchResult, resources: Resources) -> LabelledEvidence | None:
    """The evidence of a search without judgments, with those that the store has now; None where it has none of its queries."""
    grades = agreed(resources.store.judgments.read(), None)
    found = labelled(result.planned.data.evidence, grades, for_all_sessions)
    return found if found.batch.queries else None


def offer_judgments(result: SearchResult, resources: Resources) -> None:
    """The offer to hold the proposal against the judgments that there are, where there are any."""
    if result.tuned.search.cancelled:
        return
    judged = judgments_at_hand(result, resources)
    if judged is None:
        st.caption("None of these queries is judged, so nothing says yet what this is worth by judgments.")
        return
    planned = result.planned
    settings = SearchSettings(
        planned.group_by, len(planned.plan.split.folds), SEALED, planned.plan.trials, planned.plan.seed
    )

    def compare(progress: Progress) -> None:
        relevant_from = resources.store.query_sets.relevant_from(planned.data.query_set)
        held = by_judgments(result, judged, settings, relevant_from, lambda name: _watch(name, progress))
        page.update(result=held)

    message = (
        f"{len(judged.batch.queries)} of these queries are judged. Held against them, the proposal shows what it is worth, and how "
        "much of what a search with judgments gains."
    )
    if offered(
        "tune:by_judgments",
        message,
        "Hold against them",
        compare,
        icon=":material/balance:",
        kept="What was tried is kept.",
        help="A search for the same with judgments is run beside it. A fifth of them stays sealed.",
    ):
        st.rerun()


def _watch(name: str, progress: Progress) -> Watch:
    def watch(done: int, total: int, best: Trial) -> None:
        progress(f"{name}, with judgments", done, total)

    return watch
