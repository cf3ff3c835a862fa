"""Experiments: save a comparison with its config, note and values; reopen, measure again, or download it.

Ablation: the effect of each part of a config on the judged queries, and the documented tables of CEMS and ACE.

Over time: measured values of configs on a query set, and what changed between measurements.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.config import PipelineConfig, dump_config
from cems_workbench.errors import InputError, WorkbenchError
from cems_workbench.evaluation.ablation import ablations
from cems_workbench.evaluation.comparison import Comparison, compare, significance
from cems_workbench.evaluation.evaluate import Evaluation, evaluate, number
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.evaluation.report import experiment_card, markdown_report, per_query_rows, trec_run
from cems_workbench.evaluation.saved_comparison import read_comparison
from cems_workbench.jobs.evaluation import EvaluatedConfig
from cems_workbench.jobs.timeline import MADE_KEY, Point, made_with, measures, points, query_sets
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.atomic_write import safe_stem
from cems_workbench.store import ConfigRecord
from cems_workbench.ui.evaluate import setup
from cems_workbench.ui.evaluate.compare import compared, draw_saved, pick_measure
from cems_workbench.ui.evaluate.state import Choice, cached_result
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.charts import GRID, HOVERTEXT, LIST_COLOURS, draw_chart, lines
from cems_workbench.ui.kit.html import csv_bytes, plain, tick
from cems_workbench.ui.kit.tables import draw_table, pick_row
from cems_workbench.ui.kit.widgets import progress_in

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def draw_experiments(measured: Sequence[EvaluatedConfig], choice: Choice, resources: Resources) -> None:
    """Draw the form to save or download the current comparison, and the saved experiments."""
    comparison = compared(measured)
    _draw_save(comparison, measured, choice, resources)
    _downloads(comparison, measured, choice)
    st.markdown("## Saved experiments")
    experiments = resources.store.configs.experiments()
    if not experiments:
        st.caption("No experiment is saved yet. Save a comparison with its config, its values and your note.")
        return
    picked = pick_row(
        [_row(experiment) for experiment in experiments],
        key="evaluate:kept_table",
        placeholder="–",
        most=8,
        columns={
            "nDCG@10": st.column_config.NumberColumn("nDCG@10", format="%.3f", help="Value of the saved config"),
            "hit@5": st.column_config.NumberColumn("hit@5", format="%.3f", help="Value of the saved config"),
            "note": st.column_config.TextColumn("note", width="large"),
            "evidence": st.column_config.TextColumn("evidence", help="Start of the evidence hash"),
        },
    )
    if picked is not None:
        _draw_experiment(experiments[picked])


def _draw_save(
    comparison: Comparison, measured: Sequence[EvaluatedConfig], choice: Choice, resources: Resources
) -> None:
    with st.form("evaluate:keep", border=False):
        name_box, note_box, button_box = st.columns([2, 4, 1], vertical_alignment="bottom")
        name = name_box.text_input("Save as", value=measured[-1].name, max_chars=120)
        note = note_box.text_input("Note", max_chars=500, placeholder="what you tried, and why")
        pressed = button_box.form_submit_button("Save", icon=":material/bookmark_add:", width="stretch")
    if not pressed:
        return
    if not name.strip():
        st.error("Enter a name.")
        return
    last = measured[-1]
    card = experiment_card(comparison, choice.selection.query_set, _hash(measured))
    card |= {MADE_KEY: made_with(last.labelled, last.evaluation.config)}
    config = measured[-1].evaluation.config.model_copy(update={"name": name.strip()})
    try:
        session.require("reviewer")
        saved = resources.store.configs.add_experiment(
            name.strip(), dump_config(config), note.strip(), card, session.reviewer() or ""
        )
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return
    st.success(f"Saved as experiment {saved.id}. You can choose its config above.", icon=":material/bookmark:")


def _hash(measured: Sequence[EvaluatedConfig]) -> str:
    return str(measured[-1].content_hash)


def _downloads(comparison: Comparison, measured: Sequence[EvaluatedConfig], choice: Choice) -> None:
    box = st.container(horizontal=True)
    name = safe_stem(choice.selection.query_set, "queries", 40)
    box.download_button(
        "Report (Markdown)",
        lambda: markdown_report(comparison, choice.selection.query_set, _hash(measured)),
        f"{name}.md",
        "text/markdown",
        key="evaluate:md",
        on_click="ignore",
    )
    box.download_button(
        "Per query (CSV)",
        lambda: csv_bytes(*per_query_rows(comparison)),
        f"{name}.csv",
        "text/csv",
        key="evaluate:csv",
        on_click="ignore",
    )
    box.download_button(
        "Everything (JSON)",
        lambda: _json(experiment_card(comparison, choice.selection.query_set, _hash(measured))),
        f"{name}.json",
        "application/json",
        key="evaluate:json",
        on_click="ignore",
    )
    box.download_button(
        "Run (TREC)",
        lambda: _run(measured[-1]),
        f"{name}.run",
        "text/plain",
        key="evaluate:run",
        on_click="ignore",
        help=f"The results of {plain(measured[-1].name)}, in the run format of trec_eval and ir-measures.",
    )


def _json(card: dict[str, Any]) -> str:
    return json.dumps(card, ensure_ascii=False, indent=1)


def _run(evaluated: EvaluatedConfig) -> str:
    try:
        return trec_run(evaluated.batch, evaluated.evaluation)
    except ValueError as error:
        return f"# {error}\n"


def _row(experiment: ConfigRecord) -> dict[str, Any]:
    card = experiment.card or {}
    return {
        "kept": experiment.id,
        "name": experiment.name,
        "when": experiment.saved_at.strftime("%Y-%m-%d %H:%M"),
        "query set": card.get("query_set"),
        "nDCG@10": _mean(card, "nDCG@10"),
        "hit@5": _mean(card, "hit@5"),
        "baseline": card.get("baseline"),
        "evidence": str(card.get("content_hash") or "")[:12],
        "note": experiment.why,
    }


def _mean(card: Mapping[str, Any], measure: str) -> float | None:
    configs = card.get("configs")
    if not isinstance(configs, list) or not configs:
        return None
    mean: float | None = configs[-1].get("measures", {}).get(measure, {}).get("mean")
    return mean


def _draw_experiment(experiment: ConfigRecord) -> None:
    """Draw a saved experiment: its values of that time, and its config."""
    st.markdown(f"**{plain(experiment.name)}**" + (f"  \n:small[{plain(experiment.why)}]" if experiment.why else ""))
    try:
        saved = read_comparison(experiment.card or {})
    except InputError as error:
        st.caption(plain(f"{error}."))
    else:
        draw_saved(saved)
    option = f"{experiment.name} (kept {experiment.id})"
    left, right = st.columns(2)
    if option not in st.session_state.get("evaluate:configs", ()):
        left.button(
            "Measure it again",
            key="evaluate:again",
            icon=":material/replay:",
            on_click=_choose,
            args=(option,),
            help="Adds its config to those chosen above.",
        )
    else:
        left.caption("Its config is already chosen above.")
    right.download_button(
        "Config (YAML)",
        experiment.config_yaml,
        f"experiment-{experiment.id}.yaml",
        "text/yaml",
        key="evaluate:kept_yaml",
        on_click="ignore",
    )


def _choose(option: str) -> None:
    st.session_state["evaluate:configs"] = [*st.session_state.get("evaluate:configs", []), option]


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


def draw_ablation(measured: Sequence[EvaluatedConfig], choice: Choice, resources: Resources) -> None:
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
        figure_ablation(rows, measure),
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


def figure_ablation(evaluations: Sequence[Evaluation], measure: Measure) -> Figure:
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


COMMAND = "python -m cems_workbench watch QUERY_SET --preset NAME --cron @daily"
"""Command for scheduled measurements."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "x")


def draw_over_time(resources: Resources) -> None:
    """Draw the chart of one measure on one set, with the changes at each point, or how to start."""
    records = [*resources.store.configs.experiments(), *resources.store.configs.watched()]
    sets = query_sets(records)
    if not sets:
        st.markdown("## No saved measurements yet")
        st.markdown(
            "Save a comparison under Judged queries → Experiments, or measure a query set on a schedule: this command prints the crontab "
            "line; a measurement with a significant regression exits with code 1."
        )
        st.code(COMMAND, language="bash")
        return
    query_set = st.selectbox("Query set", sets, key="evaluate:over_time:set", width=420)
    measure = pick_measure(measures(records, query_set))
    series = points(records, query_set, measure)
    draw_chart(
        figure_over_time(series, str(measure)),
        key="evaluate:over_time",
        alt=f"Line chart: {measure} of each config over time, with 95 % confidence intervals.",
        table=lambda: [
            {
                "when": f"{point.when:%Y-%m-%d %H:%M}",
                "config": point.name,
                str(measure): point.mean,
                "from": point.low,
                "to": point.high,
                "queries": point.queries,
                "changed since the last": _changes_text(point),
                "note": point.note,
            }
            for point in reversed(series)
        ],
    )
    st.caption(
        "A ring marks a point where memories, embedder, config, judgments, queries or the workbench differ from the previous point; hover "
        "to see which."
    )


def figure_over_time(found: Sequence[Point], measure: str) -> Figure:
    """One line per config over time, with intervals; a ring marks a change since the previous point."""
    import plotly.graph_objects as go

    chart = go.Figure()
    names = list(dict.fromkeys(point.name for point in found))
    for name, colour, symbol in zip(names, cycle(LIST_COLOURS), cycle(SYMBOLS), strict=False):
        own = [point for point in found if point.name == name]
        chart.add_scatter(
            x=[point.when for point in own],
            y=[point.mean for point in own],
            mode="lines+markers",
            name=tick(name),
            line={"width": 2, "color": colour},
            marker={
                "symbol": [f"{symbol}-open" if point.changed else symbol for point in own],
                "size": 9,
                "color": colour,
                "line": {"width": 2, "color": colour},
            },
            error_y={
                "type": "data",
                "symmetric": False,
                "thickness": 1,
                "width": 3,
                "color": colour,
                "array": [point.high - point.mean for point in own],
                "arrayminus": [point.mean - point.low for point in own],
            },
            hovertext=[
                lines(
                    tick(name),
                    f"{measure} {point.mean:.4f} ({point.low:.3f} to {point.high:.3f})",
                    f"{point.queries} queries",
                    f"changed: {_changes_text(point)}",
                )
                for point in own
            ],
            hovertemplate=HOVERTEXT,
        )
    axis = {"fixedrange": True, "gridcolor": GRID, "zeroline": False}
    chart.update_layout(
        height=340,
        margin={"l": 8, "r": 16, "t": 12, "b": 40},
        showlegend=len(names) > 1,
        legend={"orientation": "h", "y": 1.12},
        xaxis={**axis, "title": "measured", "type": "date"},
        yaxis={**axis, "title": measure},
    )
    return chart


def _changes_text(point: Point) -> str:
    if point.changed is None:
        return "unknown"
    return ", ".join(point.changed) or "nothing"
