"""The Evaluate page: compare configs on judged queries, with recorded answers of a live system, or over time.

Another store: what the open one has otherwise, whether it is better, and why each query is won or lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.analysis import swaps
from cems_workbench.analysis.swaps import ChangedQuery
from cems_workbench.config import list_depths, with_values
from cems_workbench.errors import InputError
from cems_workbench.jobs.compare_stores import AT_IMPORT, Asked, Results, StoresCompared, compare_stores, is_store
from cems_workbench.jobs.evaluation import EvaluationReport
from cems_workbench.jobs.graph_recall import graph_recall
from cems_workbench.jobs.query_set_evidence import ALL_QUERIES
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress
from cems_workbench.results import Report
from cems_workbench.settings import settings_for
from cems_workbench.ui.evaluate import breakdown, compare, experiments, losses, setup
from cems_workbench.ui.evaluate.changes import BETTER, WORSE
from cems_workbench.ui.evaluate.compare import draw_figures, draw_verdicts
from cems_workbench.ui.evaluate.state import JUDGES, Choice, as_set_in_inspect, config_options, measured, open_gathered
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.address import followed, query_set, widget
from cems_workbench.ui.kit.charts import HOVERTEXT, bar_chart, draw_chart, lines
from cems_workbench.ui.kit.html import begin_page, plain
from cems_workbench.ui.kit.session import is_kept, kept
from cems_workbench.ui.kit.tables import HELP, Column, pick_row
from cems_workbench.ui.kit.views import View, views_in
from cems_workbench.ui.kit.widgets import empty, errors_shown, offer_job, progress_bar, remembered, show, switch

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


KEPT_STORES = "evaluate:stores:found"
COLUMNS: Sequence[Column[ChangedQuery]] = (
    Column("query", lambda one: one.query, "large"),
    Column("before", lambda one: one.before, "small", "%.3f"),
    Column("now", lambda one: one.now, "small", "%.3f"),
    Column("cause", lambda one: one.cause_words, "large"),
)


def draw(resources: Resources) -> None:
    """Draw the choice of the other store, the offer to compare, and what was found."""
    left, middle, right = st.columns([3, 2, 2])
    imports = {f"{AT_IMPORT}{one.number}": one for one in resources.store.imports.read() if one.undone_at is None}

    def title(name: str) -> str:
        one = imports.get(name)
        return name if one is None else f"this store after import {one.number}, {one.imported_at:%Y-%m-%d %H:%M}: {one.name}"

    hint: Any = {"accept_new_options": True, "placeholder": "type the folder of a store, or choose an import"}
    earlier = list(imports)[1:]  # after the last it is as it is now
    typed = (left.selectbox("The store before", earlier, None, title, **hint, **remembered("evaluate:stores:other")) or "").strip()
    configs = config_options(resources).configs
    name = middle.selectbox("Config", list(configs), **remembered("evaluate:stores:config"))
    sets = [ALL_QUERIES, *(one.name for one in resources.store.query_sets.latest())]
    asked = Asked(right.selectbox("Query set", sets, **remembered("evaluate:stores:set")))
    if not typed:
        return empty("Compare with a store from before", HELP["evaluate:stores:empty"])
    other = f"{resources.store.path}{typed}" if typed.startswith(AT_IMPORT) else typed
    config, store = configs[name], resources.store
    judged = tuple(store.judgments.count_queries(kind) for kind in ("human", "model"))
    key = (other, str(store.path), store.content_version, judged, config, asked.query_set)
    if not is_kept(KEPT_STORES, key):

        def work(progress: Progress) -> None:
            if not typed.startswith(AT_IMPORT):
                session.require("operator")
            if not is_store(other):
                raise InputError(f"{typed}: no store is there")
            settings = settings_for(store.path)
            found = compare_stores(other, str(store.path), (config, config), settings, asked, progress)
            kept(KEPT_STORES, key, lambda: found)

        text = "Each judged query is searched in both stores; where several parts differ, copies with one part put back are searched too."
        if offer_job("evaluate:stores:compare", text, "Compare", work, icon=":material/database:", kept="Nothing is kept."):
            st.rerun()
        return
    with errors_shown():
        _draw(kept(KEPT_STORES, key, partial(_never, other)))


def _never(other: str) -> StoresCompared:
    raise InputError(f"{other}: compare it again")


def _draw(found: StoresCompared) -> None:
    assert found.comparison is not None
    figures, others = [one.figures for one in found.comparison.evaluations], found.comparison.compared
    draw_verdicts(figures, others)
    st.caption("  \n".join(map(plain, found.said)))
    if found.changed:
        st.markdown("## Why queries are won or lost", help="The part that was put back, and with it the outcome of before.")
        draw_chart(figure(found.changed), key="evaluate:stores:causes", alt="Bar chart: won and lost queries by cause.", table=None)
        picked = pick_row(swaps.in_order(found.changed), COLUMNS, key="evaluate:stores:changed", most=10)
        st.caption("Tick the box of a row to see its first results in both stores.")
        if picked is not None:
            _draw_results(found, picked)
    draw_figures(figures, others)


def figure(changed: Sequence[ChangedQuery]) -> Figure:
    """A bar for each cause: to the left how many queries are lost by it, to the right how many are won."""
    counts = Counter((one.cause_words, one.gain > 0) for one in changed)
    names = dict.fromkeys(cause for (cause, _), _ in counts.most_common())
    rows = [(cause, won) for cause in names for won in (False, True) if counts[cause, won]]
    values = [counts[row] if row[1] else -counts[row] for row in rows]
    widest = 1.25 * max(map(abs, values))
    return bar_chart(
        [cause for cause, _ in rows],
        values,
        [f"{'▲' if won else '▼'} {abs(value)}" for value, (_, won) in zip(values, rows, strict=True)],
        {"range": [-widest, widest], "title": "queries lost, and won", "zeroline": True, "showticklabels": False},
        marker={"color": [BETTER if won else WORSE for _, won in rows]},
        hovertext=[lines(cause, f"{abs(value)} {'won' if won else 'lost'}") for value, (cause, won) in zip(values, rows, strict=True)],
        hovertemplate=HOVERTEXT,
    )


def _draw_results(found: StoresCompared, picked: ChangedQuery) -> None:
    st.markdown(f"## {plain(picked.query)}")
    st.caption(f"{found.measure} {picked.before:.3f} before, {picked.now:.3f} now; cause: {picked.cause_words}.")
    for box, title, results in zip(st.columns(2), ("Before", "Now"), found.results[picked.qid], strict=True):
        with box:
            st.markdown(f"**{title}**")
            _draw_side(results)


def _draw_side(results: Results) -> None:
    for rank, (key, text, relevant) in enumerate(results, 1):
        with st.container(border=True):
            mark = ":green[:material/check_circle:] relevant · " if relevant else ""
            st.caption(f"{rank}. {mark}{plain(key)}")
            st.text(text[:400])
    if not results:
        st.caption("No results.")


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
    View("Another store", 40, draw),
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
