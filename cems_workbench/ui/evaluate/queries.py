"""Wins and losses of a config by query type and by query, with links into Inspect.

Compare judges: the same run scored by a cosine threshold, a model and people, which shows misleading ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.evaluation.comparison import VALUE_TOLERANCE, significantly_lower
from cems_workbench.evaluation.evaluate import NO_TYPE, number
from cems_workbench.evaluation.relevance_sources import RelevanceSources, relevance_sources
from cems_workbench.jobs.evaluation import EvaluatedConfig
from cems_workbench.jobs.query_set_evidence import request_for
from cems_workbench.records import Query
from cems_workbench.ui.evaluate.compare import pick_measure
from cems_workbench.ui.evaluate.state import Choice, cached_result
from cems_workbench.ui.inspect.state import TracedQuery, open_in_inspect, open_traced_in_inspect
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import draw_table, pick_row

OUTCOMES = ("▲ win", "▼ loss", "= tie", "– not measured")


def draw_types(measured: Sequence[EvaluatedConfig]) -> None:
    """Draw types as rows and configs as columns; regressions from the baseline are marked."""
    measure = pick_measure(measured[0].evaluation.measures)
    base = measured[0].evaluation.by_type()
    lower = cached_result(
        measured, ("lower", measure), lambda: significantly_lower([one.evaluation for one in measured], measure)
    )
    rows = []
    for kind, first in base.items():
        row: dict[str, Any] = {"type": kind, "queries": first["queries"], "falls": ""}
        row[measured[0].name] = first[str(measure)]
        for config in measured[1:]:
            row[config.name] = config.evaluation.by_type()[kind][str(measure)]
        row["regressions"] = f"▼ {', '.join(lower[kind])}" if lower[kind] else ""
        rows.append(row)
    columns: dict[str, Any] = {
        config.name: st.column_config.NumberColumn(config.name, format="%.3f", width=120) for config in measured
    }
    columns["type"] = st.column_config.TextColumn("type", width=150, pinned=True, help="Query type from the query set")
    columns["falls"] = st.column_config.TextColumn(
        "falls",
        width=220,
        help="Configs significantly below the baseline for this type: paired randomisation test, corrected for the number of types and "
        "configs (Holm)",
    )
    draw_table(rows, key="evaluate:types", placeholder="–", columns=columns)
    st.caption(
        f"Mean {measure} of each type. “regressions” lists significant losses. {measured[0].evaluation.relevance}."
    )


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
    rows = []
    for q in places:
        compared = None if other is None else (other.name, float(after[q]), OUTCOMES[outcome[q]])
        rows.append(_row(queries[q], base.name, float(before[q]), compared))
    counts = " · ".join(f"{OUTCOMES[i]} {int((outcome == i).sum())}" for i in range(4) if other)
    st.caption(counts or f"{len(rows)} queries, the worst first")
    if not rows:
        st.caption("No query matches these filters.")
        return
    picked = pick_row(
        rows,
        key="evaluate:queries",
        most=14,
        placeholder="–",
        columns=_columns(base, other),
    )
    if picked is not None:
        _open(queries[places[picked]], base, other)
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


def _row(query: Query, base: str, before: float, other: tuple[str, float, str] | None) -> dict[str, Any]:
    row: dict[str, Any] = {"qid": query.qid, "type": query.type, "query": query.query, base: number(before)}
    if other is not None:
        name, after, outcome = other
        row |= {name: number(after), "difference": number(after - before), "outcome": outcome}
    return row


def _columns(base: EvaluatedConfig, other: EvaluatedConfig | None) -> dict[str, Any]:
    value, text = st.column_config.NumberColumn, st.column_config.TextColumn
    columns: dict[str, Any] = {
        "qid": text("qid", width=64),
        "type": text("type", width=104),
        "query": text("query", width=250),
        base.name: value(base.name, format="%.3f", width=88, help="The baseline"),
    }
    if other is not None:
        columns[other.name] = value(other.name, format="%.3f", width=88)
        columns["difference"] = value("difference", format="%+.3f", width=76)
        columns["outcome"] = text("outcome", width=90)
    return columns


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
    for i, table in enumerate(view.tables()):
        if not table.rows:
            continue
        columns = {
            column: st.column_config.NumberColumn(column, format="%.3f", width=110, help=HELP.get(column))
            for column in table.columns
            if column not in ("judge", "judges", "relevant to one alone", "results")
        }
        draw_table(
            [dict(zip(table.columns, row, strict=True)) for row in table.rows],
            key=f"evaluate:honest:{i}",
            placeholder="–",
            columns=columns,
        )


def _view(evaluated: EvaluatedConfig) -> RelevanceSources:
    return cached_result([evaluated], "honest view", lambda: relevance_sources(evaluated.batch, evaluated.evaluation))
