"""Another store: what the open one has otherwise, whether it is better, and why each query is won or lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.analysis import swaps
from cems_workbench.analysis.swaps import ChangedQuery
from cems_workbench.errors import InputError
from cems_workbench.jobs.compare_stores import AT_IMPORT, Asked, Results, StoresCompared, compare_stores, is_store
from cems_workbench.jobs.query_set_evidence import ALL_QUERIES
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress
from cems_workbench.settings import settings_for
from cems_workbench.ui.evaluate.changes import BETTER, WORSE
from cems_workbench.ui.evaluate.compare import draw_figures, draw_verdicts
from cems_workbench.ui.evaluate.state import config_options
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.charts import HOVERTEXT, bar_chart, draw_chart, lines
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.session import is_kept, kept
from cems_workbench.ui.kit.tables import HELP, Column, pick_row
from cems_workbench.ui.kit.widgets import empty, errors_shown, offer_job, remembered

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

KEPT = "evaluate:stores:found"
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
    if not is_kept(KEPT, key):

        def work(progress: Progress) -> None:
            if not typed.startswith(AT_IMPORT):
                session.require("operator")
            if not is_store(other):
                raise InputError(f"{typed}: no store is there")
            settings = settings_for(store.path)
            found = compare_stores(other, str(store.path), (config, config), settings, asked, progress)
            kept(KEPT, key, lambda: found)

        text = "Each judged query is searched in both stores; where several parts differ, copies with one part put back are searched too."
        if offer_job("evaluate:stores:compare", text, "Compare", work, icon=":material/database:", kept="Nothing is kept."):
            st.rerun()
        return
    with errors_shown():
        _draw(kept(KEPT, key, partial(_never, other)))


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
