"""The Tune page: set up a search for better weights without overfitting, and see and export its result with its evidence.

The setup has the query set, the baseline, the offer to gather evidence, and tuning without judgments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import streamlit as st

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.config.forms.targets import SYSTEMS, System, system_behind
from cems_workbench.jobs import unlabelled
from cems_workbench.jobs.catalogue import PRESENT_NAME
from cems_workbench.jobs.diagnosis import cannot_rerank
from cems_workbench.jobs.evaluation import agreed
from cems_workbench.jobs.query_set_evidence import QuerySelection, discard_evidence
from cems_workbench.jobs.scoring import Lacking
from cems_workbench.jobs.traced_sets import AS_EXPLAINED
from cems_workbench.jobs.tuning import SearchResult, TuningData, no_program, tuning_data
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.settings import Settings, saved_target
from cems_workbench.tuning.unlabelled import TUNABLE_SECTIONS
from cems_workbench.ui.evaluate import setup
from cems_workbench.ui.evaluate.state import JUDGES, as_set_in_inspect, config_options, most_judged
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit import session, widgets
from cems_workbench.ui.kit.address import followed, query_set, widget
from cems_workbench.ui.kit.html import begin_page, plain, render
from cems_workbench.ui.kit.session import for_all_sessions
from cems_workbench.ui.kit.tables import HELP, draw_values
from cems_workbench.ui.tune import export, result, search
from cems_workbench.ui.tune.state import VIEW, chosen, last_result, outdated, set_view

UNLABELLED_NOTICE = (
    "Unlabelled: no judgments are used here. A reranker’s order, with its mistakes, replaces them; labels decide "
    "better."
)


def gathered(config: PipelineConfig, selection: QuerySelection, resources: Resources) -> TuningData | None:
    """The tuning data; None while reranker scores are missing, with the offer to gather them drawn in place."""
    data = unlabelled.store_data(config, selection, resources, for_all_sessions)
    if data is not None:
        st.info(UNLABELLED_NOTICE, icon=":material/label_off:")
        return data
    asking = unlabelled.with_reference_reranker(config)
    why_not = cannot_rerank(Settings(), asking, setup.server_answers)
    if why_not:
        lacking = "Tuning without judgments needs a reranker, and none is available"
        st.warning(f"{lacking}: {plain(why_not)}", icon=":material/block:")
        return None
    size = resources.store.query_sets.get(selection.query_set).size
    sample = f", drawn from {size}," if size > len(selection.queries) else ""
    message = (
        f"{UNLABELLED_NOTICE}\n\nEach of {len(selection.queries)} queries{sample} is searched once, and "
        f"{plain(model_key(asking.rerank))} scores the top of each list: seconds per query. After that, trying a config "
        "needs neither."
    )

    if widgets.offer_job(
        "tune:stand_in",
        message,
        "Gather and score",
        lambda progress: unlabelled.gather_reference(config, selection, resources, progress),
        icon=":material/label_off:",
        kept="Gathered evidence and scores are kept; the job can be resumed.",
    ):
        st.rerun()
    return None


def draw_lists(data: TuningData) -> None:
    """Draw the diagnostics of each list that need no judgments."""
    trust = for_all_sessions(("trust", *data.labelled.key, data.baseline), lambda: unlabelled.trust_in_lists(data))
    st.markdown("## Reliability of each list")
    rows = [
        (one.source, one.queries, one.agreement, f"{one.low:.3f}–{one.high:.3f}", 100 * one.read, 100 * one.shared)
        for one in trust
    ]
    names = ("list", "queries", "agreement", "95 % interval", "read", "shared")
    draw_values(names, rows, key="tune:trust", format=TRUST_FORMATS, width="content")
    st.caption(
        "The search weights the lists by agreement alone. A list can agree with the reranker and share its mistakes."
    )


TRUST_FORMATS = {"read": "%.0f %%", "shared": "%.0f %%"}


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
    if st.session_state.get("tune:set") not in sets:
        st.session_state["tune:set"] = most_judged(resources)
    name = setup.set_box(boxes[0], "tune", sorted(sets), sets)
    if st.session_state.get("tune:baseline") not in options.configs:
        own = PRESENT_NAME if state.changed_parameters() else state.present().preset
        explained = AS_EXPLAINED.format(name)
        st.session_state["tune:baseline"] = explained if explained in options.configs else own
    base = boxes[1].selectbox("Baseline", list(options.configs), **widgets.remembered("tune:baseline"))
    kinds = [*JUDGES, NO_JUDGMENTS]
    kind = boxes[2].selectbox(
        "Judgments", kinds, **widgets.remembered("tune:judges", HELP["evaluate:judges"] + " " + HELP["tune:judges"])
    )
    within = setup.within_box(boxes[3], "tune")
    config = options.under_its_name(base)
    widgets.draw_effects({base: config}, within)
    if kind == NO_JUDGMENTS:
        return gathered(config, unlabelled.unlabelled_selection(name, resources.store, within), resources)
    selection = setup.chosen_selection(name, resources, judgments, within)
    return None if selection is None else _gathered(config, selection, JUDGES[kind], resources)


def _gathered(
    config: PipelineConfig, selection: QuerySelection, kind: str | None, resources: Resources
) -> TuningData | None:
    """The tuning data; while evidence is missing, None, with the offer to gather it."""
    grades = agreed(resources.store.judgments.read(), kind)
    data = tuning_data(config, selection, grades, resources, for_all_sessions)
    if data is not None:
        if data.evidence.answered:
            widgets.draw_provenance(
                "tune", f"Lists {data.evidence.answered}", lambda: discard_evidence(config, selection, resources)
            )
        if needs := for_all_sessions(("unscored", *data.labelled.key, config), lambda: data.unscored):
            lacking = [Lacking(config.name, config, data.evidence, needs, data.batch.qids)]
            st.markdown("**First the scores, then the search.** Without them it would compare what is missing.")
            if setup.draw_missing_scores("tune", lacking, resources):
                st.rerun()
            return None
        return data
    # A search tries other heads: what it reads has a score.
    wanted = [(config.name, with_values(config, {"rerank.expected_misses": None}), selection)]
    if widgets.offer_gather("tune", wanted, "after that, trying a config needs no search and no model", resources):
        st.rerun()
    return None


def _nothing(has_queries: bool) -> None:
    setup.draw_nothing("Find better weights on judged queries", "tune/nothing_judged.html", has_queries)
    if has_queries:
        st.button(
            "Propose weights without judgments",
            key="tune:without",
            icon=":material/label_off:",
            on_click=lambda: st.session_state.update({"tune:judges": NO_JUDGMENTS}),
            help="Tuned to a reranker’s order. The result is marked everywhere as not based on judgments.",
        )


OWN = "A program of my own"


def where(resources: Resources) -> System | None:
    """Draw where the config will run, first that of the store or of the preset; None in a custom program."""
    runs = saved_target(resources.store.path)
    behind = SYSTEMS.get(runs.target) if runs is not None else system_behind(state.present().config)
    names = [*SYSTEMS, OWN]
    first = names.index(behind.name if behind else OWN)
    name = st.selectbox(
        "Where will it run?",
        names,
        first,
        format_func=lambda name: SYSTEMS[name].title if name in SYSTEMS else name,
        on_change=_take_program,
        **widgets.remembered(
            "tune:where", "Its settings are what is offered and tuned, and its format is what is exported."
        ),
    )
    system = SYSTEMS.get(name)
    if system is not None:
        st.caption(plain(system.about))
    return system


def _take_program() -> None:
    """Take the chosen target's program for the baseline."""
    if (system := SYSTEMS.get(st.session_state["tune:where"])) is not None:
        st.session_state["tune:baseline"] = system.presets[0]


def set_up(resources: Resources) -> None:
    """Draw the setup of a search: where it will run, queries, parameters, goal, and the start button."""
    system = where(resources)
    data = choose(resources)
    if data is None:
        of_labels = st.session_state.get("tune:judges") != NO_JUDGMENTS
        if system is None and st.session_state.get("tune:set") is not None and of_labels:
            result.draw_sample(resources, st.session_state["tune:set"])
        return
    for line in no_program(system, data.baseline):
        st.warning(plain(line), icon=":material/warning:")
    if data.stands_in:
        draw_lists(data)
    st.markdown("## Parameters to tune")
    searched = search.draw(data, system, TUNABLE_SECTIONS if data.stands_in else ("",))
    if searched is None:
        return
    st.markdown("## Goal and measurement")
    wanted = search.draw_goal(data, searched)
    planned = search.draw_plan(data, searched, wanted) if wanted is not None else None
    if planned is not None:
        search.draw_start(planned)


def result_view(
    draw: Callable[[SearchResult, Resources], None], before: Callable[[Resources], bool] = lambda _: False
) -> Callable[[Resources], None]:
    """A view of the last result; without one it draws `before`, or an empty state."""

    def drawn(resources: Resources) -> None:
        searched = last_result()
        if searched is None:
            if not before(resources):
                of = f" for {plain(baseline)}" if (baseline := chosen()[2]) else ""
                widgets.empty(f"Nothing has been searched yet{of}", render("tune/nothing_searched.html"))
            return
        warning = outdated(searched, resources)
        if warning:
            st.warning(plain(warning), icon=":material/history:")
        if searched.planned.data.stands_in:
            st.info(UNLABELLED_NOTICE, icon=":material/label_off:")
        draw(searched, resources)

    return drawn


VIEWS: Mapping[str, Callable[[Resources], None]] = {
    "Set up": set_up,
    "Result": result_view(result.draw, result.draw_sample),
    "What it learned": result_view(lambda found, _: result.draw_learned(found)),
    "By query": result_view(lambda found, _: result.draw_queries(found)),
    "Export": result_view(export.draw),
    "History": export.draw_history,
}


ADDRESS = (
    widget("view", VIEW, entry=True, choices=lambda: VIEWS, usual=next(iter(VIEWS))),
    widget("where", "tune:where", choices=lambda: [*SYSTEMS, OWN]),
    query_set("queries", "tune:set"),
    as_set_in_inspect(lambda: [st.session_state.get("tune:baseline", "")]),
    widget("config", "tune:baseline", entry=True, choices=lambda: config_options().configs),
    widget("judges", "tune:judges", choices=lambda: [*JUDGES, NO_JUDGMENTS], usual=next(iter(JUDGES))),
    widget("only_project", "tune:only_project", bool),
    *search.ADDRESS,
)
"""What the page shows: the view and the setup of a search."""


@session.show_errors
def main() -> None:
    """Draw the page: the running search, or the chosen view."""
    begin_page("Tune", "tune")
    resources = session.open_or_explain()
    if resources is None:
        return
    set_view()
    with followed("tune", *ADDRESS), widgets.errors_shown():
        view = widgets.switch("View", list(VIEWS), VIEW)
        if not search.draw_running():
            VIEWS[view](resources)
    session.warm_up(resources)
