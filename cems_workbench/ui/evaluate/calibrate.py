"""Calibrate: abstain signals as probabilities of an answer, reliability diagrams, and thresholds for a target probability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.jobs.evaluation import EvaluatedConfig, calibrations
from cems_workbench.tuning.calibration import METHODS, Calibration
from cems_workbench.ui.evaluate.state import Choice, cached_result
from cems_workbench.ui.kit.charts import GREY, HOVERTEXT, LIST_COLOURS, dashed_diagonal, draw_chart, layout, lines
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import Column, draw_table
from cems_workbench.ui.kit.widgets import switch

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COLUMNS: list[Column[Calibration]] = [
    Column("signal", lambda one: one.signal),
    Column("answer", lambda one: one.answerable, 66, "%.0f", "Judged queries with an answer"),
    Column("none", lambda one: one.unanswerable, 66, "%.0f", "Judged queries that nothing in the store answers"),
    Column("no value", lambda one: one.missing, 66, "%.0f", "Judged queries for which the signal has no value"),
    Column(
        "AUROC",
        lambda one: one.auroc,
        66,
        "%.4g",
        "Probability that a query with an answer scores higher than one without; 0.5 is chance",
    ),
    Column("Brier", lambda one: one.brier, 66, "%.4g", "Mean of (probability − outcome)², on the held-out folds"),
    Column(
        "base",
        lambda one: one.base_brier,
        66,
        "%.4g",
        "Brier score of a constant probability: the share of answerable queries",
    ),
    Column(
        "ECE",
        lambda one: one.ece,
        66,
        "%.4g",
        "Expected calibration error over ten bins: mean distance between probability and share with an answer, on the held-out folds",
    ),
    Column(
        "threshold",
        lambda one: one.threshold if one.setting else None,
        66,
        "%.4g",
        "Lowest raw score that reaches the probability; empty if none does",
    ),
    Column(
        "refused",
        lambda one: one.refused,
        66,
        "%.4g",
        "Share of the queries without an answer that the threshold from the other folds refuses",
    ),
    Column("wrongly", lambda one: one.wrongly, 66, "%.4g", "Share of the queries with an answer that it refuses"),
]


def draw(measured: Sequence[EvaluatedConfig], choice: Choice) -> None:
    """Draw a table of all signals of one config, and the reliability diagram of one signal."""
    left, middle, right = st.columns(3)
    by_name = {evaluated.name: evaluated for evaluated in measured}
    name = left.selectbox("Config", list(by_name), key="evaluate:calibrate:config", persist_state="session")
    method = middle.selectbox(
        "Method",
        METHODS,
        key="evaluate:calibrate:method",
        persist_state="session",
        help="logistic: one slope, for few queries. isotonic: any non-decreasing curve, for many.",
    )
    probability = right.slider(
        "Answer from a probability of",
        0.05,
        0.95,
        0.5,
        0.05,
        key="evaluate:calibrate:probability",
        persist_state="session",
    )
    subject = by_name[name]
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
    st.caption(
        plain(
            f"{found[0].folds} folds by {group_by}; all numbers except AUROC and threshold are from the held-out folds."
        )
    )
    draw_table(found, COLUMNS, key="evaluate:calibrate:signals", most=len(found), placeholder="–")
    for line in without.values():
        st.caption(plain(f"Left out: {line}"))
    by_signal = {one.signal: one for one in found}
    chosen = switch("Signal", list(by_signal), "evaluate:calibrate:signal", found[0].signal, labelled=True)
    shown = by_signal[chosen]
    draw_chart(
        reliability_figure(shown),
        key="evaluate:calibrate:reliability",
        alt=f"Reliability chart: share of queries with an answer by the mean probability of {shown.signal}, with 95 % intervals.",
        table=lambda: bin_rows(shown),
    )
    if shown.setting:
        st.code(f"abstain:\n  {shown.signal}: {shown.setting.partition('=')[2]}", language="yaml")
    else:
        st.caption(
            "No threshold: no score reaches this probability, every score does, or higher scores do not make an answer more likely."
        )


def bin_rows(one: Calibration) -> list[dict[str, Any]]:
    """One row per bin of the reliability diagram."""
    return [
        {
            "from": each.low,
            "to": each.high,
            "queries": each.queries,
            "mean probability": each.predicted,
            "with an answer": each.observed,
            "low": each.interval[0],
            "high": each.interval[1],
        }
        for each in one.bins
    ]


def reliability_figure(one: Calibration) -> Figure:
    """One dot per bin, sized by its queries, with the interval of its share; the dashed diagonal is perfect calibration."""
    import plotly.graph_objects as go

    most = max(each.queries for each in one.bins)
    figure = go.Figure()
    dashed_diagonal(figure)
    figure.add_scatter(
        x=[each.predicted for each in one.bins],
        y=[each.observed for each in one.bins],
        mode="lines+markers",
        line={"color": LIST_COLOURS[0], "width": 1},
        marker={"color": LIST_COLOURS[0], "size": [7 + 13 * (each.queries / most) ** 0.5 for each in one.bins]},
        error_y={
            "type": "data",
            "symmetric": False,
            "color": GREY,
            "thickness": 1.5,
            "array": [each.interval[1] - each.observed for each in one.bins],
            "arrayminus": [each.observed - each.interval[0] for each in one.bins],
        },
        hovertext=[
            lines(
                f"{each.queries} queries, mean probability {each.predicted:.2f}", f"{each.observed:.0%} have an answer"
            )
            for each in one.bins
        ],
        hovertemplate=HOVERTEXT,
    )
    figure.update_layout(
        layout(
            340,
            {"title": "mean probability", "range": [-0.02, 1.02]},
            {"title": "share with an answer", "range": [-0.02, 1.04], "tickformat": ".0%"},
        )
    )
    return figure
