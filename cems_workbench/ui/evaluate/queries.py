"""Wins and losses of a config by query type and by query, with links into Inspect.

Compare judges: the same run scored by a cosine threshold, a model and people, which shows misleading ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.evaluation.comparison import VALUE_TOLERANCE, significantly_lower
from cems_workbench.evaluation.evaluate import NO_TYPE
from cems_workbench.evaluation.relevance_sources import RelevanceSources, relevance_sources
from cems_workbench.jobs.evaluation import EvaluatedConfig
from cems_workbench.jobs.query_set_evidence import request_for
from cems_workbench.records import Query
from cems_workbench.ui.evaluate.compare import pick_measure
from cems_workbench.ui.evaluate.state import Choice, cached_result
from cems_workbench.ui.inspect.state import TracedQuery, open_in_inspect, open_traced_in_inspect
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import Column, draw_table, pick_row

REGRESSIONS_HELP = (
    "Configs significantly below the baseline for this type: paired randomisation test, corrected for the number of types and "
    "configs (Holm)"
)
OUTCOMES = ("▲ win", "▼ loss", "= tie", "– not measured")


def draw_types(measured: Sequence[EvaluatedConfig]) -> None:
    """Draw types as rows and configs as columns; regressions from the baseline are marked."""
    measure = pick_measure(measured[0].evaluation.measures)
    base = measured[0].evaluation.by_type()
    lower = cached_result(
        measured, ("lower", measure), lambda: significantly_lower([one.evaluation for one in measured], measure)
    )
    means = {config.name: config.evaluation.by_type() for config in measured}
    columns: list[Column[str]] = [
        Column("type", str, 150, help="Query type from the query set", pinned=True),
        Column("queries", lambda kind: base[kind]["queries"]),
        *(Column(name, partial(_mean, of, str(measure)), 120, "%.3f") for name, of in means.items()),
        Column(
            "regressions", lambda kind: f"▼ {', '.join(lower[kind])}" if lower[kind] else "", 220, help=REGRESSIONS_HELP
        ),
    ]
    draw_table(list(base), columns, key="evaluate:types", placeholder="–")
    st.caption(
        f"Mean {measure} of each type. “regressions” lists significant losses. {measured[0].evaluation.relevance}."
    )


def _mean(by_type: Mapping[str, Mapping[str, Any]], measure: str, kind: str) -> Any:
    return by_type[kind][measure]


def draw_queries(measured: Sequence[EvaluatedConfig], choice: Choice) -> None:
    """Draw all queries with their values, largest change first; a selected one opens in Inspect with both configs."""
    measure = pick_measure(measured[0].evaluation.measures)
    boxes = st.columns(3)
    other = _other(measured, choice, boxes[0])
    base = measured[0]
    column = base.evaluation.measures.index(measure)
    before = base.evaluation.values[:, column]
    after = (other or base).evaluation.values[:, column]
    change = after - before
    outcome = np.select(
        [np.isnan(change), measure.direction * change > VALUE_TOLERANCE, measure.direction * change < -VALUE_TOLERANCE],
        [3, 0, 1],
        default=2,
    )
    types = sorted({kind or NO_TYPE for kind in base.evaluation.types})
    wanted = boxes[1].multiselect(
        "Types", types, key="evaluate:filter_types", placeholder="all", persist_state="session"
    )
    shown = boxes[2].multiselect(
        "Outcomes",
        OUTCOMES,
        key="evaluate:filter_outcomes",
        placeholder="all",
        disabled=other is None,
        persist_state="session",
    )
    order = (
        np.argsort(-np.abs(np.nan_to_num(change)), kind="stable")
        if other
        else np.argsort(np.nan_to_num(before), kind="stable")
    )
    queries = base.batch.queries
    places = [
        int(q)
        for q in order
        if (not wanted or (queries[q].type or NO_TYPE) in wanted) and (not shown or OUTCOMES[outcome[q]] in shown)
    ]
    counts = " · ".join(f"{OUTCOMES[i]} {int((outcome == i).sum())}" for i in range(4) if other)
    st.caption(counts or f"{len(places)} queries, the worst first")
    if not places:
        st.caption("No query matches these filters.")
        return
    columns: list[Column[int]] = [
        Column("qid", lambda q: queries[q].qid, 64),
        Column("type", lambda q: queries[q].type, 104),
        Column("query", lambda q: queries[q].query, 250),
        Column(base.name, lambda q: before[q], 88, "%.3f", "The baseline"),
    ]
    if other is not None:
        columns += [
            Column(other.name, lambda q: after[q], 88, "%.3f"),
            Column("difference", lambda q: change[q], 76, "%+.3f"),
            Column("outcome", lambda q: OUTCOMES[outcome[q]], 90),
        ]
    picked = pick_row(places, columns, key="evaluate:queries", most=14, placeholder="–")
    if picked is not None:
        _open(queries[picked], base, other)
    which = f"{plain((other or base).name)} on the sliders" + (
        f" and {plain(base.name)} pinned as the baseline" if other else ""
    )
    st.caption(f"Tick the box of a row to open its query in Inspect, with {which}.{_elsewhere(choice)}")


def _other(measured: Sequence[EvaluatedConfig], choice: Choice, place: DeltaGenerator) -> EvaluatedConfig | None:
    if len(measured) < 2:
        place.caption(choice.second("to see wins and losses"))
        return None
    others = {config.name: config for config in measured[1:]}
    name = place.selectbox("Compared with the baseline", list(others), key="evaluate:other", persist_state="session")
    return others[name]


def _elsewhere(choice: Choice) -> str:
    read_only = choice.opened is not None and choice.opened.reason is not None
    return " Inspect searches the open store, not the one this evidence was gathered from." if read_only else ""


def _open(query: Query, base: EvaluatedConfig, other: EvaluatedConfig | None) -> None:
    """Open a query in Inspect as measured: the other config on the sliders, the baseline pinned."""
    header = (other or base).labelled.evidence.header
    if base.labelled.evidence.external:
        open_traced_in_inspect(TracedQuery(header.query_set, query.qid, query.query))
    request = request_for(query, header.moment, header.only_project)
    baseline = (base.name, base.evaluation.config) if other is not None else None
    open_in_inspect(request, (other or base).evaluation.config, baseline)


HELP = {
    "hit@1": "Share of queries whose first result is relevant by this judge",
    "hit@5": "Share of queries with a relevant result among the first five, by this judge",
    "P@3": "Share of the first three results that are relevant by this judge",
    "share labelled": "Share of the first five results that this judge has graded",
    "results": "Results that both have graded",
    "agree": "Share of these with the same verdict",
    "kappa": "Cohen’s kappa: agreement beyond chance; 1 is full agreement, 0 is chance",
    "relevant to one alone": "Results that only the first judge, and only the second judge calls relevant",
}


def draw_judges(measured: Sequence[EvaluatedConfig]) -> None:
    """Draw one config's run scored by every judge."""
    by_name = {evaluated.name: evaluated for evaluated in measured}
    name = st.selectbox("Config", list(by_name), key="evaluate:honest", persist_state="session")
    view = _view(by_name[name])
    st.caption(
        "The same results, scored by each judge. The value depends on the judge: ACE reported 100 % with a cosine threshold, and 80 % with "
        "a cross-encoder for the same run.",
        help="cosine: similarity to the query of at least 0.45. model judge: its score above its threshold (Judge in Inspect). "
        "people: a human grade of 2 or 3.",
    )
    for line in view.warnings:
        st.warning(plain(line), icon=":material/warning:")
    for number, table in enumerate(view.tables()):
        if not table.rows:
            continue
        columns: list[Column[Sequence[Any]]] = [
            Column(name, itemgetter(i), help=HELP.get(name))
            if name in ("judge", "judges", "relevant to one alone", "results")
            else Column(name, itemgetter(i), 110, "%.3f", HELP.get(name))
            for i, name in enumerate(table.columns)
        ]
        draw_table(table.rows, columns, key=f"evaluate:honest:{number}", placeholder="–")


def _view(evaluated: EvaluatedConfig) -> RelevanceSources:
    return cached_result([evaluated], "honest view", lambda: relevance_sources(evaluated.batch, evaluated.evaluation))
