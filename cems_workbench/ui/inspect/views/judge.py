"""Judge: scores of a second model for each result, their bands, and human grades; the ranking does not change."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
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
from cems_workbench.ui.kit.charts import GREY, HOVERTEXT, LEGEND, draw_chart, layout, lines
from cems_workbench.ui.kit.html import excerpt, plain, tick
from cems_workbench.ui.kit.tables import Column, short_id
from cems_workbench.ui.kit.views import View

if TYPE_CHECKING:
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
    fields, scored = stage.fields, sum(row.raw is not None for row in stage.rows)
    rest = f", {len(stage.rows) - scored} not judged" if scored < len(stage.rows) else ""
    above = f" (above {fields.scale.threshold:g})" if fields.scale is not None else ""
    who, relevant = fields.label or fields.model or "nobody", sum(bool(row.relevant) for row in stage.rows)
    st.caption(
        f"Judged by **{plain(who)}**: {relevant} of {scored} relevant{above}{rest}.",
        help="A model judges each result against the query without changing the ranking. Its logit is any "
        "number; higher is more relevant. It reads the same text as the reranker, unless Judge text is set: then both texts are "
        "in the table. Scale, relevance threshold and bands (highly relevant, relevant, weak, irrelevant) "
        "are the model's, unless they are set under Judge in the sidebar, "
        "which is instant. Packaged: workbench/minilm-judge is bundled and is used if no other cross-encoder is available.",
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

    def judged(name: str, result: Result) -> Any:
        return getattr(judgments[result.memory_id], name)

    def relevant(result: Result) -> str | None:
        return {True: "✓ yes", False: "✕ no", None: None}[judgments[result.memory_id].relevant]

    columns: list[Column[Result]] = [
        Column("rank", lambda result: result.rank, 50, help="Rank in the results; the judge does not change it"),
        *delta_columns(against, RESULTS),
        Column("memory", OF_ROW, 92),
        Column("logit (raw)", partial(judged, "raw"), 86, "%.4f", "The judge’s score, on its own scale"),
        Column("sigmoid", partial(judged, "sigmoid"), 72, "%.4f", "1 / (1 + e^−raw): meaningful only for a logit"),
        Column(
            "band",
            partial(judged, "band"),
            112,
            help="By three limits: the judge’s defaults, or those under Judge bands",
        ),
        Column("relevant", relevant, 70, help="Raw score above the threshold: the judge’s default, or Judge threshold"),
        Column(
            "human grade",
            lambda result: grades.get(result.memory_id),
            92,
            help="0 not relevant, 1 related, 2 helps, 3 answers it; empty: not graded",
        ),
    ]
    if any(row.error is not None for row in judgments.values()):
        columns.append(Column("problem", partial(judged, "error"), 180, help="Why there is no score"))
    columns.append(Column("content", lambda result: excerpt(result.content), "large"))
    for name, texts in differing_texts(trace).items():
        help = f"Text given to the {name.removesuffix(' read')}"
        columns.append(Column(name, partial(_read, texts), "large", help=help))
    return columns


def _read(texts: Mapping[str, str], result: Result) -> str | None:
    return texts.get(result.memory_id)


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
            hovertext=[
                lines(f"{rank}  {tick(short_id(said.memory_id))}", f"raw {raw:.4f}, {said.band}")
                for rank, raw, said in shown
            ],
            hovertemplate=HOVERTEXT,
        )
    low, high = _draw_limits(figure, trace, [raw for _, raw, _ in judged])
    ranks = [rank for rank, _, _ in judged]
    figure.update_layout(
        layout(
            146 + 20 * len(judged),
            {"title": "raw score of the judge", "range": [low, high]},
            {"autorange": "reversed", "tickvals": ranks, "ticktext": [f"{rank}  " for rank in ranks], "showgrid": True},
            margin={"t": 74},
            showlegend=True,
            legend=LEGEND | {"y": 0.995, "yanchor": "top", "yref": "container"},
        )
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


VIEW = View("Judge", 100, draw)
