"""Threshold: the score cut on the lists before fusion; thresholds tried, their memories, and the hits left in each list."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.list_provenance import answered_lists
from cems_workbench.pipeline.list_scores import VECTOR_SCALES, as_cosine
from cems_workbench.pipeline.list_sources import list_label
from cems_workbench.pipeline.stages.lists import LISTS, ListUse
from cems_workbench.pipeline.stages.threshold import THRESHOLD, ThresholdSearch
from cems_workbench.ui.inspect.context import InspectContext, View, about
from cems_workbench.ui.inspect.results import notes_html
from cems_workbench.ui.kit.charts import HOVERTEXT, draw_chart, layout, lines
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import Column, draw_table

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

CHOSEN_COLOUR, TRIED_COLOUR = "#0072B2", "rgba(128,128,128,0.55)"
LINE_COLOUR = "#D55E00"


def draw(context: InspectContext) -> None:
    """Draw the thresholds tried, and all lists before and after the cut."""
    trace = context.trace
    stage = trace.stage(THRESHOLD)
    search = stage.fields.search
    if search is None:
        st.info(
            "No threshold is set: all hits pass. Choose fixed or adaptive in the sidebar under Threshold; adaptive "
            "lowers the threshold until enough memories are found."
        )
        return
    if stage.warnings:
        st.html(notes_html([f"⚠ {warning}" for warning in stage.warnings]))
    if stage.fields.mode == "adaptive":
        wanted = "target: all memories, no result limit" if search.target is None else f"target {search.target}"
        found = f"{search.unique} distinct memories ({wanted}), after {len(search.visited)} tried"
        st.caption(
            f"Chosen: **{search.final:g}** with {found}.",
            help="Thresholds decrease from max by step to min. The search stops at the first with at least int(limit × target "
            "ratio) distinct memories over its lists; if none has that many, it takes the first with the most.",
        )
        draw_chart(
            tried_figure(search, lambda value: scale_line(trace.config, value)),
            key="inspect:threshold_tried",
            alt="Bar chart: distinct memories at each threshold tried, with the target and the chosen threshold.",
            table=lambda: [
                {"threshold": value, "memories": count, "": "chosen" if value == search.final else ""}
                for value, count in zip(search.visited, search.counts, strict=True)
            ],
        )
    else:
        st.caption(
            f"Fixed threshold {search.final:g}: {search.unique} distinct memories reach it.",
            help="Hits with a lower normalised list score are cut before fusion. 0.0 cuts only negative scores.",
        )
    scale = scale_line(trace.config, search.final)
    if scale:
        st.caption(scale)
    _draw_cuts(trace)
    answered = answered_lists(trace.evidence.notes, trace.stage(LISTS).fields.in_use)
    if answered:
        st.caption(plain(answered))


def scale_line(config: PipelineConfig, threshold: float) -> str:
    """The scale of the vector scores and what the threshold is on that of the cosine; empty where they are cosines."""
    said = as_cosine(config, threshold) if "vector" in config.threshold.applies_to else None
    if said is None:
        return ""
    formula = VECTOR_SCALES[config.lists.vector.scale].formula
    return f"Vector scores are {formula}. {threshold:.4g} is, {said}."


def tried_figure(search: ThresholdSearch, scale: Callable[[float], str] = lambda value: "") -> Figure:
    """One bar per threshold in the order tried; the chosen one solid and labelled, the target a dashed line.

    `scale` says what a threshold is on the scale of the cosine, for the hover.
    """
    import plotly.graph_objects as go

    visited, counts, target = search.visited, search.counts, search.target
    chosen = [value == search.final for value in visited]
    places = list(range(len(visited)))
    figure = go.Figure()
    figure.add_bar(
        x=places,
        y=counts,
        cliponaxis=False,
        textposition="outside",
        constraintext="none",
        textangle=0,
        text=[f"{count} ◆ chosen" if is_it else str(count) for count, is_it in zip(counts, chosen, strict=True)],
        marker={"color": [CHOSEN_COLOUR if is_it else TRIED_COLOUR for is_it in chosen]},
        hovertext=[
            lines(f"threshold {value:g}: {count} distinct memories", *filter(None, [scale(value)]))
            for value, count in zip(visited, counts, strict=True)
        ],
        hovertemplate=HOVERTEXT,
    )
    top = max([*counts, target or 0, 1])
    if target is not None:
        figure.add_hline(y=target, line={"color": LINE_COLOUR, "width": 2, "dash": "dash"})
        # away from the chosen bar, which is the last and highest
        at = {"x": 0, "xanchor": "left"} if len(visited) > 1 else {"x": 1, "xanchor": "right"}
        at |= {"xref": "paper", "y": target, "yanchor": "bottom"}
        figure.add_annotation(text=f"target {target}", showarrow=False, font={"size": 12}, **at)
    x = {
        "title": "threshold, in the order tried",
        "tickvals": places,
        "ticktext": [f"{value:g}" for value in visited],
        "range": [-0.6, max(len(visited), 6) - 0.4],
        "showgrid": False,
    }
    figure.update_layout(layout(260, x, {"range": [0, top * 1.22], "nticks": 5, "tickformat": ",d"}, bargap=0.35))
    return figure


Cut = tuple[ListUse, list[float], list[float]]
"""A list, and its scores kept and cut."""


def _draw_cuts(trace: Trace) -> None:
    """Draw one row per list: hits before and after the cut, the lowest score kept and the highest score cut."""
    scores: dict[str, tuple[list[float], list[float]]] = {}
    for row in trace.stage(THRESHOLD).rows:
        for entry in row.lists:
            scores.setdefault(entry.list, ([], []))[0 if entry.kept else 1].append(entry.normalized)
    rows: list[Cut] = [(one, *scores[one.name]) for one in trace.stage(LISTS).fields.lists if one.name in scores]
    if not rows:
        st.caption("No list has hits to cut.")
        return
    sources = " ".join(dict.fromkeys(about(listed.name) for listed, _, _ in rows))
    cut_in = trace.config.threshold.applies_to
    columns: list[Column[Cut]] = [
        Column("list", lambda row: list_label(row[0].name), 110, help=sources),
        Column(
            "cut applies",
            lambda row: "✓ yes" if row[0].source in cut_in else "– not cut",
            120,
            help="Threshold → Applies to; other lists are not cut",
        ),
        Column("hits", lambda row: len(row[1]) + len(row[2]), 64, help="Hits of the list within its depth"),
        Column("kept", lambda row: len(row[1]), 64, help="Hits at or above the threshold"),
        Column("cut", lambda row: len(row[2]), 64, help="Hits below the threshold"),
        Column("lowest kept", lambda row: min(row[1], default=None), 96, "%.4f", "Lowest normalised score kept"),
        Column("highest cut", lambda row: max(row[2], default=None), 96, "%.4f", "Highest normalised score cut"),
    ]
    draw_table(rows, columns, most=10, key="inspect:threshold_cuts")


VIEW = View("Threshold", 70, draw)
