"""Experiments: save a comparison with its config, note and values; reopen, measure again, or download it. Over time: the values of configs
on a query set, and what changed between measurements.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.config import dump_config
from cems_workbench.errors import InputError
from cems_workbench.evaluation import report
from cems_workbench.evaluation.comparison import Comparison
from cems_workbench.jobs.catalogue import named
from cems_workbench.jobs.evaluation import EvaluationReport
from cems_workbench.jobs.regression import MADE_KEY, Point, made_with, measures, points, query_sets
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.atomic_write import safe_stem
from cems_workbench.store import ConfigRecord
from cems_workbench.ui.evaluate.compare import compared, draw_saved, pick_measure
from cems_workbench.ui.evaluate.state import Choice
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.charts import HOVERTEXT, LEGEND, LIST_COLOURS, draw_chart, intervals, layout, lines
from cems_workbench.ui.kit.html import csv_bytes, plain, tick
from cems_workbench.ui.kit.tables import Column, pick_row
from cems_workbench.ui.kit.widgets import download, errors_shown

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def _of(experiment: ConfigRecord, name: str) -> Any:
    """A value of the saved card; None if it has none."""
    return (experiment.card or {}).get(name)


def _mean(experiment: ConfigRecord, measure: str) -> float | None:
    """The mean of the saved config, the last of its comparison."""
    configs = _of(experiment, "configs")
    last = configs[-1] if isinstance(configs, list) and configs else {}
    mean: float | None = last.get("measures", {}).get(measure, {}).get("mean")
    return mean


COLUMNS: list[Column[ConfigRecord]] = [
    Column("kept", lambda one: one.id),
    Column("name", lambda one: one.name),
    Column("when", lambda one: f"{one.saved_at:%Y-%m-%d %H:%M}"),
    Column("query set", lambda one: _of(one, "query_set")),
    Column("nDCG@10", lambda one: _mean(one, "nDCG@10"), None, "%.3f", "Value of the saved config"),
    Column("hit@5", lambda one: _mean(one, "hit@5"), None, "%.3f", "Value of the saved config"),
    Column("baseline", lambda one: _of(one, "baseline")),
    Column("evidence", lambda one: str(_of(one, "content_hash") or "")[:12], help="Start of the evidence hash"),
    Column("note", lambda one: one.why, "large"),
]


def draw_experiments(measured: Sequence[EvaluationReport], choice: Choice, resources: Resources) -> None:
    """Draw the form to save or download the current comparison, and the saved experiments."""
    comparison = compared(measured)
    _draw_save(comparison, measured, choice, resources)
    _downloads(comparison, measured, choice)
    st.markdown("## Saved experiments")
    experiments = resources.store.configs.experiments()
    if not experiments:
        st.caption("No experiment is saved yet. Save a comparison with its config, its values and your note.")
        return
    picked = pick_row(experiments, COLUMNS, key="evaluate:kept_table", placeholder="–", most=8)
    if picked is not None:
        _draw_experiment(picked)


def _draw_save(
    comparison: Comparison, measured: Sequence[EvaluationReport], choice: Choice, resources: Resources
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
    last, name = measured[-1], name.strip()
    card = report.experiment_card(comparison, choice.selection.query_set, last.content_hash)
    card |= {MADE_KEY: made_with(last.labelled, last.evaluation.config)}
    config = named(name, last.evaluation.config)
    with errors_shown():
        session.require("reviewer")
        by, configs = session.reviewer() or "", resources.store.configs
        saved = configs.add_experiment(name, dump_config(config), note.strip(), card, by)
        said = f"Saved as experiment {saved.id}. You can choose its config above."
        st.success(said, icon=":material/bookmark:")


def _downloads(comparison: Comparison, measured: Sequence[EvaluationReport], choice: Choice) -> None:
    last, box = measured[-1], st.container(horizontal=True)
    name, whole = safe_stem(choice.selection.query_set, "queries", 40), (choice.selection.query_set, last.content_hash)
    about = f"The results of {plain(last.name)}, in the run format of trec_eval and ir-measures."
    files: list[tuple[str, str, Callable[[], str | bytes], str | None]] = [
        ("Report (Markdown)", "md", lambda: report.markdown_report(comparison, *whole), None),
        ("Per query (CSV)", "csv", lambda: csv_bytes(*report.per_query_rows(comparison)), None),
        (
            "Everything (JSON)",
            "json",
            lambda: json.dumps(report.experiment_card(comparison, *whole), ensure_ascii=False, indent=1),
            None,
        ),
        ("Run (TREC)", "run", lambda: _run(last), about),
    ]
    for label, suffix, write, help in files:
        download(label, write, f"{name}.{suffix}", f"evaluate:{suffix}", box, help=help)


def _run(evaluated: EvaluationReport) -> str:
    try:
        return report.run_lines(evaluated.batch, evaluated.evaluation.rankings)
    except ValueError as error:
        return f"# {error}\n"


def _draw_experiment(experiment: ConfigRecord) -> None:
    st.markdown(f"**{plain(experiment.name)}**" + (f"  \n:small[{plain(experiment.why)}]" if experiment.why else ""))
    try:
        saved = report.read_comparison(experiment.card or {})
    except InputError as error:
        st.caption(plain(f"{error}."))
    else:
        draw_saved(saved)
    option, chosen = f"{experiment.name} (kept {experiment.id})", st.session_state.get("evaluate:configs", [])
    left, right = st.columns(2)
    if option in chosen:
        left.caption("Its config is already chosen above.")
    else:
        choose, help = {"evaluate:configs": [*chosen, option]}, "Adds its config to those chosen above."
        common: dict[str, Any] = {"on_click": lambda: st.session_state.update(choose), "icon": ":material/replay:"}
        left.button("Measure it again", key="evaluate:again", help=help, **common)
    file = f"experiment-{experiment.id}.yaml"
    download("Config (YAML)", experiment.config_yaml, file, "evaluate:kept_yaml", box=right)


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
        figure(series, str(measure)),
        key="evaluate:over_time",
        alt=f"Line chart: {measure} of each config over time, with 95 % confidence intervals.",
        table=lambda: [
            {"when": f"{point.when:%Y-%m-%d %H:%M}", "config": point.name, str(measure): point.mean}
            | {"from": point.low, "to": point.high, "queries": point.queries}
            | {"changed since the last": _changes_text(point), "note": point.note}
            for point in reversed(series)
        ],
    )
    st.caption(
        "A ring marks a point where memories, embedder, config, judgments, queries or the workbench differ from the previous point; hover "
        "to see which."
    )


def figure(found: Sequence[Point], measure: str) -> Figure:
    """One line per config over time, with intervals; a ring marks a change since the previous point."""
    import plotly.graph_objects as go

    chart = go.Figure()
    names = list(dict.fromkeys(point.name for point in found))
    for name, colour, symbol in zip(names, cycle(LIST_COLOURS), cycle(SYMBOLS), strict=False):
        own = [point for point in found if point.name == name]
        means = [point.mean for point in own]
        symbols = [f"{symbol}-open" if point.changed else symbol for point in own]
        chart.add_scatter(
            x=[point.when for point in own],
            y=means,
            mode="lines+markers",
            name=tick(name),
            line={"width": 2, "color": colour},
            marker={"symbol": symbols, "size": 9, "color": colour, "line": {"width": 2, "color": colour}},
            error_y=intervals(means, [point.low for point in own], [point.high for point in own], colour),
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
    chart.update_layout(
        layout(340, {"title": "measured", "type": "date"}, {"title": measure}, showlegend=len(names) > 1, legend=LEGEND)
    )
    return chart


def _changes_text(point: Point) -> str:
    if point.changed is None:
        return "unknown"
    return ", ".join(point.changed) or "nothing"
