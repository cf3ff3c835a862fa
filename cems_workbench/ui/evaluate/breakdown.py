"""Breakdowns of a comparison: by query type, by query with links into Inspect, by judge, and by part of a config (ablation)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.ablation import ablations
from cems_workbench.evaluation.comparison import (
    VALUE_TOLERANCE,
    MeasureDifference,
    compare,
    significance,
    significantly_lower,
)
from cems_workbench.evaluation.evaluate import NO_TYPE, Evaluation, evaluate
from cems_workbench.evaluation.labelling.judge_calibration import RelevanceSources, relevance_sources
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.jobs.evaluation import EvaluatedConfig
from cems_workbench.jobs.query_set_evidence import request_for
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Query
from cems_workbench.ui.evaluate import setup
from cems_workbench.ui.evaluate.compare import pick_measure
from cems_workbench.ui.evaluate.state import Choice, cached_result
from cems_workbench.ui.inspect.state import TracedQuery, open_in_inspect, open_traced_in_inspect
from cems_workbench.ui.kit.charts import HOVERTEXT, LIST_COLOURS, bar_chart, draw_chart, lines
from cems_workbench.ui.kit.html import plain, tick
from cems_workbench.ui.kit.tables import Column, draw_table, pick_row
from cems_workbench.ui.kit.widgets import progress_in, switch

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


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


TABLES = {
    "Each stage off": ("stages", "The config, and the config without each enabled stage, one at a time."),
    "CEMS phases 0–6": (
        "cems",
        "The phases of CEMS’s plan, each with all earlier ones; the last is the config itself.",
    ),
    "ACE A–D": ("ace", "The four variants of ACE’s A/B test: presets ace_a to ace_d."),
}
ZERO = "rgba(128,128,128,0.6)"
BETTER, WORSE = LIST_COLOURS[4], LIST_COLOURS[3]


def draw(measured: Sequence[EvaluatedConfig], choice: Choice, resources: Resources) -> None:
    """Draw the choice of config and table; the table is computed from gathered evidence."""
    left, right = st.columns([2, 3], vertical_alignment="bottom")
    by_name = {evaluated.name: evaluated for evaluated in measured}
    name = left.selectbox("Config", list(by_name), key="evaluate:ablate:config", persist_state="session")
    table = switch("Table", list(TABLES), "evaluate:ablate:table", "Each stage off", labelled=True, box=right)
    kind, about = TABLES[table]
    evaluated = by_name[name]
    rows = _evaluations(evaluated, kind)
    asked = [EvaluatedConfig(row.config.name, evaluated.labelled, row) for row in rows]
    if setup.draw_missing_scores("evaluate", setup.of_evaluated(asked), resources, locked=choice.locked):
        st.rerun()
    measure = pick_measure(evaluated.evaluation.measures)
    st.caption(about)
    draw_chart(
        figure(rows, measure),
        key="evaluate:ablate:figure",
        table=None,
        alt="Bar chart: difference of each row from the first, for the chosen measure; the table below has the numbers.",
    )
    base = rows[0]
    # The first row has no difference.
    differences = [
        None,
        *(next(one for one in each.differences if one.measure == measure) for each in compare(rows).compared),
    ]
    columns: list[Column[tuple[Evaluation, MeasureDifference | None]]] = [
        Column("row", lambda row: row[0].config.name if row[1] is None else _short(row[0], base), 260),
        Column(str(measure), lambda row: row[0].mean(measure), 84, "%.3f"),
        Column("difference", lambda row: row[1] and row[1].difference, 84, "%+.3f", "Value minus the first row"),
        Column(
            "p (Holm)",
            lambda row: row[1] and row[1].p_holm,
            76,
            "%.4f",
            "Paired randomisation test against the first row (Holm)",
        ),
        Column("wins", lambda row: row[1] and len(row[1].wins), 56),
        Column("losses", lambda row: row[1] and len(row[1].losses), 60),
        Column("significance", lambda row: row[1] and significance(row[1])),
    ]
    pairs = list(zip(rows, differences, strict=True))
    draw_table(pairs, columns, key="evaluate:ablate:rows", most=len(rows), placeholder="–")


def _evaluations(evaluated: EvaluatedConfig, kind: str) -> list[Evaluation]:
    """The rows of a table, computed with progress; the first is the baseline."""

    def computed() -> list[Evaluation]:
        place = st.empty()
        progress = progress_in(place)
        configs: Sequence[PipelineConfig] = ablations(kind, evaluated.evaluation.config)
        rows = []
        for i, config in enumerate(configs):
            progress("ablation", i, len(configs))
            rows.append(evaluate(evaluated.batch, config, evaluated.evaluation.measures, with_bounds=False))
        place.empty()
        return rows

    return cached_result([evaluated], ("ablation", kind), computed)


def _short(evaluation: Evaluation, base: Evaluation) -> str:
    """The row's name without its common prefix, the name of the first row."""
    return evaluation.config.name.removeprefix(base.config.name).strip() or evaluation.config.name


def figure(evaluations: Sequence[Evaluation], measure: Measure) -> Figure:
    """One bar per row: its difference from the first."""
    base, *rest = evaluations
    values = [evaluation.mean(measure) - base.mean(measure) for evaluation in rest]
    widest = max([abs(value) for value in values] or [0.0]) * 1.35 or 0.05
    change = f"change of {tick(str(measure))} relative to {tick(base.config.name)}"
    return bar_chart(
        [_short(row, base) for row in rest],
        values,
        [f"{'▲' if value > 1e-9 else '▼' if value < -1e-9 else '='} {value:+.3f}" for value in values],
        {
            "range": [-widest, widest],
            "zeroline": True,
            "zerolinecolor": ZERO,
            "title": {"text": change, "font": {"size": 12}},
        },
        marker={"color": [BETTER if value > 0 else WORSE for value in values]},
        hovertext=[lines(tick(row.config.name, 60), f"{row.mean(measure):.4f}") for row in rest],
        hovertemplate=HOVERTEXT,
    )
