"""Ablation: the effect of each part of a config on the judged queries, and the documented tables of CEMS and ACE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.ablation import ablations
from cems_workbench.evaluation.comparison import MeasureDifference, compare, significance
from cems_workbench.evaluation.evaluate import Evaluation, evaluate
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.jobs.evaluation import EvaluatedConfig
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.evaluate import setup
from cems_workbench.ui.evaluate.compare import pick_measure
from cems_workbench.ui.evaluate.state import Choice, cached_result
from cems_workbench.ui.kit.charts import HOVERTEXT, LIST_COLOURS, bar_chart, draw_chart, lines
from cems_workbench.ui.kit.html import tick
from cems_workbench.ui.kit.tables import Column, draw_table
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
