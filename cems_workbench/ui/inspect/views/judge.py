"""Judge: scores of a second model for each result, their bands, and human grades; the ranking does not change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.analysis.ranks import RESULTS, RankComparison
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.replay import Result
from cems_workbench.pipeline.stages.judge import JUDGE
from cems_workbench.pipeline.stages.rerank import RERANK, model_key
from cems_workbench.records import MS_MARCO
from cems_workbench.ui.inspect import fetch_evidence
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.results import notes_html
from cems_workbench.ui.inspect.tables import OF_ROW, delta_columns, follow_table
from cems_workbench.ui.kit.charts import GREY, HOVERTEXT, LEGEND, draw_chart, layout
from cems_workbench.ui.kit.html import excerpt, plain, tick
from cems_workbench.ui.kit.tables import Column, short_id
from cems_workbench.ui.kit.views import View

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

DOTS = {True: ("relevant", "#0072B2", "circle"), False: ("not relevant", "#D55E00", "diamond-open")}
"""Name, colour and symbol of a result's dot, by whether the judge calls it relevant."""
LABEL_HEIGHT_PX = 14
"""Labels of neighbouring limits alternate between two lines."""


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
    fields, scored = stage.fields, sum(row.raw is not None for row in stage.rows)
    rest = f", {len(stage.rows) - scored} not judged" if scored < len(stage.rows) else ""
    above = f" (above {fields.scale.threshold:g})" if fields.scale is not None else ""
    who, relevant = fields.label or fields.model or "nobody", sum(bool(row.relevant) for row in stage.rows)
    st.caption(
        f"Judged by **{plain(who)}**: {relevant} of {scored} relevant{above}{rest}.",
        help="A model judges each result against the query without changing the ranking. Its logit is any number; higher is more relevant. "
        "It reads the same text as the reranker, unless Judge text is set: then both texts are in the table. Scale, relevance threshold "
        "and bands are the model's, unless they are set under Judge in the sidebar, which is instant.",
    )
    if stage.warnings:
        st.html(notes_html([f"⚠ {warning}" for warning in stage.warnings]))
    if scored:
        alt = "Dot chart: raw score of each result by rank, with the threshold and the band limits; the table below has the numbers."
        draw_chart(scores_figure(judged), key="inspect:judge_scores", alt=alt, table=None)
    columns = judge_columns(judged, context.grades, context.against)
    follow_table(judged.results, columns, context.followed, most=20, key="inspect:judge_table")


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


def judge_columns(trace: Trace, grades: Mapping[str, int], against: RankComparison | None) -> list[Column[Result]]:
    """The judge's score of each result and the human grade; columns for problems and differing texts only if there are any."""
    judgments = trace.stage(JUDGE).by_id
    signs = {True: "✓ yes", False: "✕ no", None: None}

    def judged(name: str) -> Callable[[Result], Any]:
        return lambda result: getattr(judgments[result.memory_id], name)

    def read(texts: Mapping[str, str]) -> Callable[[Result], str | None]:
        return lambda result: texts.get(result.memory_id)

    limit = "Raw score above the threshold: the judge’s default, or Judge threshold"
    columns: list[Column[Result]] = [
        Column("rank", lambda result: result.rank, 50, help="Rank in the results; the judge does not change it"),
        *delta_columns(against, RESULTS),
        Column("memory", OF_ROW, 92),
        Column("logit (raw)", judged("raw"), 86, "%.4f", "The judge’s score, on its own scale"),
        Column("sigmoid", judged("sigmoid"), 72, "%.4f", "1 / (1 + e^−raw): meaningful only for a logit"),
        Column("band", judged("band"), 112, help="By three limits: the judge’s defaults, or those under Judge bands"),
        Column("relevant", lambda result: signs[judgments[result.memory_id].relevant], 70, help=limit),
        Column("human grade", lambda result: grades.get(result.memory_id), 92, help="Empty: not graded"),
    ]
    if any(row.error is not None for row in judgments.values()):
        columns.append(Column("problem", judged("error"), 180, help="Why there is no score"))
    columns.append(Column("content", lambda result: excerpt(result.content), "large"))
    for name, texts in differing_texts(trace).items():
        columns.append(Column(name, read(texts), "large", help=f"Text given to the {name.removesuffix(' read')}"))
    return columns


def scores_figure(trace: Trace) -> Figure:
    """One dot per result by rank: filled if relevant, an open diamond if not; the limits of the bands are lines."""
    import plotly.graph_objects as go

    judgments = trace.stage(JUDGE).by_id
    judged = [(rank, judgments[result.memory_id]) for rank, result in enumerate(trace.results, 1)]
    judged = [(rank, row) for rank, row in judged if row.raw is not None]
    figure = go.Figure()
    for relevant, (name, colour, symbol) in DOTS.items():
        shown = [(rank, row) for rank, row in judged if row.relevant is relevant]
        texts = [f"{rank}  {tick(short_id(row.memory_id))}: {row.raw:.4f}, {row.band}" for rank, row in shown]
        figure.add_scatter(
            x=[row.raw for _, row in shown],
            y=[rank for rank, _ in shown],
            mode="markers",
            name=name,
            marker={"color": colour, "symbol": symbol, "size": 10, "line": {"width": 2, "color": colour}},
            hovertext=texts,
            hovertemplate=HOVERTEXT,
            showlegend=bool(shown),
        )
    scale = trace.stage(JUDGE).fields.scale or MS_MARCO
    limits = dict(zip(scale.bands, ("highly relevant", "relevant", "weak"), strict=True))
    limits[scale.threshold] = "threshold"
    raws = [row.raw for _, row in judged if row.raw is not None]
    room = max(0.5 * (max(raws) - min(raws)), 0.05)
    near = [value for value in sorted(limits) if min(raws) - room <= value <= max(raws) + room]
    for i, value in enumerate(near):
        width, dash = (2, "solid") if value == scale.threshold else (1, "dot")
        figure.add_vline(x=value, line={"color": GREY, "width": width, "dash": dash})
        place: Any = {"x": value, "y": 1, "yref": "paper", "yanchor": "bottom", "yshift": LABEL_HEIGHT_PX * (i % 2)}
        figure.add_annotation(text=f"{limits[value]} > {value:g}", showarrow=False, font={"size": 11}, **place)
    ranks = [rank for rank, _ in judged]
    figure.update_layout(
        layout(
            146 + 20 * len(judged),
            {"title": "raw score of the judge"},
            {"autorange": "reversed", "tickvals": ranks, "ticktext": [f"{rank}  " for rank in ranks], "showgrid": True},
            margin={"t": 74},
            showlegend=True,
            legend=LEGEND | {"y": 0.995, "yanchor": "top", "yref": "container"},
        )
    )
    return figure


VIEW = View("Judge", 100, draw)
