"""Adjust: the score factors of each candidate, with the scores before and after the stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.analysis.ranks import RankComparison
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.stages import ADJUST
from cems_workbench.ui.inspect.baseline import COLUMN, HELP
from cems_workbench.ui.inspect.catalogue import View
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.glossary import FACTORS
from cems_workbench.ui.inspect.tables import follow_table, with_deltas, with_staleness
from cems_workbench.ui.kit.html import excerpt

if TYPE_CHECKING:
    import pandas as pd

MAX_ROWS = 60


def draw(context: InspectContext) -> None:
    """Draw one row per candidate, one column per factor that applied."""
    st.caption("Each factor multiplies the score; empty: the factor does not apply.")
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    frame = adjust_table(context.trace, MAX_ROWS, context.against)
    factors = {name: number(name.replace("_", " "), format="%.4f", width=82, help=FACTORS[name]) for name in FACTORS}
    follow_table(
        with_staleness(frame, context.trace),
        context.followed,
        key="inspect:adjust_table",
        most=18,
        columns={
            "rank": number("rank", width=50, help="Rank after this stage"),
            COLUMN: text(COLUMN, width=96, help=HELP),
            "memory": text("memory", width=92),
            "score in": number("score in", format="%.4f", width=74, help="Score before this stage"),
            "score": number("score", format="%.4f", width=70, help="Score in times all factors, clamped to 0–1 if set"),
            **factors,
            "age (days)": number("age (days)", format="%.1f", width=82, help="Days since the start date of the decay"),
            "age since": text(
                "age since",
                width=88,
                help="Start date of its age. Results show the age since creation.",
            ),
            "before clamp": number("before clamp", format="%.4f", width=94, help="The product before clamping to 0–1"),
            "content": text("content", width=320),
        },
    )


def adjust_table(trace: Trace, top: int, against: RankComparison | None = None) -> pd.DataFrame:
    """The factors of each candidate: score before, factors applied, score after; and the rank difference from a baseline."""
    import pandas as pd

    rows = [
        {
            "rank": row.rank_out,
            "memory": row.memory_id,
            "score in": row.score_in,
            "score": row.score,
            **{name: row.factors.get(name) for name in FACTORS},
            "age (days)": row.age_days,
            "age since": row.age_from,
            "before clamp": row.unclamped,
            "content": excerpt(trace.evidence.memories[row.memory_id].content),
        }
        for row in trace.stage(ADJUST).rows[:top]
    ]
    frame = with_deltas(pd.DataFrame(rows), against, ADJUST.name, "rank")
    empty = [name for name in FACTORS if name in frame and frame[name].isna().all()]
    return frame.drop(columns=empty if trace.config.adjust.clamp else [*empty, "before clamp"], errors="ignore")


VIEW = View("Adjust", 90, draw)
