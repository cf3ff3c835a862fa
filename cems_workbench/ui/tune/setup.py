"""Setup of the Tune page: query set, baseline, judgments, and the offer to gather evidence.

Bundled search result of the sample set, shown until a search has run on the page.
"""

from __future__ import annotations

import streamlit as st

from cems_workbench.config import EvidenceCard, PipelineConfig, preset, with_values
from cems_workbench.jobs.catalogue import PRESENT_NAME, named
from cems_workbench.jobs.config_history import restored_config
from cems_workbench.jobs.evaluation import agreed
from cems_workbench.jobs.query_set_evidence import (
    QuerySelection,
    discard_evidence,
    gather_evidence,
    judged_selection,
    pending_gathers,
    seconds_left,
)
from cems_workbench.jobs.sample_figures import SampleFigures, sample_figures
from cems_workbench.jobs.tuning import TuningData, tuning_data
from cems_workbench.jobs.tuning_summary import CROSS_VALIDATED, GainRow, headline_of
from cems_workbench.jobs.unlabelled import unlabelled_selection
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.bidi import neutralise
from cems_workbench.progress import Progress
from cems_workbench.tuning.holdout import Gain
from cems_workbench.ui.evaluate.state import JUDGES, config_options
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.toolbar import diff_table
from cems_workbench.ui.kit.html import plain, render
from cems_workbench.ui.kit.session import for_all_sessions
from cems_workbench.ui.kit.widgets import (
    draw_bundled_notice,
    draw_effects,
    draw_provenance,
    empty,
    offer_gather,
    search_cost_text,
)
from cems_workbench.ui.tune import unlabelled
from cems_workbench.ui.tune.result import gains_html
from cems_workbench.ui.tune.state import VIEW


def draw(resources: Resources, query_set: str | None = None) -> bool:
    """Draw the bundled result if the store holds the unmodified sample set; False if nothing was drawn."""
    figures = sample_figures(resources, query_set)
    if figures is None:
        return False
    restored = restored_config(figures.tuned, resources.store)
    assert restored.card is not None, "bundled results include a card"
    _draw(figures, restored.config, restored.card)
    return True


def _draw(figures: SampleFigures, config: PipelineConfig, card: EvidenceCard) -> None:
    base = preset(card.baseline).config
    first = card.measured[0]
    gained = Gain(first.queries, first.baseline, first.tuned, first.low, first.high, first.p)
    about = " · ".join(
        (f"Sample set, baseline {card.baseline}", f"{card.trials} configs", card.relevance, f"seed {card.seed}")
    )
    st.html(
        render(
            "tune/verdict.html",
            headline=headline_of(first.metric, card.baseline, not card.kept, gained),
            about=about,
            doubt="",
        )
    )
    draw_bundled_notice(
        "tune",
        figures,
        "A search under Set up measures on this machine.",
        "Choose this baseline",
        lambda: _choose(card.baseline),
    )
    st.html(
        gains_html([GainRow(CROSS_VALIDATED, "chosen on the other folds, scored on each fold", gained)], first.metric)
    )
    st.caption(f"Split: {card.split}; these stay sealed.")
    st.markdown("## Changed parameters")
    diff_table(base, named(base.name, config), "tune:shipped")
    with st.expander("Its evidence card"):
        st.code(card.text, language=None, wrap_lines=True)


def _choose(baseline: str) -> None:
    st.session_state["tune:baseline"] = baseline
    st.session_state[VIEW] = "Set up"


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
        st.session_state["tune:baseline"] = PRESENT_NAME if state.changed_parameters() else state.present_preset()
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
        return unlabelled.gathered(config, unlabelled_selection(name, resources.store, bool(within)), resources)
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
    pending = pending_gathers([(config.name, config)], selection, resources)
    total, done = pending[0].total, pending[0].finished
    there = f" ({done} of {total} queries done)" if done else ""
    left = seconds_left(pending)
    once = search_cost_text(total, left, [config], "more")
    message = (
        f"Not gathered yet for {plain(config.name)}{there}. {once}; after that, trying a config takes milliseconds."
    )

    def gather(progress: Progress) -> None:
        # A search tries other heads: whatever it reads has a score.
        whole = with_values(config, {"rerank.expected_misses": None})
        report = gather_evidence(whole, selection, resources.store.judgments.read(), resources, progress)
        for row in report.left_out:
            st.toast(plain(f"{row} (left out)"), icon=":material/warning:")

    if offer_gather("tune", message, gather, resumable=bool(done)):
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
