"""Health of the reranker: which model ran, what failed and why, and which side of the blend really decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st
from markupsafe import Markup

from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.rerank import (
    RERANK,
    BandWeight,
    Health,
    Overtaking,
    RerankRow,
    ScoreAccount,
    account,
    effective_weights,
    is_compressed,
    model_key,
    overtaking,
    unit_spread,
)
from cems_workbench.ui.inspect import fetch_evidence
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.strip import notes_html
from cems_workbench.ui.kit import panels
from cems_workbench.ui.kit.tables import draw_table
from cems_workbench.ui.kit.templates import render

MEANING = {
    "scored": "Candidates of the rerank head that have a score of the model",
    "failed": "Candidates the model gave no score; flagged, never cached",
    "timeouts": "Of the failed: no answer within the timeout",
    "not a number": "Of the failed: the answer does not parse as a number",
    "not finite": "Of the failed: the number is infinite or NaN",
    "out of range": "Raw scores outside the range that raw → unit expects; they are clamped",
    "from the cache": "Share of the scores that came from the cache",
    "p50 / p95": "Median and 95th percentile of the time an answered pair took, retries included; only servers are timed",
}


def draw_health(context: InspectContext) -> None:
    """The panel above the blend: model, counts, doubts, effective weight, and the flagged candidates."""
    trace = context.trace
    stage, config = trace.stage(RERANK), trace.config.rerank
    scores = trace.evidence.model_scores.get(model_key(config), {})
    health = stage.fields.health
    if health is None:
        return
    head = [row.memory_id for row in stage.rows if row.outcome in ("scored", "failed")]
    counted = account(scores[memory_id] for memory_id in head if memory_id in scores)
    st.html(model_html(trace) + numbers_html(health, counted))
    st.html(notes_html(doubts(trace, counted)))
    if config.combine == "position_bands":
        weights = effective_weights(stage.rows, config.bands)
        if weights:  # there are none while no candidate is scored: after a cancel, or without an answer from a server
            st.html(weights_html(weights, overtaking(stage.rows, config)))
    else:
        st.caption("Combine is replace: the reranker alone decides, so there is no weight to compare.")
    flagged = [row for row in stage.rows if row.outcome == "failed"]
    if flagged:
        _draw_flagged(flagged, context.request, context.resources)


def model_html(trace: Trace) -> Markup:
    """Which model ran; what it takes the place of, when it is not the one that was asked for."""
    notes, health = trace.evidence.notes, trace.stage(RERANK).fields.health
    key = model_key(trace.config.rerank)
    ran = "Model that ran" if health is not None and health.scored else "Model that was asked, without a score"
    label = notes.get("rerankers", {}).get(key) or notes.get("models", {}).get("reranker") or key
    lines = notes.get("warnings", {}).get("rerank", ())
    instead = next((str(line) for line in lines if str(line).endswith(f"{label} takes its place")), None)
    return render("inspect/model.html", ran=ran, label=label, key=key, instead=instead)


def numbers_html(health: Health, counted: ScoreAccount) -> Markup:
    """Eight numbers in a strip, each with what it means as its title."""
    latency = "not timed" if counted.seconds is None else " / ".join(_seconds(value) for value in counted.seconds)
    cells = {
        "scored": f"{health.scored} of {health.head}",
        "failed": f"{counted.failed} · {counted.failed_share:.0%}" if counted.failed else "0",
        "timeouts": str(counted.causes.get("timeout", 0)),
        "not a number": str(counted.causes.get("not a number", 0)),
        "not finite": str(counted.causes.get("not finite", 0)),
        "out of range": str(health.out_of_range),
        "from the cache": f"{counted.cached_share:.0%}",
        "p50 / p95": latency,
    }
    return panels.numbers((name, value, MEANING[name]) for name, value in cells.items())


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def doubts(trace: Trace, counted: ScoreAccount) -> list[str]:
    """One line per thing to know about these scores beyond the numbers."""
    stage = trace.stage(RERANK)
    health, spread = stage.fields.health, unit_spread(stage.rows)
    lines = []
    if counted.causes:
        lines.append("Failed by cause: " + ", ".join(f"{cause} {count}" for cause, count in counted.causes.items()))
    if counted.outcomes:
        lines.append("How the scores came about: " + ", ".join(f"{k} {n}" for k, n in counted.outcomes.items()))
    if health is not None and health.all_equal:
        lines.append("⚠ All raw scores are equal: the reranker does not distinguish the candidates.")
    elif spread == 0:
        lines.append("⚠ All unit scores are equal, though the raw ones are not: raw → unit flattens them.")
    elif is_compressed(spread):
        lines.append(f"⚠ Compressed: the unit scores span only {spread:.3f} of 0–1.")
    elif spread is not None:
        lines.append(f"The unit scores span {spread:.3f} of 0–1.")
    if counted.truncated:
        lines.append(f"⚠ {counted.truncated} texts were longer than the model reads.")
    return lines


@dataclass(frozen=True, slots=True)
class WeightRow:
    """A band as it is drawn; `share` is retrieval's part of the effect in percent, None when nothing is known of it."""

    ranks: str
    candidates: int
    nominal: str
    effective: str
    share: str | None


def weights_html(weights: Sequence[BandWeight], example: Overtaking | None) -> Markup:
    """Per band the share that the config names and the share that has an effect, with a warning where they disagree."""
    rows = [_weight_row(weight) for weight in weights]
    return render("inspect/weights.html", rows=rows, warnings=weight_warnings(weights, example))


def _weight_row(weight: BandWeight) -> WeightRow:
    ranks = f"{weight.first}–{weight.last}" if weight.last else f"{weight.first} on"
    nominal, share = f"{weight.nominal:.0%} : {1 - weight.nominal:.0%}", weight.effective
    effective = "–" if share is None else f"{'⚠ ' if weight.inverted else ''}{share:.1%} : {1 - share:.1%}"
    return WeightRow(ranks, weight.candidates, nominal, effective, None if share is None else f"{share:.2%}")


def weight_warnings(weights: Sequence[BandWeight], example: Overtaking | None) -> list[str]:
    """In plain words: which bands do the opposite of what they say, and a candidate that shows it."""
    lines = []
    for weight in weights:
        if weight.inverted and weight.effective is not None:
            named, does = ("retrieval", "the reranker") if weight.nominal > 0.5 else ("the reranker", "retrieval")
            said, real = max(weight.nominal, 1 - weight.nominal), min(weight.effective, 1 - weight.effective)
            ranks = f"Ranks {weight.first}–{weight.last}" if weight.last else f"Ranks from {weight.first} on"
            lines.append(
                f"⚠ {ranks}: the band gives {named} {said:.0%}, but it decides only {real:.1%} of the order; {does} "
                "decides the rest. The band's intent is inverted."
            )
    if example is not None:
        lines.append(example_line(example))
    return lines


def example_line(example: Overtaking) -> str:
    """The candidate that overtook rank 1, in numbers."""
    if example.unit < example.first_unit:
        liked = "although the reranker liked it less"
    elif example.unit == example.first_unit:
        liked = "although the reranker liked it no more"
    else:
        liked = "by the reranker alone"
    return (
        f"⚠ Rank {example.rank} overtook rank 1, {liked} (unit {example.unit:.3f} against {example.first_unit:.3f}): "
        f"{example.weight:.2f} × {example.retrieval:.4f} + {1 - example.weight:.2f} × {example.unit:.3f} = {example.score:.4f} "
        f"beats {example.first_weight:.2f} × {example.first_retrieval:.4f} + {1 - example.first_weight:.2f} × "
        f"{example.first_unit:.3f} = {example.first_score:.4f}, which can be at most {example.first_at_most:.4f}."
    )


def _draw_flagged(flagged: Sequence[RerankRow], request: Request, resources: Resources) -> None:
    # The button stands left: at the right the toolbar of the table below would cover it.
    button_box, text_box = st.columns([2, 5], vertical_alignment="center")
    text_box.caption(
        f"{len(flagged)} flagged: failed, and given the neutral score or dropped.",
        help="Rerank → On error sets what happens to them. Failures are never cached.",
    )
    button_box.button(
        "Ask again",
        icon=":material/refresh:",
        key="inspect:ask_again",
        width="stretch",
        on_click=fetch_evidence.retry_failures,
        args=(request, resources),
        help="Clears this model’s failures for this query and asks it again.",
    )
    draw_table(
        [{"before": row.rank_in, "memory": row.memory_id, "error": row.error} for row in flagged],
        most=5,
        key="inspect:flagged",
        columns={
            "before": st.column_config.NumberColumn("before", width=58, help="Rank before reranking"),
            "memory": st.column_config.TextColumn("memory", width=120),
            "error": st.column_config.TextColumn("error", width="large", help="What the model or its server said"),
        },
    )
