"""The reranker's blend: contributions of retrieval and reranker to each score, and the text the model read."""

from __future__ import annotations

from cems_workbench.pipeline.stages.rerank import NOT_READ, RERANK, RerankRow, model_key
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.tables import OF_ROW, delta_columns, follow_table, stale_columns
from cems_workbench.ui.kit.tables import Column


def draw_blend(context: InspectContext) -> None:
    """Draw one row per candidate: the contribution of each side, and the text read."""
    trace, config = context.trace, context.trace.config.rerank
    rows = trace.stage(RERANK).rows
    scores = trace.evidence.model_scores.get(model_key(config), {})

    def parts(row: RerankRow) -> tuple[float | None, float | None]:
        """What retrieval and the reranker give to the score."""
        if config.combine == "replace":
            return None, row.unit
        if row.retrieval_weight is None or row.retrieval_score is None or row.unit is None:
            return None, None
        return row.retrieval_weight * row.retrieval_score, (1 - row.retrieval_weight) * row.unit

    def text(row: RerankRow) -> str | None:
        score = scores.get(row.memory_id)
        return score.chunk if score and row.outcome != "not_read" else None

    columns: list[Column[RerankRow]] = [
        Column("before", lambda row: row.rank_in, 58, help="Rank before reranking"),
        Column("after", lambda row: row.rank_out, 50, help="Rank after reranking; empty: dropped"),
        *delta_columns(context.against, RERANK.name),
        Column("memory", OF_ROW, 92),
        *stale_columns(trace, rows),
        Column(
            "score",
            lambda row: row.score if row.kept else None,
            112,
            "%.4f",
            "Score passed to the next stage: from retrieval + from reranker",
            bar=1,
        ),
        Column("from retrieval", lambda row: parts(row)[0], 100, "%.4f", "weight × retrieval"),
        Column("from reranker", lambda row: parts(row)[1], 100, "%.4f", "(1 − weight) × unit"),
        Column(
            "weight",
            lambda row: None if parts(row)[0] is None else row.retrieval_weight,
            64,
            "%.2f",
            "Share of the retrieval score at this rank; empty: no blend",
        ),
        Column("retrieval", lambda row: row.retrieval_score, 76, "%.4f", "Retrieval score at this rank"),
        Column("unit", lambda row: row.unit, 70, "%.4f", "Raw scaled to 0–1 and clamped"),
        Column("raw", lambda row: row.raw, 70, "%.4f", "The model’s score"),
        Column("outcome", _outcome, 92, help="scored, failed (flagged), not scored, not read, or in the tail"),
        Column("text read", text, "large", help="Exact text given to the model"),
    ]
    follow_table(rows, columns, context.followed, key="inspect:blend_table", most=18)


def _outcome(row: RerankRow) -> str:
    if row.outcome == "not_read":
        return NOT_READ
    return row.outcome.replace("_", " ") + (f": {row.error}" if row.error else "")
