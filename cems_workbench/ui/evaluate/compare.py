"""Compare: measures of all configs with intervals, and differences from the baseline.

Labels needed: how many more queries tell a loss between two configs, and which to label first (`evaluation.power`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import cycle
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.command_words import command_line, words_of
from cems_workbench.config import difference, preset
from cems_workbench.config.forms.targets import cannot
from cems_workbench.errors import counted
from cems_workbench.evaluation.batch import missing_score_lines
from cems_workbench.evaluation.comparison import Comparison, ConfigComparison, compare, interval_words, significance
from cems_workbench.evaluation.evaluate import Figures, number, stale_lines
from cems_workbench.evaluation.grades import as_judged
from cems_workbench.evaluation.labelling.queue import make_queue
from cems_workbench.evaluation.metrics import MEASURES, Measure
from cems_workbench.evaluation.metrics.confidence import curve
from cems_workbench.evaluation.power import Movable, power_of
from cems_workbench.evaluation.report import SavedComparison
from cems_workbench.evaluation.verdict import DEFAULT_TOLERANCE, verdict_measure, verdict_on
from cems_workbench.jobs.evaluation import EvaluationReport, losses_if_any
from cems_workbench.jobs.upstream import faults_of
from cems_workbench.pipeline.table import Floats
from cems_workbench.report.comparison import comparison_report
from cems_workbench.settings import Settings, saved_target
from cems_workbench.ui.evaluate.changes import QueryChanges, draw_changes
from cems_workbench.ui.evaluate.state import Choice, cached_result, open_measured
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.address import go
from cems_workbench.ui.kit.charts import HOVERTEXT, LEGEND, LIST_COLOURS, draw_chart, layout, lines
from cems_workbench.ui.kit.html import announce, plain, tick
from cems_workbench.ui.kit.tables import HELP, Column, draw_table, draw_values
from cems_workbench.ui.kit.widgets import errors_shown, remembered, report_button, show, switch
from cems_workbench.ui.label import state as label_state

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


COLUMNS: Sequence[Column[Movable]] = (
    Column("query", attrgetter("query"), "large"),
    Column("pairs", lambda one: len(one.unjudged), 72, "%d", "Results within the cut-off that nobody judged"),
    Column("difference", attrgetter("now"), 96, "%+.3f", "Of the second config from the first; empty while nothing relevant is known"),
    Column("lowest", attrgetter("lowest"), 96, "%+.3f", "What labels can make of it"),
    Column("highest", attrgetter("highest"), 96, "%+.3f", "What labels can make of it"),
)


def draw_power(measured: Sequence[EvaluationReport], choice: Choice) -> None:
    """Draw, once it is asked for, what the first two configs' differences can tell, and the way to the labels that tell more."""
    both = list(measured[:2])
    if not st.toggle("How many labels it takes", **remembered("evaluate:power")):
        return
    evidences = [one.labelled.evidence.evidences for one in both]
    grades, gathered = both[0].labelled.grades, both[0].labelled.evidence.queries
    named, measure = [one.evaluation.config for one in both], verdict_measure(both[0].evaluation.measures)
    with errors_shown():
        queries = as_judged(gathered, grades.answerable)
        found = cached_result(both, "power", lambda: power_of(queries, evidences, grades.grades, named, measure))
        show(found.lines, found.tables[:1], [note for note in found.notes if not note.startswith("lowest")])
        if not found.movable:
            return
        first = found.movable[: found.shown]
        st.markdown("## Queries to label first", help=HELP["evaluate:power:first"])
        draw_table(first, COLUMNS, key="evaluate:power:first", most=8)
        label = f"Label {counted(len(found.pairs), 'pairs')} of these {counted(len(first), 'queries')}"
        if not choice.locked and st.button(label, "evaluate:power:label", icon=":material/rule:"):
            session.require("reviewer")
            name = f"first-{datetime.now(UTC):%Y%m%d-%H%M%S}"
            about = {"query_set": choice.selection.query_set, "compared": [plain(one.name) for one in both]}
            session.resources().store.queues.save(make_queue(name, found.pairs, "query", settings=about))
            label_state.show_queue(name)
            go("pages/label.py")


RISK_DEPTH = 5
"""Cutoff of the risk, unless an AURC with another cutoff is measured."""
TOLERANCE = "evaluate:tolerance"
MARKS = {
    "pass": ":green[:material/check_circle:]",
    "fail": ":red[:material/cancel:]",
    "cannot tell": ":orange[:material/help:]",
}
"""The icon before a verdict."""
BASELINE, OTHER = "#7B848D", LIST_COLOURS[0]
UNJUDGED = "unjudged"
"""Suffix of the column with a measure's bounds."""


FORMATS = {"difference": "%+.3f", "p (Holm)": "%.4f", "effect": "%+.2f", "overlap": "%.2f", "ms per query": "%.0f"}


def compared(measured: Sequence[EvaluationReport]) -> Comparison:
    """The comparison with the first config, cached for the session by the evaluations."""
    return cached_result(measured, "comparison", lambda: compare([config.evaluation for config in measured]))


def draw(measured: Sequence[EvaluationReport], choice: Choice) -> None:
    """Draw the comparison of the measured configs."""
    figures, others = [row.evaluation.figures for row in measured], compared(measured).compared
    draw_verdicts(figures, others)
    _draw_cannot(measured)
    _draw_upstream(measured)
    _draw_changed(measured, choice)
    draw_figures(figures, others)
    if measured[0].evaluation.unanswerable:
        _draw_risk(measured)
    if len(measured) > 1:
        draw_power(measured, choice)
        offer_report(measured, choice.kind)
    if len(measured) == 1:
        st.info(choice.second("to compare it with this one"), icon=":material/compare_arrows:")


def _draw_cannot(measured: Sequence[EvaluationReport]) -> None:
    """Draw what the store's target cannot run of the configs."""
    runs = saved_target(Settings().store)
    if runs is None:
        return
    for row in measured:
        changed = {path: now for path, _, now in difference(preset(runs.preset).config, row.config)}
        if lost := cannot(runs, row.config, changed):
            st.caption(f":material/link_off: {plain(f'{row.name}: {lost}.')}", help="It can be measured here only.")


def _draw_upstream(measured: Sequence[EvaluationReport]) -> None:
    """Draw the known faults of the program that the store's memories are used in, and how to see what mending them does."""
    runs = saved_target(Settings().store)
    query_set = measured[0].labelled.evidence.header.query_set
    if runs is None or query_set is None:
        return
    for fault in faults_of(runs.preset):
        options = ["--upstream", fault.id, "--queries", query_set, "--preset", runs.preset]
        asked = command_line(words_of("what-if", options=options))
        said = plain(
            f"{fault.what} ({fault.state}). What mending it may do to these queries, a guess without --recorded FILE:"
        )
        st.caption(f":material/build: {said} `{asked}`", help=f"Seen {fault.seen}: {fault.url}. {fault.basis}.")


def offer_report(measured: Sequence[EvaluationReport], judges: str | None) -> None:
    """Draw the HTML export of the comparison; its queries are ordered by the measure shown on the page."""
    found, by = compared(measured), st.session_state.get("evaluate:measure")
    of = measured[0].labelled.evidence.header.query_set or "comparison"
    report_button(
        "evaluate:report",
        f"{of}-{measured[-1].name}",
        lambda redact: comparison_report(
            found,
            [row.labelled for row in measured],
            datetime.now(UTC),
            by=by,
            redact=redact,
            judges=judges,
            losses=losses_if_any(measured),
            tolerance=_tolerance(),
        ),
        what="means and differences with their intervals, where relevant memories are lost, wins and losses by type, "
        "and the queries that lost most with both rankings. ",
    )


def draw_stale(measured: Sequence[Figures]) -> None:
    """Draw how many queries have a stale memory among their first results, where it is known."""
    for line in stale_lines(measured):
        st.caption(plain(line), help="Stale: expired, or superseded by a memory that is not ranked above it.")


def _draw_risk(measured: Sequence[EvaluationReport]) -> None:
    """Draw the risk-coverage curve: error rate by share of answered queries, most confident first."""
    measures = [measure for measure in measured[0].evaluation.measures if measure.family == "AURC"]
    k = measures[0].k if measures else RISK_DEPTH
    st.markdown(
        "## Risk and coverage",
        help="Queries ordered by the score of their first result, with and without an answer. On the left only the most confident are "
        f"answered. Failed: nothing relevant in the {f'first {k}' if k else 'results'}, or any result for a query without an answer.",
    )
    curves = {row.name: curve(row.evaluation.rankings.graded, k, row.evaluation.relevant_from) for row in measured}
    draw_chart(
        risk_figure(curves),
        key="evaluate:risk",
        alt="Line chart: share of answered queries that fail, by share of answered queries; one line per config.",
        table=lambda: [
            {"config": name, "answered": float(x), "failed": float(y)}
            for name, (coverage, risk) in curves.items()
            for x, y in zip(coverage, risk, strict=True)
        ],
    )


def risk_figure(curves: Mapping[str, tuple[Floats, Floats]]) -> Figure:
    """One line per config: risk by coverage, the baseline in grey."""
    import plotly.graph_objects as go

    chart = go.Figure()
    colours = cycle((BASELINE, *LIST_COLOURS[:-1]))
    for name, (coverage, risk) in curves.items():
        chart.add_scatter(
            x=coverage,
            y=risk,
            mode="lines",
            name=tick(name),
            line={"shape": "hv", "width": 2, "color": next(colours)},
            hovertext=[
                lines(tick(name), f"{x:.0%} answered", f"{y:.0%} of them failed")
                for x, y in zip(coverage, risk, strict=True)
            ],
            hovertemplate=HOVERTEXT,
        )
    across = {"title": "answered", "range": [0, 1.01], "tickformat": ".0%"}
    up = {"title": "of them failed", "rangemode": "tozero", "tickformat": ".0%"}
    chart.update_layout(layout(300, across, up, showlegend=len(curves) > 1, legend=LEGEND))
    return chart


def draw_verdicts(measured: Sequence[Figures], others: Sequence[ConfigComparison]) -> None:
    """Draw the verdict on each config against the first; also of saved comparisons."""
    first, chosen = measured[0], _chosen(measured[0].measures)
    for one, each in zip(others, measured[1:], strict=True):
        lacking = missing_score_lines((own.name, own.needs) for own in (first, each))
        verdict = verdict_on(first.name, one, chosen, _tolerance(), lacking)
        st.markdown(f"{MARKS[verdict.kind]} {plain(verdict.sentence)}")


def _draw_changed(measured: Sequence[EvaluationReport], choice: Choice) -> None:
    """Draw a bar for each query that changed, of each config against the first; a clicked one opens in Inspect under both."""
    base, measure = measured[0], _chosen(measured[0].evaluation.measures)
    column = base.evaluation.measures.index(measure)
    for other in measured[1:]:
        was, now = (one.evaluation.values[:, column] for one in (base, other))
        found = QueryChanges(base.batch.queries, measure, was, now)
        picked = draw_changes(found, other.name, f"evaluate:changed:{other.name}:{measure}", choice.elsewhere)
        if picked is not None:
            open_measured(picked, other, base)


def draw_figures(measured: Sequence[Figures], others: Sequence[ConfigComparison]) -> None:
    """Draw the means, the chart of one measure, and the differences from the first config; also used for saved comparisons."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(
            f"{measured[0].relevance}. In brackets: 95 % confidence interval.",
            width="stretch",
            help="Confidence interval of the mean: bootstrap over queries.",
        )
        if others:
            shown: dict[str, Any] = {"step": 0.005, "format": "%.3f", "width": 130}
            key = remembered(TOLERANCE)
            st.number_input("Tolerated loss", 0.0, 1.0, DEFAULT_TOLERANCE, **shown, **key)
        unjudged = st.toggle("Show bounds for unjudged results", **remembered("evaluate:unjudged"))
    draw_stale(measured)
    _draw_means(measured, unjudged)
    for line in remarks(measured):
        st.caption(line)
    measure = pick_measure(measured[0].measures)
    of = [(config.name, summary) for config in measured for summary in config.summaries if summary.measure == measure]
    announce(f"Mean {measure}: {', '.join(f'{name} {summary.mean:.3f}' for name, summary in of)}")
    draw_chart(
        figure(measured, measure),
        key="evaluate:figure",
        table=None,
        alt="Mean of the chosen measure per config with its 95 % confidence interval; the table above has the numbers.",
    )
    st.caption(
        f"{measure}, mean over {of[0][1].queries} queries. Dot and thick line: mean and 95 % confidence interval. "
        "Thin line: range if every unjudged result were irrelevant, or relevant.",
        help="Interval: seeded bootstrap over queries (sample queries with replacement, take the mean, repeat).",
    )
    if others:
        differences(others, measured[0].name)


def draw_saved(kept: SavedComparison) -> None:
    """Draw a saved comparison with the values of that time."""
    for line in missing_score_lines((config.name, config.needs) for config in kept.figures):
        st.caption(f":orange[⚠] {plain(line)}.")
    draw_verdicts(kept.figures, kept.compared)
    draw_figures(kept.figures, kept.compared)


def _chosen(measures: Sequence[Measure]) -> Measure:
    by_name = {str(measure): measure for measure in measures}
    return by_name.get(st.session_state.get("evaluate:measure", ""), verdict_measure(measures))


def _tolerance() -> float:
    return float(st.session_state.get(TOLERANCE, DEFAULT_TOLERANCE))


def pick_measure(measures: Sequence[Measure]) -> Measure:
    """Draw the choice of the measure shown in the chart and the lists."""
    by_name = {str(measure): measure for measure in measures}
    if st.session_state.get("evaluate:measure") not in by_name:
        st.session_state["evaluate:measure"] = str(verdict_measure(measures))
    return by_name[switch("Measure", list(by_name), "evaluate:measure", remember=False)]


def remarks(measured: Sequence[Figures]) -> list[str]:
    """Notes without duplicates: times affected by caching, queries left out, rerankers that failed."""
    lines = []
    for config in measured:
        if config.from_cache:
            lines.append(f"{plain(config.name)}: ms per query includes {config.from_cache}, which lowers it.")
        if config.scored_later:
            lines.append(f"{plain(config.name)}: ms per query excludes {config.scored_later}.")
        if config.not_gathered:
            lines.append(f"{plain(config.name)}: {counted(config.not_gathered, 'queries')} not gathered, so left out.")
        for why, count in config.failed.items():
            failed = f"its reranker failed for {counted(count, 'queries')}"
            lines.append(f":orange[⚠] {plain(config.name)}: {failed}: {plain(why)}.")
    return lines


def _draw_means(measured: Sequence[Figures], unjudged: bool) -> None:
    names = ["config"]
    rows: list[list[Any]] = [[config.name] for config in measured]
    help = dict(HELP["evaluate:differences"])
    for i, summary in enumerate(measured[0].summaries):
        of, name = [config.summaries[i] for config in measured], str(summary.measure)
        cells = {name: [with_interval(one.mean, one.low, one.high) for one in of]}
        help[name] = MEASURES[summary.measure.family].description
        if unjudged and not all(number(one.worst) is None for one in of):
            cells[f"{name} {UNJUDGED}"] = [
                None if number(one.worst) is None else f"{one.worst:.3f} to {one.best:.3f}" for one in of
            ]
        for column, values in cells.items():
            names.append(column)
            for row, value in zip(rows, values, strict=True):
                row.append(value)
    for row, config in zip(rows, measured, strict=True):
        per_query = round(config.cost["reranked"] / max(1, config.queries))
        row += [config.cost.get("ms_per_query"), int(config.cost["llm_calls"]), per_query]
    names += ["ms per query", "LLM calls", "reranked"]
    draw_values(names, rows, key="evaluate:means", help=help, format=FORMATS, first=150)


def with_interval(mean: float, low: float, high: float) -> str | None:
    """`0.412 (0.380–0.440)`; the mean alone if the interval is a point, None without a mean."""
    if number(mean) is None:
        return None
    return f"{mean:.3f}" if low == high else f"{mean:.3f} ({low:.3f}–{high:.3f})"


def figure(measured: Sequence[Figures], measure: Measure) -> Figure:
    """One row per config: mean, interval, and bounds for unjudged results."""
    import plotly.graph_objects as go

    rows = [next(row for row in config.summaries if row.measure == measure) for config in measured]
    chart = go.Figure()
    for y, (config, row) in enumerate(zip(measured, rows, strict=True)):
        colour = OTHER if y else BASELINE
        line: dict[str, Any] = {"y": [y, y], "mode": "lines", "hoverinfo": "skip"}
        chart.add_scatter(x=[row.worst, row.best], line={"color": colour, "width": 1}, **line)
        chart.add_scatter(x=[row.low, row.high], line={"color": colour, "width": 5}, opacity=0.45, **line)
        reach = f"95 % {row.low:.4f} to {row.high:.4f}", f"unjudged {row.worst:.4f} to {row.best:.4f}"
        said = lines(tick(config.name), f"mean {row.mean:.4f}", *reach)
        chart.add_scatter(
            x=[row.mean],
            y=[y],
            mode="markers+text",
            text=[f"  {row.mean:.3f}"],
            textposition="top center",
            marker={"color": colour, "size": 11, "symbol": "circle" if y else "diamond"},
            hovertext=[said],
            hovertemplate=HOVERTEXT,
        )
    names = [f"{tick(config.name)}{'' if y else ' (baseline)'}  " for y, config in enumerate(measured)]
    up = {"range": [len(names) - 0.5, -0.7], "tickvals": list(range(len(names))), "ticktext": names, "showgrid": False}
    chart.update_layout(layout(60 + 46 * len(measured), {"range": [-0.02, 1.02]}, up))
    return chart


def differences(others: Sequence[ConfigComparison], baseline: str) -> None:
    """Draw the differences of every config and measure from the baseline."""
    st.markdown(f"## Compared with the baseline, {plain(baseline)}")
    rows = []
    for config, row in ((one, row) for one in others for row in one.differences):
        values = (row.baseline, row.value, row.difference, interval_words(row.low, row.high), row.p_holm, row.effect)
        counts = (significance(row), len(row.wins), len(row.losses), row.ties)
        rows.append((config.name, str(row.measure), *values, *counts, config.overlap))
    measured, outcome = ("baseline", "value", "difference"), ("significance", "wins", "losses", "ties")
    names = ("config", "measure", *measured, "95 % interval", "p (Holm)", "effect", *outcome, "overlap")
    draw_values(names, rows, key="evaluate:differences", format=FORMATS, first=140, most=14)
