"""The reranker's blend: contributions of retrieval and reranker to each score, and the text the model read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.analysis.ranks import RankComparison
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.stages.rerank import NOT_READ, RERANK, RerankRow, model_key
from cems_workbench.ui.inspect.baseline import COLUMN, HELP
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.tables import follow_table, with_deltas, with_staleness

if TYPE_CHECKING:
    import pandas as pd


def draw_blend(context: InspectContext) -> None:
    """Draw one row per candidate: the contribution of each side."""
    frame = rerank_table(context.trace, context.against)
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    follow_table(
        with_staleness(frame, context.trace),
        context.followed,
        key="inspect:blend_table",
        most=18,
        columns={
            "before": number("before", width=58, help="Rank before reranking"),
            "after": number("after", width=50, help="Rank after reranking; empty: dropped"),
            COLUMN: text(COLUMN, width=96, help=HELP),
            "memory": text("memory", width=92),
            "score": st.column_config.ProgressColumn(
                "score",
                format="%.4f",
                min_value=0,
                max_value=1,
                width=112,
                color="#0072B2",
                help="Score passed to the next stage: from retrieval + from reranker",
            ),
            "from retrieval": number("from retrieval", format="%.4f", width=100, help="weight × retrieval"),
            "from reranker": number("from reranker", format="%.4f", width=100, help="(1 − weight) × unit"),
            "weight": number(
                "weight", format="%.2f", width=64, help="Share of the retrieval score at this rank; empty: no blend"
            ),
            "retrieval": number("retrieval", format="%.4f", width=76, help="Retrieval score at this rank"),
            "unit": number("unit", format="%.4f", width=70, help="Raw scaled to 0–1 and clamped"),
            "raw": number("raw", format="%.4f", width=70, help="The model’s score"),
            "outcome": text("outcome", width=92, help="scored, failed (flagged), not scored, not read, or in the tail"),
            "text read": text("text read", width="large", help="Exact text given to the model"),
        },
    )


def _outcome(row: RerankRow) -> str:
    if row.outcome == "not_read":
        return NOT_READ
    return row.outcome.replace("_", " ") + (f": {row.error}" if row.error else "")


def rerank_table(trace: Trace, against: RankComparison | None = None) -> pd.DataFrame:
    """One row per candidate: contributions of both sides, the text read, and the rank difference from a baseline."""
    import pandas as pd

    config = trace.config.rerank
    scores = trace.evidence.model_scores.get(model_key(config), {})
    rows = []
    for row in trace.stage(RERANK).rows:
        weight, retrieval, unit = row.retrieval_weight, row.retrieval_score, row.unit
        retrieval_part = reranker_part = None
        if config.combine == "replace":
            reranker_part = unit
        elif weight is not None and retrieval is not None and unit is not None:
            retrieval_part, reranker_part = weight * retrieval, (1 - weight) * unit
        score = scores.get(row.memory_id)
        rows.append(
            {
                "before": row.rank_in,
                "after": row.rank_out,
                "memory": row.memory_id,
                "score": row.score if row.kept else None,
                "from retrieval": retrieval_part,
                "from reranker": reranker_part,
                "weight": None if retrieval_part is None else weight,
                "retrieval": retrieval,
                "unit": unit,
                "raw": row.raw,
                "outcome": _outcome(row),
                "text read": score.chunk if score and row.outcome != "not_read" else None,
            }
        )
    return with_deltas(pd.DataFrame(rows), against, RERANK.name, "after")
