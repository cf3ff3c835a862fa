"""Over time: measured values of configs on a query set, and what changed between measurements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.jobs.timeline import Point, measures, points, query_sets
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.evaluate.compare import pick_measure
from cems_workbench.ui.kit.charts import HOVERTEXT, LEGEND, LIST_COLOURS, draw_chart, layout, lines
from cems_workbench.ui.kit.html import tick

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COMMAND = "python -m cems_workbench watch QUERY_SET --preset NAME --cron @daily"
"""Command for scheduled measurements."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "x")


def draw(resources: Resources) -> None:
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


def figure(found: Sequence[Point], measure: str) -> Figure:
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
    chart.update_layout(
        layout(340, {"title": "measured", "type": "date"}, {"title": measure}, showlegend=len(names) > 1, legend=LEGEND)
    )
    return chart


def _changes_text(point: Point) -> str:
    if point.changed is None:
        return "unknown"
    return ", ".join(point.changed) or "nothing"
