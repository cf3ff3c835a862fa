"""Views of what was measured: by query type, query, judge and part of a config (ablation), and abstain signals as probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.comparison import compare, significance, significantly_lower
from cems_workbench.evaluation.evaluate import NO_TYPE, Evaluation, ablations, evaluate
from cems_workbench.evaluation.labelling.judge_calibration import relevance_sources
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.jobs.evaluation import EvaluationReport, calibrations
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Query
from cems_workbench.tuning.calibration import METHODS, Calibration, calibration_table
from cems_workbench.ui.evaluate import setup
from cems_workbench.ui.evaluate.changes import BETTER, OUTCOMES, WORSE, QueryChanges
from cems_workbench.ui.evaluate.compare import pick_measure
from cems_workbench.ui.evaluate.state import Choice, cached_result, open_measured
from cems_workbench.ui.kit.charts import GREY, HOVERTEXT, bar_chart, draw_chart, lines, reliability_chart
from cems_workbench.ui.kit.html import plain, tick
from cems_workbench.ui.kit.tables import HELP, Column, draw_result, draw_values, pick_row
from cems_workbench.ui.kit.widgets import progress_bar, remembered, switch

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def draw_types(measured: Sequence[EvaluationReport]) -> None:
    """Draw types as rows and configs as columns; regressions from the baseline are marked."""
    measure = pick_measure(measured[0].evaluation.measures)
    base = measured[0].evaluation.by_type()
    lower = cached_result(
        measured, ("lower", measure), lambda: significantly_lower([one.evaluation for one in measured], measure)
    )
    means = [config.evaluation.by_type() for config in measured]
    rows = []
    for kind in base:
        marked = f"▼ {', '.join(lower[kind])}" if lower[kind] else ""
        rows.append((kind, base[kind]["queries"], *(of[kind][str(measure)] for of in means), marked))
    names = ("type", "queries", *(one.name for one in measured), "regressions")
    draw_values(names, rows, key="evaluate:types", first=150)
    st.caption(
        f"Mean {measure} of each type. “regressions” lists significant losses. {measured[0].evaluation.relevance}."
    )


def pick_query(found: QueryChanges, names: Sequence[str], of: str, boxes: Sequence[DeltaGenerator]) -> Query | None:
    """Draw two filters in `boxes` and the queries that pass, largest change first; the selected one. `of` begins the
    keys. With one name the values of one config are drawn, the worst first."""
    queries, outcomes, two = found.queries, found.outcomes, len(names) > 1
    types = sorted({query.type or NO_TYPE for query in queries})
    wanted = boxes[0].multiselect("Types", types, placeholder="all", **remembered(f"{of}:filter_types"))
    common = remembered(f"{of}:filter_outcomes")
    shown = boxes[1].multiselect("Outcomes", OUTCOMES, placeholder="all", disabled=not two, **common)
    by = -np.abs(found.gain) if two else found.measure.direction * found.before
    places = [
        q
        for q in np.argsort(np.nan_to_num(by), kind="stable").tolist()
        if (not wanted or (queries[q].type or NO_TYPE) in wanted) and (not shown or outcomes[q] in shown)
    ]
    if not places:
        st.caption("No query matches these filters.")
        return None
    columns: list[Column[int]] = [
        Column("qid", lambda q: queries[q].qid, 64),
        Column("type", lambda q: queries[q].type, 104),
        Column("query", lambda q: queries[q].query, 250),
        Column(names[0], lambda q: found.before[q], 88, "%.3f", "The baseline"),
    ]
    if two:
        columns += [
            Column(names[1], lambda q: found.after[q], 88, "%.3f"),
            Column("difference", lambda q: found.after[q] - found.before[q], 76, "%+.3f"),
            Column("outcome", lambda q: outcomes[q], 90),
        ]
    picked = pick_row(places, columns, key=f"{of}:queries", most=14, placeholder="–")
    pinned = f" and {plain(names[0])} pinned as the baseline" if two else ""
    st.caption(f"Tick the box of a row to open its query in Inspect, with {plain(names[-1])} on the sliders{pinned}.")
    return None if picked is None else queries[picked]


def draw_queries(measured: Sequence[EvaluationReport], choice: Choice) -> None:
    """Draw all queries with their values; a selected one opens in Inspect with both configs."""
    measure = pick_measure(measured[0].evaluation.measures)
    boxes = st.columns(3)
    base, *others = measured
    other = None
    if others:
        name = boxes[0].selectbox(
            "Compared with the baseline", [one.name for one in others], **remembered("evaluate:other")
        )
        other = next(one for one in others if one.name == name)
    else:
        boxes[0].caption(choice.second("to see wins and losses"))
    column, shown = base.evaluation.measures.index(measure), other or base
    before, after = (config.evaluation.values[:, column] for config in (base, shown))
    found = QueryChanges(base.batch.queries, measure, before, after)
    st.caption(found.counts if other else f"{len(found.queries)} queries, the worst first")
    picked = pick_query(found, [config.name for config in (base, other) if config], "evaluate", boxes[1:])
    if choice.locked:
        st.caption(choice.elsewhere)
    if picked is not None:
        open_measured(picked, shown, base if other else None)


def draw_judges(measured: Sequence[EvaluationReport]) -> None:
    """Draw one config's run scored by every judge."""
    by_name = {evaluated.name: evaluated for evaluated in measured}
    evaluated = by_name[st.selectbox("Config", list(by_name), **remembered("evaluate:honest"))]
    view = cached_result([evaluated], "honest view", lambda: relevance_sources(evaluated.batch, evaluated.evaluation))
    st.caption(
        "The same results, scored by each judge. The value depends on the judge: ACE reported 100 % with a cosine threshold, and 80 % with "
        "a cross-encoder for the same run.",
        help="cosine: similarity to the query of at least 0.45. model judge: its score above its threshold (Judge in Inspect). "
        "people: a human grade of 2 or 3.",
    )
    for line in view.warnings:
        st.warning(plain(line), icon=":material/warning:")
    for number, table in enumerate(view.tables()):
        if table.rows:
            draw_result(table, key=f"evaluate:honest:{number}", help=HELP["evaluate:honest:columns"])


TABLES = {
    "Each stage off": ("stages", "The config, and the config without each enabled stage, one at a time."),
    "CEMS phases 0–6": (
        "cems",
        "The phases of CEMS’s plan, each with all earlier ones; the last is the config itself.",
    ),
    "ACE A–D": ("ace", "The four variants of ACE’s A/B test: presets ace_a to ace_d."),
}


def draw_ablation(measured: Sequence[EvaluationReport], choice: Choice, resources: Resources) -> None:
    """Draw the choice of config and table; the table is computed from gathered evidence."""
    left, right = st.columns([2, 3], vertical_alignment="bottom")
    by_name = {evaluated.name: evaluated for evaluated in measured}
    evaluated = by_name[left.selectbox("Config", list(by_name), **remembered("evaluate:ablate:config"))]
    table = switch("Table", list(TABLES), "evaluate:ablate:table", "Each stage off", labelled=True, box=right)
    kind, about = TABLES[table]
    rows = _evaluations(evaluated, kind)
    asked = [EvaluationReport(row.config.name, evaluated.labelled, row) for row in rows]
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
    found: list[tuple[Any, ...]] = [(base.config.name, base.mean(measure), *(None,) * 5)]  # has no difference
    for row, each in zip(rows[1:], compare(rows).compared, strict=True):
        one = next(one for one in each.differences if one.measure == measure)
        counts = (len(one.wins), len(one.losses), significance(one))
        found.append((_short(row, base), row.mean(measure), one.difference, one.p_holm, *counts))
    names = ("row", str(measure), "difference", "p (Holm)", "wins", "losses", "significance")
    form = {"difference": "%+.3f", "p (Holm)": "%.4f"}
    draw_values(names, found, key="evaluate:ablate:rows", format=form, most=len(rows))


def _evaluations(evaluated: EvaluationReport, kind: str) -> list[Evaluation]:
    """The rows of a table, computed with progress; the first is the baseline."""

    def computed() -> list[Evaluation]:
        configs: Sequence[PipelineConfig] = ablations(kind, evaluated.evaluation.config)
        rows = []
        with progress_bar() as progress:
            for i, config in enumerate(configs):
                progress("ablation", i, len(configs))
                rows.append(evaluate(evaluated.batch, config, evaluated.evaluation.measures, with_bounds=False))
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
    title = {"text": change, "font": {"size": 12}}
    return bar_chart(
        [_short(row, base) for row in rest],
        values,
        [f"{'▲' if value > 1e-9 else '▼' if value < -1e-9 else '='} {value:+.3f}" for value in values],
        {"range": [-widest, widest], "zeroline": True, "zerolinecolor": GREY, "title": title},
        marker={"color": [BETTER if value > 0 else WORSE for value in values]},
        hovertext=[lines(tick(row.config.name, 60), f"{row.mean(measure):.4f}") for row in rest],
        hovertemplate=HOVERTEXT,
    )


def draw_calibration(measured: Sequence[EvaluationReport], choice: Choice) -> None:
    """Draw a table of all signals of one config, and the reliability diagram of one signal."""
    left, middle, right = st.columns(3)
    by_name = {evaluated.name: evaluated for evaluated in measured}
    subject = by_name[left.selectbox("Config", list(by_name), **remembered("evaluate:calibrate:config"))]
    method = middle.selectbox("Method", METHODS, **remembered("evaluate:calibrate:method"))
    common = remembered("evaluate:calibrate:probability")
    probability = right.slider("Answer from a probability of", 0.05, 0.95, 0.5, 0.05, **common)
    least = choice.measures[0].grade
    group_by, found, without = cached_result(
        [subject],
        f"calibration {method} {probability}",
        lambda: calibrations(subject.batch, subject.evaluation.config, least, None, method, probability),
    )
    if not found:
        st.info(
            plain(f"Nothing to calibrate on: {next(iter(without.values()))}.")
            + " Mark queries without an answer on Label (key X), or import them with `answerable: false`.",
            icon=":material/help:",
        )
        return
    folds = f"{found[0].folds} folds by {group_by}"
    st.caption(plain(f"{folds}; all numbers except AUROC and threshold are from the held-out folds."))
    table = calibration_table(found, group_by)
    rows = [(*row, one.threshold if one.setting else None) for row, one in zip(table.rows, found, strict=True)]
    names, key = (*table.columns, "threshold"), "evaluate:calibrate:signals"
    draw_values(names, rows, key=key, format="%.4g", most=len(found))
    for line in without.values():
        st.caption(plain(f"Left out: {line}"))
    by_signal = {one.signal: one for one in found}
    chosen = switch("Signal", list(by_signal), "evaluate:calibrate:signal", found[0].signal, labelled=True)
    shown = by_signal[chosen]
    draw_chart(
        reliability_figure(shown),
        key="evaluate:calibrate:reliability",
        alt=f"Reliability chart: share of queries with an answer by the mean probability of {shown.signal}, with 95 % intervals.",
        table=lambda: shown.table.records,
    )
    if shown.setting:
        st.code(f"abstain:\n  {shown.signal}: {shown.setting.partition('=')[2]}", language="yaml")
    else:
        st.caption(
            "No threshold: no score reaches this probability, every score does, or higher scores do not make an answer more likely."
        )


def reliability_figure(one: Calibration) -> Figure:
    """One dot per bin, sized by its queries, with the interval of its share."""
    most = max(each.queries for each in one.bins)
    places = [(each.predicted, each.observed, *each.interval) for each in one.bins]
    counts = ((f"{each.queries} queries", f"mean probability {each.predicted:.2f}", each.observed) for each in one.bins)
    texts = [lines(f"{queries}, {mean}", f"{share:.0%} have an answer") for queries, mean, share in counts]
    sizes = [7 + 13 * (each.queries / most) ** 0.5 for each in one.bins]
    return reliability_chart(places, texts, "mean probability", "share with an answer", sizes)
