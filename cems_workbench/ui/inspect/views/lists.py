"""Lists and Threshold: all gathered lists with their scores, and the score cut on them before fusion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.config import PipelineConfig, depth_notes
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.list_provenance import answered_by, answered_lists, score_meaning
from cems_workbench.pipeline.list_scores import VECTOR_SCALES, as_cosine
from cems_workbench.pipeline.list_sources import LIST_SOURCES, list_label
from cems_workbench.pipeline.stages.lists import LISTS, ListEntry, ListsFields, ListUse, inner_ranks, shown_only
from cems_workbench.pipeline.stages.threshold import THRESHOLD, ThresholdSearch
from cems_workbench.ui.inspect.context import RAW, InspectContext, about
from cems_workbench.ui.inspect.results import notes_html
from cems_workbench.ui.inspect.tables import follow_table, stale_columns
from cems_workbench.ui.kit.charts import HOVERTEXT, draw_chart, layout, lines
from cems_workbench.ui.kit.html import excerpt, plain
from cems_workbench.ui.kit.tables import Column, draw_table
from cems_workbench.ui.kit.views import View

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


HYBRID_RANKS = {
    "meaning #": "Rank of the chunk by meaning within the hybrid list; empty: beyond its depth",
    "words #": "Rank of the chunk by ts_rank within the hybrid list; empty: beyond its depth",
}
"""The ranks from which a hybrid list's scores are computed."""
INTEGER_SCORES = [source.name for source in LIST_SOURCES if not source.relevance]
"""Lists with integer raw scores: seconds, and counts."""
TIMESTAMP_LIST = "recency"
"""The list whose raw scores are timestamps in Unix seconds, shown as dates."""


def draw_lists(context: InspectContext) -> None:
    """Draw one table per list, and the warnings."""
    trace = context.trace
    stage = trace.stage(LISTS)
    if stage.warnings:
        st.html(notes_html([f"⚠ {warning}" for warning in stage.warnings]))
    for note in depth_notes(trace.config):
        st.caption(
            f"{note}.",
            help="The limit is set under Assembly, oversample under Rerank, the first-stage factor under Lists.",
        )
    entries = [entry for entry in stage.fields.lists if entry.gathered]
    if not entries:
        st.caption("No list has hits.")
        return
    off = [
        entry
        for entry in entries
        if not (entry.active or stage.fields.inside(entry) or shown_only(trace.config.lists, entry.source))
    ]
    on = [entry for entry in entries if entry not in off]
    if on:
        with st.container(key="inspect:lists"):
            _draw_entries(context, on)
    if off:
        names = ", ".join(list_label(entry.name) for entry in off)
        heading = f"{len(off)} list{'s' if len(off) != 1 else ''} switched off: {plain(names)}"
        with st.expander(heading), st.container(key="inspect:lists-off"):
            _draw_entries(context, off)


def _draw_entries(context: InspectContext, entries: Sequence[ListUse]) -> None:
    """Draw the lists side by side, each with its number of hits used."""
    trace = context.trace
    fields = trace.stage(LISTS).fields
    columns = st.columns(len(entries))  # the stylesheet wraps them
    for column, entry in zip(columns, entries, strict=True):
        with column:
            whose = "" if trace.external else answered_by(trace.evidence.notes, entry.name)
            shown = shown_only(trace.config.lists, entry.source)
            use = f"{entry.gathered} hits · only shown" if shown else use_text(fields, entry)
            use += f" · {plain(whose)}" if whose else ""
            st.markdown(f"**{plain(list_label(entry.name))}**  {use}", help=list_help(trace, entry.name))
            _draw_list(trace, entry.name, context.followed)


def list_help(trace: Trace, name: str) -> str:
    """What a list is, and what the scores of the engine that answered it mean."""
    meaning = "" if trace.external else score_meaning(trace.evidence.notes, name)
    return about(name) + (f"\n\n{plain(meaning)}" if meaning else "")


def use_text(fields: ListsFields, entry: ListUse) -> str:
    """The number of a list's hits used, or the hybrid list that it is part of."""
    hybrid = fields.inside(entry)
    if hybrid:
        return f"{entry.gathered} hits · inside {hybrid}"
    return f"{entry.used} of {entry.gathered} hits" + ("" if entry.active else " · off")


def _draw_list(trace: Trace, name: str, followed: str | None) -> None:
    """Draw all hits of a gathered list with raw score (or date) and normalised score; cut hits have no normalised score."""
    source = name.partition(":")[0]
    rows = sorted(
        ((hit.rank, row.memory_id, hit) for row in trace.stage(LISTS).rows for hit in row.lists if hit.list == name),
        key=lambda found: found[:2],
    )
    counts = {memory_id: len(chunks) for memory_id, chunks in trace.evidence.chunks.items()}
    inner = inner_ranks(trace.evidence, trace.config, name)

    def chunk(row: ListedHit) -> str:
        _, memory_id, hit = row
        return "" if hit.chunk is None else f"{hit.chunk + 1} of {counts.get(memory_id, hit.chunk + 1)}"

    def inner_rank(place: int, row: ListedHit) -> int | None:
        return inner.get((row[1], row[2].chunk), (None, None))[place]

    columns: list[Column[ListedHit]] = [Column("#", lambda row: row[0], 40), Column("memory", memory_of, 84)]
    columns += stale_columns(trace, rows, memory_of)
    if any(hit.chunk is not None for _, _, hit in rows):
        columns.append(Column("chunk", chunk, 62, help="Chunk by which it was found; empty: the whole memory"))
        if any(hit.chunk_rank for _, _, hit in rows):
            about = "Rank of that chunk among the chunks of the list; a memory takes its best chunk"
            columns.append(Column("chunk #", lambda row: row[2].chunk_rank, 66, help=about))
    if inner:
        columns += [
            Column(one, partial(inner_rank, i), 74, help=HYBRID_RANKS[one]) for i, one in enumerate(HYBRID_RANKS)
        ]
    if source == TIMESTAMP_LIST:
        columns.append(Column("created", lambda row: _day(row[2].raw), 92, help="Date of creation (UTC)"))
    else:
        form = "%.0f" if source in INTEGER_SCORES else "%.4f"
        columns.append(Column("raw", lambda row: row[2].raw, 84, form, RAW.get(source)))
    used = f"Score used by threshold and fusion{_scale_text(trace, source)}; empty: cut or off"
    columns += [
        Column("normalised", lambda row: row[2].normalized, 84, "%.4f", used),
        Column("content", lambda row: _text(trace, row[1], row[2].chunk), "medium"),
    ]
    follow_table(rows, columns, followed, memory=memory_of, height=330, key=f"inspect:list:{name}")


ListedHit = tuple[int, str, ListEntry]
"""Rank, memory id, and hit."""
memory_of: Callable[[ListedHit], str] = itemgetter(1)


def _scale_text(trace: Trace, source: str) -> str:
    """The scale of a vector list's scores, before they are normalised; empty for cosines and other lists."""
    scale = trace.config.lists.vector.scale
    return f", made of {VECTOR_SCALES[scale].formula}" if source == "vector" and scale != "cosine" else ""


def _day(raw: float | None) -> str | None:
    return None if raw is None else datetime.fromtimestamp(raw, UTC).date().isoformat()


def _text(trace: Trace, memory_id: str, seq: int | None) -> str:
    """First words of the matching chunk, or of the memory."""
    own = trace.evidence.chunks.get(memory_id, ())
    found = next((chunk.text for chunk in own if chunk.seq == seq), None)
    return excerpt(trace.evidence.memories[memory_id].content if found is None else found)


CHOSEN_COLOUR, TRIED_COLOUR = "#0072B2", "rgba(128,128,128,0.55)"
LINE_COLOUR = "#D55E00"


def draw_threshold(context: InspectContext) -> None:
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


VIEW = (View("Lists", 30, draw_lists, external=True), View("Threshold", 70, draw_threshold))
