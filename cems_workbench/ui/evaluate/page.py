"""The Evaluate page: compare configs on judged queries, with recorded answers of a live system, or over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from cems_workbench.config import list_depths, with_values
from cems_workbench.jobs.evaluation import EvaluationReport
from cems_workbench.jobs.graph_recall import graph_recall
from cems_workbench.pipeline.resources import Resources
from cems_workbench.results import Report
from cems_workbench.ui.evaluate import breakdown, compare, experiments, losses, setup, stores
from cems_workbench.ui.evaluate.state import JUDGES, Choice, as_set_in_inspect, config_options, measured, open_gathered
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.address import followed, query_set, widget
from cems_workbench.ui.kit.html import begin_page, plain
from cems_workbench.ui.kit.session import is_kept, kept
from cems_workbench.ui.kit.tables import Column, pick_row
from cems_workbench.ui.kit.views import View, views_in
from cems_workbench.ui.kit.widgets import errors_shown, progress_bar, show, switch

KEPT, SEVERAL = "evaluate:graph:found", "evaluate:several"


def draw_graph(measured: Sequence[EvaluationReport], choice: Choice, resources: Resources) -> None:
    """Draw the recall by ef_search, once it is asked for; a missed memory opens in Inspect under the first config with the graph."""
    if choice.locked:
        st.info(plain(f"The evidence is that of another store, whose graph is not here.{choice.elsewhere}"))
        return
    base = measured[0]
    depth = list_depths(base.evaluation.config)["vector"] or 10
    depths = {f"first {k:,}": k for k in sorted({10, depth})}
    k = depths[switch("Compare", list(depths), "evaluate:graph:k", labelled=True)]
    key = (base.labelled.key, choice.selection.query_set, k, str(resources.store.path), resources.store.content_version)
    if is_kept(KEPT, key):
        return _draw_recall(kept(KEPT, key, Report), base, k)
    st.caption("Chroma’s graph is searched for every query with each ef_search. The collection is not changed.")
    if st.button("Search the graph", "evaluate:graph:search", icon=":material/hub:"):
        with errors_shown():
            grades = dict(zip(base.batch.qids, base.batch.grades, strict=True))
            least, config = base.evaluation.relevant_from, base.evaluation.config
            with progress_bar() as progress:
                found = graph_recall(choice.selection, grades, least, config, resources, k, progress=progress)
            kept(KEPT, key, lambda: found)
            st.rerun()


def _draw_recall(found: Report, base: EvaluationReport, k: int) -> None:
    recall, missed = found.tables
    show(found.lines, [recall], found.notes)
    columns: list[Column[tuple[Any, ...]]] = [
        Column(name, lambda row, i=i: row[i], "large" if name == "query" else "small")  # type: ignore[misc]
        for i, name in enumerate(missed.columns)
    ]
    if not missed.rows:
        return
    st.markdown(f"## {missed.title.capitalize()}")
    picked = pick_row(missed.rows, columns, key=f"evaluate:graph:missed:{k}", most=10)
    st.caption("Tick the box of a row to open its query in Inspect with the graph on, and why the memory is missing.")
    if picked is not None:
        query = next(query for query in base.batch.queries if query.qid == picked[0])
        config = base.evaluation.config
        on = with_values(config, {"lists.vector.index": "graph", "lists.vector.ef_search": picked[4]})
        open_gathered(query, base.labelled.evidence, on, (config.name, config), (picked[2], k))


VIEWS = (
    View("Losses", 10, lambda evaluated, choice, resources: losses.draw(evaluated, choice)),
    View("Compare", 20, lambda evaluated, choice, resources: compare.draw(evaluated, choice)),
    View("By type", 30, lambda evaluated, choice, resources: breakdown.draw_types(evaluated)),
    View("By query", 40, lambda evaluated, choice, resources: breakdown.draw_queries(evaluated, choice)),
    View("Compare judges", 50, lambda evaluated, choice, resources: breakdown.draw_judges(evaluated)),
    View("Calibrate", 60, lambda evaluated, choice, resources: breakdown.draw_calibration(evaluated, choice)),
    View("Ablation", 70, breakdown.draw_ablation),
    View("Graph recall", 75, draw_graph),
    View("Experiments", 80, experiments.draw_experiments),
)


@session.show_errors
def main() -> None:
    """Draw the page: what configs are compared with, and its comparison."""
    begin_page("Evaluate")
    resources = session.open_or_explain()
    if resources is None:
        return
    bases = views_in("evaluate.against", *AGAINST)
    with followed("evaluate", *ADDRESS):
        bases[switch("Compare with", list(bases), "evaluate:against")].draw(resources)
    session.warm_up(resources)


def _draw_judged(resources: Resources) -> None:
    """Draw the choice of judged queries and configs, the offer to gather, and the chosen view."""
    choice = setup.choose(resources)
    session.warm_up(resources)
    if choice is None:
        return
    with errors_shown():
        evaluated, missing = measured(choice, resources)
        if setup.offer(missing, evaluated, choice, resources):
            st.rerun()
        if evaluated:
            setup.draw_answered(evaluated, choice, resources)
            _views(evaluated, choice, resources)
        else:
            setup.draw_sample(choice, resources)


def _views(evaluated: Sequence[EvaluationReport], choice: Choice, resources: Resources) -> None:
    if not evaluated[0].batch.queries:
        st.info("No query has both evidence and a judgment of this kind.")
        return
    views = views_in("evaluate", *VIEWS)
    several = len(evaluated) > 1
    if several and st.session_state.get(SEVERAL) is False:  # who adds a second config wants to compare
        st.session_state["evaluate:view"] = "Compare"
    st.session_state[SEVERAL] = several
    view = switch("View", list(views), "evaluate:view", "Compare" if several else None)
    own = view == "Ablation"  # it shows the gaps of each row itself
    if not own and setup.draw_missing_scores(
        "evaluate", setup.of_evaluated(evaluated), resources, locked=choice.locked
    ):
        st.rerun()
    views[view].draw(evaluated, choice, resources)


AGAINST = (
    View("Judged queries", 10, _draw_judged),
    View("Over time", 30, experiments.draw_over_time),
    View("Another store", 40, stores.draw),
)
ADDRESS = (
    widget(
        "against",
        "evaluate:against",
        entry=True,
        choices=lambda: views_in("evaluate.against", *AGAINST),
        usual=AGAINST[0].title,
    ),
    query_set("queries", "evaluate:set"),
    as_set_in_inspect(lambda: st.session_state.get("evaluate:configs")),
    widget("config", "evaluate:configs", entry=True, many=20, choices=lambda: config_options().configs),
    widget("judges", "evaluate:judges", choices=lambda: JUDGES, usual=next(iter(JUDGES))),
    widget("measure", "evaluate:measures", many=20, usual=list(setup.DEFAULT_MEASURES)),
    widget("only_project", "evaluate:only_project", bool),
    widget("view", "evaluate:view", entry=True, choices=lambda: views_in("evaluate", *VIEWS)),
)
"""What the page shows: queries, configs, with the settings of Inspect if they are among them, and the view."""
