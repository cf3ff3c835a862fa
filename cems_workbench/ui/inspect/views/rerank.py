"""Rerank and Adjust: health of the reranker's scores, the blend with retrieval scores, and token alignment; then the factors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st
from markupsafe import Markup

from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.stages import rerank as rerank_stage
from cems_workbench.pipeline.stages.adjust import ADJUST, AdjustRow
from cems_workbench.ui.inspect import fetch_evidence, tables
from cems_workbench.ui.inspect.context import FACTORS, InspectContext
from cems_workbench.ui.inspect.results import notes_html
from cems_workbench.ui.kit import widgets
from cems_workbench.ui.kit.html import draw as draw_template
from cems_workbench.ui.kit.html import excerpt, plain, render
from cems_workbench.ui.kit.tables import Column, short_id
from cems_workbench.ui.kit.views import View


def draw_health(context: InspectContext, health: rerank_stage.Health) -> None:
    """Draw model, counts, warnings, effective weights, and flagged candidates."""
    trace = context.trace
    stage, config = trace.stage(rerank_stage.RERANK), trace.config.rerank
    scores = trace.evidence.model_scores.get(rerank_stage.model_key(config), {})
    head = [row.memory_id for row in stage.rows if row.outcome in ("scored", "failed")]
    counted = rerank_stage.account(scores[memory_id] for memory_id in head if memory_id in scores)
    st.html(model_html(trace) + numbers_html(health, counted))
    st.html(notes_html(notes(trace, counted)))
    if config.combine == "position_bands":
        weights = rerank_stage.effective_weights(stage.rows, config.bands)
        if weights:  # none without scores: after a cancel, or without an answer from the server
            draw_template("inspect/weights.html", weights=weights)
    else:
        st.caption("Combine is replace: only the reranker decides, so there are no weights to compare.")
    if failed := sum(row.outcome == "failed" for row in stage.rows):
        again: Any = {"on_click": fetch_evidence.retry_failures, "args": (context.request, context.resources)}
        with st.container(horizontal=True, vertical_alignment="center"):
            on_error = "Rerank → On error sets what happens to them. Failures are never cached."
            flagged = f"{failed} flagged: failed, and given a neutral score or dropped."
            st.caption(flagged, help=on_error, width="content")
            st.button("Ask again", icon=":material/refresh:", key="inspect:ask_again", **again)


def model_html(trace: Trace) -> Markup:
    """The model that ran; and, for a fallback, the model it replaces."""
    notes, health = trace.evidence.notes, trace.stage(rerank_stage.RERANK).fields.health
    key = rerank_stage.model_key(trace.config.rerank)
    ran = "Model that ran" if health is not None and health.scored else "Model called, without a score"
    label = notes.get("rerankers", {}).get(key) or notes.get("models", {}).get("reranker") or key
    lines = notes.get("warnings", {}).get("rerank", ())
    instead = next((str(line) for line in lines if str(line).endswith(f"{label} takes its place")), None)
    return render("inspect/model.html", ran=ran, label=label, key=key, instead=instead)


def numbers_html(health: rerank_stage.Health, counted: rerank_stage.ScoreAccount) -> Markup:
    """A strip of numbers with tooltips."""
    latency = "not timed" if counted.seconds is None else " / ".join(_seconds(value) for value in counted.seconds)
    failed = f"{counted.failed} · {counted.failed_share:.0%}" if counted.failed else "0"
    unread = "Candidates that could hardly enter the results by the scores of those read (expected misses)"
    clamped = "Raw scores outside the range of raw → unit; they are clamped"
    timed = "Median and 95th percentile of the time per pair, retries included; only servers are timed"
    cells = [
        ("scored", f"{health.scored} of {health.head}", "Candidates within the rerank depth that the model scored"),
        ("not read", str(health.not_read), unread),
        ("failed", failed, "Candidates without a score; flagged, never cached"),
        ("out of range", str(health.out_of_range), clamped),
        ("from the cache", f"{counted.cached_share:.0%}", "Share of scores from the cache"),
        ("p50 / p95", latency, timed),
    ]
    return widgets.numbers(cells, len(cells))


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def notes(trace: Trace, counted: rerank_stage.ScoreAccount) -> list[str]:
    """Warnings and notes on these scores, one line each."""
    stage = trace.stage(rerank_stage.RERANK)
    health, spread = stage.fields.health, rerank_stage.unit_spread(stage.rows)
    lines = []
    if counted.causes:
        lines.append("Failed by cause: " + ", ".join(f"{cause} {count}" for cause, count in counted.causes.items()))
    if counted.outcomes:
        lines.append("Origin of the scores: " + ", ".join(f"{k} {n}" for k, n in counted.outcomes.items()))
    if health is not None and health.all_equal:
        lines.append("⚠ All raw scores are equal: the reranker does not discriminate between candidates.")
    elif spread == 0:
        lines.append("⚠ All unit scores are equal, but the raw ones are not: raw → unit flattens them.")
    elif rerank_stage.is_compressed(spread):
        lines.append(f"⚠ Compressed: the unit scores span only {spread:.3f} of 0–1.")
    elif spread is not None:
        lines.append(f"The unit scores span {spread:.3f} of 0–1.")
    if counted.truncated:
        lines.append(f"⚠ {counted.truncated} texts exceeded the model’s input length.")
    return lines


def draw_blend(context: InspectContext) -> None:
    """Draw one row per candidate: the contribution of each side, and the text read."""
    trace, config = context.trace, context.trace.config.rerank
    rows = trace.stage(rerank_stage.RERANK).rows
    scores = trace.evidence.model_scores.get(rerank_stage.model_key(config), {})

    def parts(row: rerank_stage.RerankRow) -> tuple[float | None, float | None]:
        """What retrieval and the reranker give to the score."""
        if config.combine == "replace":
            return None, row.unit
        if row.retrieval_weight is None or row.retrieval_score is None or row.unit is None:
            return None, None
        return row.retrieval_weight * row.retrieval_score, (1 - row.retrieval_weight) * row.unit

    def text(row: rerank_stage.RerankRow) -> str | None:
        score = scores.get(row.memory_id)
        return score.chunk if score and row.outcome != "not_read" else None

    def weight(row: rerank_stage.RerankRow) -> float | None:
        return None if parts(row)[0] is None else row.retrieval_weight

    share = "Share of the retrieval score at this rank; empty: no blend"
    total = "Score passed to the next stage: from retrieval + from reranker"
    columns: list[Column[rerank_stage.RerankRow]] = [
        Column("before", lambda row: row.rank_in, 58, help="Rank before reranking"),
        Column("after", lambda row: row.rank_out, 50, help="Rank after reranking; empty: dropped"),
        *tables.delta_columns(context.against, rerank_stage.RERANK.name),
        Column("memory", tables.OF_ROW, 92),
        Column("score", lambda row: row.score if row.kept else None, 112, "%.4f", total, bar=1),
        *tables.stale_columns(trace, rows),
        Column("from retrieval", lambda row: parts(row)[0], 100, "%.4f", "weight × retrieval"),
        Column("from reranker", lambda row: parts(row)[1], 100, "%.4f", "(1 − weight) × unit"),
        Column("weight", weight, 64, "%.2f", share),
        Column("retrieval", lambda row: row.retrieval_score, 76, "%.4f", "Retrieval score at this rank"),
        Column("unit", lambda row: row.unit, 70, "%.4f", "Raw scaled to 0–1 and clamped"),
        Column("raw", lambda row: row.raw, 70, "%.4f", "The model’s score"),
        Column("outcome", _outcome, 92, help="scored, failed (flagged), not scored, not read, or in the tail"),
        Column("text read", text, "large", help="Exact text given to the model"),
    ]
    tables.follow_table(rows, columns, context.followed, key="inspect:blend_table", most=18)


def _outcome(row: rerank_stage.RerankRow) -> str:
    if row.outcome == "not_read":
        return rerank_stage.NOT_READ
    return row.outcome.replace("_", " ") + (f": {row.error}" if row.error else "")


HELP = (
    "Late interaction compares token by token: each query token is matched with the most similar token of the text "
    "(highest cosine). Rare tokens count more (idf). score = sum of idf × cosine / sum of idf."
)


def draw_alignment(context: InspectContext) -> None:
    """Draw the tokens of one candidate, and of a second one; without late interaction, why there are none."""
    trace = context.trace
    st.markdown("## Token by token", help=HELP)
    key = rerank_stage.model_key(trace.config.rerank)
    scores = trace.evidence.model_scores.get(key, {})
    ranked = sorted(
        (row for row in trace.stage(rerank_stage.RERANK).rows if tables.alignment(scores.get(row.memory_id))),
        key=lambda row: row.rank_out or math.inf,
    )
    if not ranked:
        label = trace.evidence.notes.get("rerankers", {}).get(key) or key
        st.caption(
            f"{plain(str(label))} has no token alignment. Only late interaction has one: choose it under Rerank → "
            "Backend in the sidebar."
        )
        return
    named = {}
    for row in ranked:
        text = excerpt(trace.evidence.memories[row.memory_id].content, 90)
        named[row.memory_id] = f"{row.rank_out or '✕'}  {short_id(row.memory_id)}  {text}"
    options = list(named)
    pairs = zip(("first", "second"), st.columns(2, gap="medium"), defaults(options, context.followed), strict=True)
    for place, column, default in pairs:
        at = None if default is None else options.index(default)
        more: Any = {"label_visibility": "collapsed", "placeholder": "Compare with another candidate"}
        key = f"inspect:alignment:{place}:{default}"
        with column:
            chosen = st.selectbox(f"{place} candidate", options, at, named.__getitem__, key, **more)
            if chosen is not None:
                st.html(tables.alignment_html(scores[chosen]))


def defaults(ranked: Sequence[str], followed: str | None) -> tuple[str, str | None]:
    """The initial candidates: the followed one and the best, or the best two."""
    if followed in ranked and followed != ranked[0]:
        return ranked[0], followed
    return ranked[0], ranked[1] if len(ranked) > 1 else None


def draw_rerank(context: InspectContext) -> None:
    """Draw counts, health, blend and tokens; or why nothing was reranked."""
    trace = context.trace
    if rerank_stage.RERANK.is_off(trace.config):
        st.info("Reranking is off. Choose a reranker in the sidebar under Rerank; late interaction needs no server.")
        return
    health = trace.stage(rerank_stage.RERANK).fields.health
    if health is None:
        st.info("Not reranked: there are no more candidates than the result limit (skip if few).")
        return
    spread = "" if health.min is None else f", raw {health.min:.3f} to {health.max:.3f}"
    unread = f", {health.not_read} {rerank_stage.NOT_READ}" if health.not_read else ""
    st.caption(
        f"{health.scored} of the first {health.head} candidates scored, {health.failed} failed, "
        f"{health.not_scored} never scored{unread}{spread}.",
        help="score = weight × retrieval + (1 − weight) × unit, or only the unit score with “replace”.",
    )
    draw_health(context, health)
    draw_blend(context)
    draw_alignment(context)


MAX_ADJUSTED = 60


def draw_adjust(context: InspectContext) -> None:
    """Draw one row per candidate, one column per factor that applied."""
    st.caption("Each factor multiplies the score; empty: the factor does not apply.")
    trace = context.trace
    rows = trace.stage(ADJUST).rows[:MAX_ADJUSTED]
    used = [name for name in FACTORS if any(row.factors.get(name) is not None for row in rows)]

    def factor(name: str) -> Callable[[AdjustRow], float | None]:
        return lambda row: row.factors.get(name)

    product = "The product before clamping to 0–1"
    unclamped = Column[AdjustRow]("before clamp", lambda row: row.unclamped, 94, "%.4f", product)
    since = "Start date of its age. Results show the age since creation."
    columns: list[Column[AdjustRow]] = [
        Column("rank", lambda row: row.rank_out, 50, help="Rank after this stage"),
        *tables.delta_columns(context.against, ADJUST.name),
        Column("memory", tables.OF_ROW, 92),
        Column("score in", lambda row: row.score_in, 74, "%.4f", "Score before this stage"),
        Column("score", lambda row: row.score, 70, "%.4f", "Score in times all factors, clamped to 0–1 if set"),
        *tables.stale_columns(trace, rows),
        *(Column(name.replace("_", " "), factor(name), 82, "%.4f", FACTORS[name]) for name in used),
        Column("age (days)", lambda row: row.age_days, 82, "%.1f", "Days since the start date of the decay"),
        Column("age since", lambda row: row.age_from, 88, help=since),
        *([unclamped] if trace.config.adjust.clamp else []),
        tables.content_column(trace, 320),
    ]
    tables.follow_table(rows, columns, context.followed, key="inspect:adjust_table", most=18)


VIEW = (View("Rerank", 80, draw_rerank), View("Adjust", 90, draw_adjust))
