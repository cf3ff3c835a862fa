"""Threshold: the score cut on the lists before fusion; thresholds tried, their memories, and the hits left in each list."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.list_provenance import answered_lists
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.threshold import THRESHOLD, ThresholdSearch
from cems_workbench.pipeline.vector_scales import VECTOR_SCALES, as_cosine
from cems_workbench.pipeline.wording import list_label
from cems_workbench.ui.inspect.catalogue import View
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.glossary import about
from cems_workbench.ui.inspect.strip import notes_html
from cems_workbench.ui.kit.charts import HOVERTEXT, draw_chart, lines
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import draw_table

if TYPE_CHECKING:
    import pandas as pd
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
        st.caption(
            adaptive_line(search),
            help="Thresholds decrease from max by step to min. The search stops at the first with at least int(limit × target "
            "ratio) distinct memories over its lists; if none has that many, it takes the first with the most.",
        )
        draw_chart(
            tried_figure(search, lambda value: scale_line(trace.config, value)),
            key="inspect:threshold_tried",
            alt=_ALT,
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
    _draw_cuts(cuts_table(trace))
    answered = answered_lists(trace.evidence, trace.stage(LISTS).fields.in_use)
    if answered:
        st.caption(plain(answered))


_ALT = "Bar chart: distinct memories at each threshold tried, with the target and the chosen threshold."


def scale_line(config: PipelineConfig, threshold: float) -> str:
    """The scale of the vector scores and what the threshold is on that of the cosine; empty where they are cosines."""
    said = as_cosine(config, threshold) if "vector" in config.threshold.applies_to else None
    if said is None:
        return ""
    formula = VECTOR_SCALES[config.lists.vector.scale].formula
    return f"Vector scores are {formula}. {threshold:.4g} is, {said}."


def adaptive_line(search: ThresholdSearch) -> str:
    """The chosen threshold and the number of tries, in one line of Markdown."""
    target, tries = search.target, len(search.visited)
    wanted = "target: all memories, no result limit" if target is None else f"target {target}"
    return f"Chosen: **{search.final:g}** with {search.unique} distinct memories ({wanted}), after {tries} tried."


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
        side = "left" if len(visited) > 1 else "right"  # away from the chosen bar, which is the last and highest
        figure.add_annotation(
            text=f"target {target}",
            x=0 if side == "left" else 1,
            xref="paper",
            xanchor=side,
            y=target,
            yanchor="bottom",
            showarrow=False,
            font={"size": 12},
        )
    figure.update_layout(
        height=260,
        margin={"l": 8, "r": 12, "t": 12, "b": 44},
        bargap=0.35,
        showlegend=False,
        hovermode="closest",
        xaxis={
            "title": {"text": "threshold, in the order tried"},
            "tickvals": places,
            "fixedrange": True,
            "showgrid": False,
            "ticktext": [f"{value:g}" for value in visited],
            "range": [-0.6, max(len(visited), 6) - 0.4],
        },
        yaxis={
            "range": [0, top * 1.22],
            "nticks": 5,
            "fixedrange": True,
            "automargin": True,
            "zeroline": False,
            "gridcolor": "rgba(128,128,128,0.18)",
            "tickformat": ",d",
        },
    )
    return figure


def cuts_table(trace: Trace) -> pd.DataFrame:
    """One row per list: hits before and after the cut, the lowest score kept and the highest score cut."""
    import pandas as pd

    hits: dict[str, list[tuple[float, bool]]] = {}
    for row in trace.stage(THRESHOLD).rows:
        for entry in row.lists:
            hits.setdefault(entry.list, []).append((entry.normalized, entry.kept))
    rows = []
    for listed in trace.stage(LISTS).fields.lists:
        name = listed.name
        if name not in hits:
            continue
        kept = [score for score, stays in hits[name] if stays]
        cut = [score for score, stays in hits[name] if not stays]
        applies = listed.source in trace.config.threshold.applies_to
        rows.append(
            {
                "list": name,
                "cut applies": "✓ yes" if applies else "– not cut",
                "hits": len(kept) + len(cut),
                "kept": len(kept),
                "cut": len(cut),
                "lowest kept": min(kept, default=None),
                "highest cut": max(cut, default=None),
            }
        )
    columns = ["list", "cut applies", "hits", "kept", "cut", "lowest kept", "highest cut"]
    return pd.DataFrame(rows, columns=columns)


def _draw_cuts(frame: pd.DataFrame) -> None:
    if frame.empty:
        st.caption("No list has hits to cut.")
        return
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    sources = " ".join(dict.fromkeys(about(name) for name in frame["list"]))
    draw_table(
        frame.assign(list=frame["list"].map(list_label)),
        most=10,
        key="inspect:threshold_cuts",
        columns={
            "list": text("list", width=110, help=sources),
            "cut applies": text("cut applies", width=120, help="Threshold → Applies to; other lists are not cut"),
            "hits": number("hits", width=64, help="Hits of the list within its depth"),
            "kept": number("kept", width=64, help="Hits at or above the threshold"),
            "cut": number("cut", width=64, help="Hits below the threshold"),
            "lowest kept": number("lowest kept", format="%.4f", width=96, help="Lowest normalised score kept"),
            "highest cut": number("highest cut", format="%.4f", width=96, help="Highest normalised score cut"),
        },
    )


VIEW = View("Threshold", 70, draw)
