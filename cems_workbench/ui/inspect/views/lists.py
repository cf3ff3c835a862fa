"""Lists and Threshold: all gathered lists with their scores, and the score cut on them before fusion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.analysis.graph_lists import GraphList
from cems_workbench.config import PipelineConfig, depth_notes
from cems_workbench.pipeline import Trace, list_sources
from cems_workbench.pipeline.stages.lists import LISTS, ListEntry, ListUse, inner_ranks, shown_only
from cems_workbench.pipeline.stages.threshold import THRESHOLD, ThresholdSearch
from cems_workbench.ui.inspect import tables
from cems_workbench.ui.inspect.context import RAW, InspectContext, about
from cems_workbench.ui.inspect.results import notes_html
from cems_workbench.ui.inspect.tables import follow_table, stale_columns
from cems_workbench.ui.kit.charts import HOVERTEXT, bar_chart, draw_chart, lines
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
INTEGER_SCORES = [source.name for source in list_sources.LIST_SOURCES if not source.relevance]
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
    lists = trace.config.lists
    on = [one for one in entries if one.active or stage.fields.inside(one) or shown_only(lists, one.source)]
    off = [one for one in entries if one not in on]
    if not entries:
        st.caption("No list has hits.")
    if on:
        with st.container(key="inspect:lists"):
            _draw_entries(context, on)
    if off:
        names = ", ".join(list_sources.list_label(entry.name) for entry in off)
        with st.expander(f"Lists switched off: {plain(names)}"), st.container(key="inspect:lists-off"):
            _draw_entries(context, off)


def _draw_entries(context: InspectContext, entries: Sequence[ListUse]) -> None:
    """Draw the lists side by side, each with its number of hits used."""
    trace = context.trace
    fields, notes, by_graph = trace.stage(LISTS).fields, trace.evidence.notes, tables.compared_with_graph(context)
    for column, entry in zip(st.columns(len(entries)), entries, strict=True):  # the stylesheet wraps them
        whose, meaning = (
            ("", "")
            if trace.external
            else (list_sources.answered_by(notes, entry.name), list_sources.score_meaning(notes, entry.name))
        )
        if shown_only(trace.config.lists, entry.source):
            use = f"{entry.gathered} hits · only shown"
        elif hybrid := fields.inside(entry):
            use = f"{entry.gathered} hits · inside {hybrid}"
        else:
            use = f"{entry.used} of {entry.gathered} hits{'' if entry.active else ' · off'}"
        use = " · ".join(filter(None, [use, plain(whose) if whose else ""]))
        help = about(entry.name) + (f"\n\n{plain(meaning)}" if meaning else "")
        with column:
            st.markdown(f"**{plain(list_sources.list_label(entry.name))}**  {use}", help=help)
            _draw_list(trace, entry.name, context.followed, by_graph.get(entry.name))
            tables.draw_graph_line(context, entry.name, by_graph)


def _draw_list(trace: Trace, name: str, followed: str | None, by_graph: GraphList | None) -> None:
    """Draw all hits of a gathered list with raw score (or date) and normalised score; cut hits have no normalised
    score. A vector list has the rank in the answer of Chroma's graph beside its own."""
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
    if by_graph is not None:
        columns.insert(1, Column("graph #", lambda row: by_graph.ranks.get(row[1]), 66, help=tables.GRAPH_HELP))
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
    scale = trace.config.lists.vector.scale
    made = f", made of {list_sources.VECTOR_SCALES[scale].formula}" if source == "vector" and scale != "cosine" else ""
    used = f"Score used by threshold and fusion{made}; empty: cut or off"
    columns += [
        Column("normalised", lambda row: row[2].normalized, 84, "%.4f", used),
        *stale_columns(trace, rows, memory_of),
        Column("content", lambda row: _text(trace, row[1], row[2].chunk), "medium"),
    ]
    follow_table(rows, columns, followed, memory=memory_of, height=330, key=f"inspect:list:{name}")


ListedHit = tuple[int, str, ListEntry]
"""Rank, memory id, and hit."""
memory_of: Callable[[ListedHit], str] = itemgetter(1)


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
    for line in (
        scale_line(trace.config, search.final),
        plain(list_sources.answered_lists(trace.evidence.notes, trace.stage(LISTS).fields.in_use)),
    ):
        if line:
            st.caption(line)
    _draw_cuts(trace)


def scale_line(config: PipelineConfig, threshold: float) -> str:
    """The scale of the vector scores and what the threshold is on that of the cosine; empty where they are cosines."""
    said = list_sources.as_cosine(config, threshold) if "vector" in config.threshold.applies_to else None
    if said is None:
        return ""
    formula = list_sources.VECTOR_SCALES[config.lists.vector.scale].formula
    return f"Vector scores are {formula}. {threshold:.4g} is, {said}."


def tried_figure(search: ThresholdSearch, scale: Callable[[float], str] = lambda value: "") -> Figure:
    """One bar per threshold in the order tried; the chosen one solid and labelled, the target a dashed line. `scale`
    says what a threshold is on the scale of the cosine, for the hover."""
    counted = list(zip(search.visited, search.counts, strict=True))
    figure = bar_chart(
        [f"{value:g}" for value in search.visited],
        search.counts,
        [f"{count} ◆ chosen" if value == search.final else str(count) for value, count in counted],
        {"title": "distinct memories, by threshold in the order tried", "rangemode": "tozero", "nticks": 5},
        marker={"color": [CHOSEN_COLOUR if value == search.final else TRIED_COLOUR for value in search.visited]},
        hovertext=[lines(f"threshold {value:g}: {count}", *filter(None, [scale(value)])) for value, count in counted],
        hovertemplate=HOVERTEXT,
    )
    if search.target is not None:
        target = {"color": LINE_COLOUR, "width": 2, "dash": "dash"}
        figure.add_vline(x=search.target, line=target, annotation_text=f"target {search.target}")
        figure.update_layout(margin={"t": 24})
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
    signs = {True: "✓ yes", False: "– not cut"}
    cut_in, applies = trace.config.threshold.applies_to, "Threshold → Applies to; other lists are not cut"
    columns: list[Column[Cut]] = [
        Column("list", lambda row: list_sources.list_label(row[0].name), 110, help=sources),
        Column("cut applies", lambda row: signs[row[0].source in cut_in], 120, help=applies),
        Column("hits", lambda row: len(row[1]) + len(row[2]), 64, help="Hits of the list within its depth"),
        Column("kept", lambda row: len(row[1]), 64, help="Hits at or above the threshold"),
        Column("cut", lambda row: len(row[2]), 64, help="Hits below the threshold"),
        Column("lowest kept", lambda row: min(row[1], default=None), 96, "%.4f", "Lowest normalised score kept"),
        Column("highest cut", lambda row: max(row[2], default=None), 96, "%.4f", "Highest normalised score cut"),
    ]
    draw_table(rows, columns, most=10, key="inspect:threshold_cuts")


VIEW = (View("Lists", 30, draw_lists, external=True), View("Threshold", 70, draw_threshold))
