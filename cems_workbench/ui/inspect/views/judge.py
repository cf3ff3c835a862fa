"""Judge: scores of a second model for each result, their bands, and human grades; the ranking does not change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.analysis.ranks import RESULTS, RankComparison
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.stages.judge import JUDGE, JudgeRow
from cems_workbench.pipeline.stages.rerank import RERANK, model_key
from cems_workbench.records import MS_MARCO
from cems_workbench.ui.inspect import fetch_evidence
from cems_workbench.ui.inspect.baseline import COLUMN, HELP
from cems_workbench.ui.inspect.catalogue import View
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.strip import notes_html
from cems_workbench.ui.inspect.tables import follow_table, with_deltas
from cems_workbench.ui.kit.charts import GREY, HOVERTEXT, draw_chart, lines
from cems_workbench.ui.kit.html import excerpt, plain, tick
from cems_workbench.ui.kit.tables import short_id

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

RELEVANT_COLOUR, NOT_RELEVANT_COLOUR = "#0072B2", "#D55E00"
LABEL_HEIGHT_PX = 14
"""Height of a label in pixels; labels of neighbouring limits alternate between two lines, off-axis limits are above them."""
MAX_RELATIVE_DISTANCE = 1.0
"""A limit further from the scores than this share of their range is labelled at the edge instead of drawn to scale."""


def draw(context: InspectContext) -> None:
    """Draw the judgments of the current results, requested when the view is opened; the ranking does not change."""
    trace = context.trace
    if JUDGE.is_off(trace.config):
        st.info("The judge is off. Choose one in the sidebar under Judge; auto uses the best one available.")
        return
    if not trace.results:
        st.caption("There are no results to judge.")
        return
    judged = fetch_evidence.judged_trace(trace, context.request, context.resources)
    stage = judged.stage(JUDGE)
    frame = judge_table(judged, context.grades, context.against)
    st.caption(
        _summary(judged, frame),
        help="A model judges each result against the query without changing the ranking. Its logit is any "
        "number; higher is more relevant. It reads the same text as the reranker, unless Judge text is set: then both texts are "
        "in the table. Scale, relevance threshold and bands (highly relevant, relevant, weak, irrelevant) "
        "are the model's, unless they are set under Judge in the sidebar, "
        "which is instant. Packaged: workbench/minilm-judge is bundled and is used if no other cross-encoder is available.",
    )
    if stage.warnings:
        st.html(notes_html([f"⚠ {warning}" for warning in stage.warnings]))
    if frame["logit (raw)"].notna().any():
        draw_chart(scores_figure(judged), key="inspect:judge_scores", alt=_ALT, table=None)
    _draw_table(frame, context.followed)


_ALT = "Dot chart: raw score of each result by rank, with the threshold and the band limits; the table below has the numbers."


def _summary(trace: Trace, frame: pd.DataFrame) -> str:
    scored = int(frame["logit (raw)"].notna().sum())
    relevant = int((frame["relevant"] == "✓ yes").sum())
    fields = trace.stage(JUDGE).fields
    label = fields.label or fields.model or "nobody"
    failed = len(frame) - scored
    rest = f", {failed} not judged" if failed else ""
    above = f" (above {fields.scale.threshold:g})" if fields.scale is not None else ""
    return f"Judged by **{plain(label)}**: {relevant} of {scored} relevant{above}{rest}."


def judge_table(trace: Trace, grades: Mapping[str, int], against: RankComparison | None = None) -> pd.DataFrame:
    """One row per result: rank, memory, the judge's score, and the human grade; a column for problems only if there are any.

    With `against`, the pinned baseline, ranks include their differences.
    """
    import pandas as pd

    judgments = trace.stage(JUDGE).by_id
    rows = []
    for rank, result in enumerate(trace.results, 1):
        judgment = judgments[result.memory_id]
        rows.append(
            {
                "rank": rank,
                "memory": result.memory_id,
                "logit (raw)": judgment.raw,
                "sigmoid": judgment.sigmoid,
                "band": judgment.band,
                "relevant": None if judgment.relevant is None else "✓ yes" if judgment.relevant else "✕ no",
                "human grade": grades.get(result.memory_id),
                "problem": judgment.error,
                "content": excerpt(result.content),
            }
        )
    frame = pd.DataFrame(rows).astype({"human grade": "Int64", "logit (raw)": "Float64", "sigmoid": "Float64"})
    frame = with_deltas(frame, against, RESULTS, "rank")
    for name, texts in differing_texts(trace).items():
        frame[name] = [texts.get(result.memory_id) for result in trace.results]
    return frame if frame["problem"].notna().any() else frame.drop(columns="problem")


def differing_texts(trace: Trace) -> dict[str, dict[str, str]]:
    """The texts read by judge and reranker, by column and memory id; empty if they are the same for all results."""
    model = trace.stage(JUDGE).fields.model
    if RERANK.is_off(trace.config) or model is None:
        return {}
    shown = {result.memory_id for result in trace.results}
    judged, reranked = (
        {key: score.chunk for key, score in scores.items() if key in shown and score.chunk is not None}
        for scores in (
            trace.evidence.judge_scores.get(model, {}),
            trace.evidence.model_scores.get(model_key(trace.config.rerank), {}),
        )
    )
    same = all(judged[key] == reranked[key] for key in judged.keys() & reranked.keys())
    return {} if same else {"judge read": judged, "reranker read": reranked}


def _draw_table(frame: pd.DataFrame, followed: str | None) -> None:
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    follow_table(
        frame,
        followed,
        most=20,
        key="inspect:judge_table",
        columns={
            "rank": number("rank", width=50, help="Rank in the results; the judge does not change it"),
            COLUMN: text(COLUMN, width=96, help=HELP),
            "memory": text("memory", width=92),
            "logit (raw)": number("logit (raw)", format="%.4f", width=86, help="The judge’s score, on its own scale"),
            "sigmoid": number("sigmoid", format="%.4f", width=72, help="1 / (1 + e^−raw): meaningful only for a logit"),
            "band": text("band", width=112, help="By three limits: the judge’s defaults, or those under Judge bands"),
            "relevant": text(
                "relevant", width=70, help="Raw score above the threshold: the judge’s default, or Judge threshold"
            ),
            "human grade": number(
                "human grade", width=92, help="0 not relevant, 1 related, 2 helps, 3 answers it; empty: not graded"
            ),
            "problem": text("problem", width=180, help="Why there is no score"),
            "judge read": text("judge read", width="large", help="Text given to the judge"),
            "reranker read": text("reranker read", width="large", help="Text given to the reranker"),
            "content": text("content", width="large"),
        },
    )


def scores_figure(trace: Trace) -> Figure:
    """One dot per result by rank: filled if relevant, an open diamond if not; limits are lines."""
    import plotly.graph_objects as go

    judgments = trace.stage(JUDGE).by_id
    judged = [
        (rank, said.raw, said)
        for rank, result in enumerate(trace.results, 1)
        if (said := judgments[result.memory_id]).raw is not None
    ]
    figure = go.Figure()
    for relevant, name, colour, symbol in (
        (True, "relevant", RELEVANT_COLOUR, "circle"),
        (False, "not relevant", NOT_RELEVANT_COLOUR, "diamond-open"),
    ):
        shown = [result for result in judged if result[2].relevant is relevant]
        if not shown:
            continue
        figure.add_scatter(
            x=[raw for _, raw, _ in shown],
            y=[rank for rank, _, _ in shown],
            mode="markers",
            name=name,
            marker={"color": colour, "symbol": symbol, "size": 10, "line": {"width": 2, "color": colour}},
            hovertext=[_hover(*result) for result in shown],
            hovertemplate=HOVERTEXT,
        )
    low, high = _draw_limits(figure, trace, [raw for _, raw, _ in judged])
    ranks = [rank for rank, _, _ in judged]
    figure.update_layout(
        height=146 + 20 * len(judged),
        margin={"l": 8, "r": 16, "t": 74, "b": 40},
        hovermode="closest",
        showlegend=True,
        legend={"orientation": "h", "y": 0.995, "yanchor": "top", "yref": "container", "x": 0, "font": {"size": 12}},
        xaxis={
            "title": {"text": "raw score of the judge"},
            "range": [low, high],
            "zeroline": False,
            "fixedrange": True,
        },
        yaxis={
            "autorange": "reversed",
            "tickvals": ranks,
            "ticktext": [f"{rank}  " for rank in ranks],
            "showgrid": True,
            "gridcolor": "rgba(128,128,128,0.14)",
            "zeroline": False,
            "fixedrange": True,
            "automargin": True,
        },
    )
    return figure


def _draw_limits(figure: Figure, trace: Trace, scores: list[float]) -> tuple[float, float]:
    """Draw limits near the scores to scale, and label others at the edge; return the axis range."""
    scale = trace.stage(JUDGE).fields.scale or MS_MARCO
    threshold, bands = scale.threshold, scale.bands
    names = ("highly relevant", "relevant", "weak")
    limits = [(threshold, "threshold", True)]
    limits += [(low, name, False) for low, name in zip(bands, names, strict=True) if low != threshold]
    least, most = min(scores), max(scores)
    span = max(most - least, 0.05 * max(abs(least), abs(most)), 1e-6)
    near = [
        limit
        for limit in limits
        if least - MAX_RELATIVE_DISTANCE * span <= limit[0] <= most + MAX_RELATIVE_DISTANCE * span
    ]
    low = min([least, *(value for value, *_ in near)]) - 0.08 * span
    high = max([most, *(value for value, *_ in near)]) + 0.08 * span
    for i, (value, name, solid) in enumerate(sorted(near)):
        figure.add_vline(x=value, line={"color": GREY, "width": 2 if solid else 1, "dash": "solid" if solid else "dot"})
        figure.add_annotation(_note(f"{name} > {value:g}", x=value, xanchor="center", yshift=LABEL_HEIGHT_PX * (i % 2)))
    for sign, x, side in (("◀", 0, "left"), ("▶", 1, "right")):
        beyond = [(value, name) for value, name, _ in limits if (value < low if side == "left" else value > high)]
        if beyond:
            text = ", ".join(f"{name} {value:g}" for value, name in beyond)
            shown = f"{sign} {text}" if side == "left" else f"{text} {sign}"
            figure.add_annotation(
                _note(shown, x=x, xanchor=side, xref="paper", yshift=2 * LABEL_HEIGHT_PX if near else 0)
            )
    return low, high


def _note(text: str, **place: Any) -> dict[str, Any]:
    return {
        "text": text,
        "yref": "paper",
        "y": 1.0,
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": 11},
        **place,
    }


def _hover(rank: int, raw: float, said: JudgeRow) -> str:
    return lines(f"{rank}  {tick(short_id(said.memory_id))}", f"raw {raw:.4f}, {said.band}")


VIEW = View("Judge", 100, draw)
