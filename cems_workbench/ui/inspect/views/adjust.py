"""Adjust: the score factors of each candidate, with the scores before and after the stage."""

from __future__ import annotations

from functools import partial

import streamlit as st

from cems_workbench.pipeline.stages.adjust import ADJUST, AdjustRow
from cems_workbench.ui.inspect.context import FACTORS, InspectContext, View
from cems_workbench.ui.inspect.tables import OF_ROW, content_column, delta_columns, follow_table, stale_columns
from cems_workbench.ui.kit.tables import Column

MAX_ROWS = 60


def draw(context: InspectContext) -> None:
    """Draw one row per candidate, one column per factor that applied."""
    st.caption("Each factor multiplies the score; empty: the factor does not apply.")
    trace = context.trace
    rows = trace.stage(ADJUST).rows[:MAX_ROWS]
    used = [name for name in FACTORS if any(row.factors.get(name) is not None for row in rows)]
    unclamped = Column[AdjustRow](
        "before clamp", lambda row: row.unclamped, 94, "%.4f", "The product before clamping to 0–1"
    )
    columns: list[Column[AdjustRow]] = [
        Column("rank", lambda row: row.rank_out, 50, help="Rank after this stage"),
        *delta_columns(context.against, ADJUST.name),
        Column("memory", OF_ROW, 92),
        *stale_columns(trace, rows),
        Column("score in", lambda row: row.score_in, 74, "%.4f", "Score before this stage"),
        Column("score", lambda row: row.score, 70, "%.4f", "Score in times all factors, clamped to 0–1 if set"),
        *(Column(name.replace("_", " "), partial(_factor, name), 82, "%.4f", FACTORS[name]) for name in used),
        Column("age (days)", lambda row: row.age_days, 82, "%.1f", "Days since the start date of the decay"),
        Column(
            "age since",
            lambda row: row.age_from,
            88,
            help="Start date of its age. Results show the age since creation.",
        ),
        *([unclamped] if trace.config.adjust.clamp else []),
        content_column(trace, 320),
    ]
    follow_table(rows, columns, context.followed, key="inspect:adjust_table", most=18)


def _factor(name: str, row: AdjustRow) -> float | None:
    return row.factors.get(name)


VIEW = View("Adjust", 90, draw)
