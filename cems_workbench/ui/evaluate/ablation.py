"""Ablation: the effect of each part of a config on the judged queries, and the documented tables of CEMS and ACE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.ablation import ablations
from cems_workbench.evaluation.comparison import compare, significance
from cems_workbench.evaluation.evaluate import Evaluation, evaluate, number
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.jobs.evaluation import EvaluatedConfig
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.evaluate import setup
from cems_workbench.ui.evaluate.compare import pick_measure
from cems_workbench.ui.evaluate.state import Choice, cached_result
from cems_workbench.ui.kit.charts import GRID, HOVERTEXT, LIST_COLOURS, draw_chart, lines
from cems_workbench.ui.kit.html import tick
from cems_workbench.ui.kit.tables import draw_table
from cems_workbench.ui.kit.widgets import progress_in

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

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
    table = right.segmented_control(
        "Table", list(TABLES), default="Each stage off", required=True, key="evaluate:ablate:table"
    )
    kind, about = TABLES[table or "Each stage off"]
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
    draw_table(
        _rows(rows, measure), key="evaluate:ablate:rows", most=len(rows), placeholder="–", columns=_columns(measure)
    )


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


def _rows(evaluations: Sequence[Evaluation], measure: Measure) -> list[dict[str, Any]]:
    base = evaluations[0]
    differences = {
        config.name: next(difference for difference in config.differences if difference.measure == measure)
        for config in compare(evaluations).compared
    }
    rows: list[dict[str, Any]] = [{"row": base.config.name, "value": number(base.mean(measure))}]
    for evaluation in evaluations[1:]:
        difference = differences[evaluation.config.name]
        rows.append(
            {
                "row": _short(evaluation, base),
                "value": number(difference.value),
                "difference": number(difference.difference),
                "p (Holm)": difference.p_holm,
                "wins": len(difference.wins),
                "losses": len(difference.losses),
                "significance": significance(difference),
            }
        )
    return rows


def _short(evaluation: Evaluation, base: Evaluation) -> str:
    """The row's name without its common prefix, the name of the first row."""
    return evaluation.config.name.removeprefix(base.config.name).strip() or evaluation.config.name


def _columns(measure: Measure) -> dict[str, Any]:
    value = st.column_config.NumberColumn
    return {
        "row": st.column_config.TextColumn("row", width=260),
        "value": value(str(measure), format="%.3f", width=84),
        "difference": value("difference", format="%+.3f", width=84, help="Value minus the first row"),
        "p (Holm)": value(
            "p (Holm)", format="%.4f", width=76, help="Paired randomisation test against the first row (Holm)"
        ),
        "wins": value("wins", width=56),
        "losses": value("losses", width=60),
    }


def figure(evaluations: Sequence[Evaluation], measure: Measure) -> Figure:
    """One bar per row: its difference from the first."""
    import plotly.graph_objects as go

    base, *rest = evaluations
    values = [evaluation.mean(measure) - base.mean(measure) for evaluation in rest]
    bars = go.Figure()
    bars.add_bar(
        x=values,
        y=list(range(len(rest))),
        orientation="h",
        marker={"color": [BETTER if value > 0 else WORSE for value in values]},
        text=[f"{'▲' if value > 1e-9 else '▼' if value < -1e-9 else '='} {value:+.3f}" for value in values],
        textposition="outside",
        cliponaxis=False,
        hovertext=[lines(tick(row.config.name, 60), f"{row.mean(measure):.4f}") for row in rest],
        hovertemplate=HOVERTEXT,
    )
    widest = max([abs(value) for value in values] or [0.0]) * 1.35 or 0.05
    bars.update_layout(
        height=58 + 27 * max(len(rest), 2),
        margin={"l": 8, "r": 24, "t": 6, "b": 44},
        bargap=0.35,
        showlegend=False,
        xaxis={
            "range": [-widest, widest],
            "fixedrange": True,
            "zerolinecolor": ZERO,
            "gridcolor": GRID,
            "title": {
                "text": f"change of {tick(str(measure))} relative to {tick(base.config.name)}",
                "font": {"size": 12},
            },
        },
        yaxis={
            "autorange": "reversed",
            "automargin": True,
            "tickvals": list(range(len(rest))),
            "fixedrange": True,
            "showgrid": False,
            "ticktext": [f"{tick(_short(row, base), 44)}  " for row in rest],
            "zeroline": False,
        },
    )
    return bars
