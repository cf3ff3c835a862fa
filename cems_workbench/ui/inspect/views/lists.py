"""Lists: all gathered lists, with raw and normalised scores."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.config import depth_notes
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.list_provenance import answered_by, score_meaning
from cems_workbench.pipeline.list_sources import LIST_SOURCES
from cems_workbench.pipeline.stages import LISTS
from cems_workbench.pipeline.stages.lists import ListsFields, ListUse, inner_ranks, shown_only
from cems_workbench.pipeline.vector_scales import VECTOR_SCALES
from cems_workbench.pipeline.wording import list_label
from cems_workbench.ui.inspect.catalogue import View
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.glossary import RAW, about
from cems_workbench.ui.inspect.strip import notes_html
from cems_workbench.ui.inspect.tables import follow_table, with_staleness
from cems_workbench.ui.kit.html import excerpt, plain

if TYPE_CHECKING:
    import pandas as pd

HYBRID_RANKS = {
    "meaning #": "Rank of the chunk by meaning within the hybrid list; empty: beyond its depth",
    "words #": "Rank of the chunk by ts_rank within the hybrid list; empty: beyond its depth",
}
"""The ranks from which a hybrid list's scores are computed."""
INTEGER_SCORES = [source.name for source in LIST_SOURCES if not source.relevance]
"""Lists with integer raw scores: seconds, and counts."""
TIMESTAMP_LIST = "recency"
"""The list whose raw scores are timestamps in Unix seconds, shown as dates."""


def draw(context: InspectContext) -> None:
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
            whose = "" if trace.external else answered_by(trace.evidence, entry.name)
            shown = shown_only(trace.config.lists, entry.source)
            use = f"{entry.gathered} hits · only shown" if shown else use_text(fields, entry)
            use += f" · {plain(whose)}" if whose else ""
            st.markdown(f"**{plain(list_label(entry.name))}**  {use}", help=list_help(trace, entry.name))
            _draw_list(trace, entry.name, context.followed)


def list_help(trace: Trace, name: str) -> str:
    """What a list is, and what the scores of the engine that answered it mean."""
    meaning = "" if trace.external else score_meaning(trace.evidence, name)
    return about(name) + (f"\n\n{plain(meaning)}" if meaning else "")


def use_text(fields: ListsFields, entry: ListUse) -> str:
    """The number of a list's hits used, or the hybrid list that it is part of."""
    hybrid = fields.inside(entry)
    if hybrid:
        return f"{entry.gathered} hits · inside {hybrid}"
    return f"{entry.used} of {entry.gathered} hits" + ("" if entry.active else " · off")


def _draw_list(trace: Trace, name: str, followed: str | None) -> None:
    number, source = st.column_config.NumberColumn, name.partition(":")[0]
    dated = st.column_config.TextColumn("created", width=92, help="Date of creation (UTC)")
    follow_table(
        with_staleness(list_table(trace, name), trace),
        followed,
        height=330,
        key=f"inspect:list:{name}",
        columns={
            "#": number("#", width=40),
            "memory": st.column_config.TextColumn("memory", width=84),
            "chunk": st.column_config.TextColumn(
                "chunk", width=62, help="Chunk by which it was found; empty: the whole memory"
            ),
            "chunk #": number(
                "chunk #",
                width=66,
                help="Rank of that chunk among the chunks of the list; a memory takes its best chunk",
            ),
            **{name: number(name, width=74, help=meaning) for name, meaning in HYBRID_RANKS.items()},
            "raw": dated
            if source == TIMESTAMP_LIST
            else number("raw", format="%.0f" if source in INTEGER_SCORES else "%.4f", width=84, help=RAW.get(source)),
            "normalised": number(
                "normalised",
                format="%.4f",
                width=84,
                help=f"Score used by threshold and fusion{_scale_text(trace, source)}; empty: cut or off",
            ),
            "content": st.column_config.TextColumn("content", width="medium"),
        },
    )


def _scale_text(trace: Trace, source: str) -> str:
    """The scale of a vector list's scores, before they are normalised; empty for cosines and other lists."""
    scale = trace.config.lists.vector.scale
    return f", made of {VECTOR_SCALES[scale].formula}" if source == "vector" and scale != "cosine" else ""


def list_table(trace: Trace, name: str) -> pd.DataFrame:
    """All hits of a gathered list with raw score (or date) and normalised score; cut hits have no normalised score."""
    import pandas as pd

    hits = [(hit.rank, row.memory_id, hit) for row in trace.stage(LISTS).rows for hit in row.lists if hit.list == name]
    hits.sort(key=lambda found: found[:2])
    frame = pd.DataFrame(
        [
            (rank, memory_id, _raw(name, hit.raw), hit.normalized, _text(trace, memory_id, hit.chunk))
            for rank, memory_id, hit in hits
        ],
        columns=["#", "memory", "raw", "normalised", "content"],
    )
    if any(hit.chunk is not None for _, _, hit in hits):
        counts = {memory_id: len(chunks) for memory_id, chunks in trace.evidence.chunks.items()}
        frame.insert(
            2,
            "chunk",
            [
                "" if hit.chunk is None else f"{hit.chunk + 1} of {counts.get(memory_id, hit.chunk + 1)}"
                for _, memory_id, hit in hits
            ],
        )
        ranks = [hit.chunk_rank for _, _, hit in hits]
        if any(ranks):
            frame.insert(3, "chunk #", pd.Series(ranks, dtype="Int64"))
    inner = inner_ranks(trace.evidence, trace.config, name)
    for i, column in enumerate(HYBRID_RANKS if inner else ()):
        found = [inner.get((memory_id, hit.chunk), (None, None))[i] for _, memory_id, hit in hits]
        frame.insert(list(frame.columns).index("raw"), column, pd.Series(found, dtype="Int64"))
    return frame


def _raw(name: str, raw: float | None) -> float | str | None:
    """A raw score for display; for the recency list, the date."""
    if raw is None or name.partition(":")[0] != TIMESTAMP_LIST:
        return raw
    return datetime.fromtimestamp(raw, UTC).date().isoformat()


def _text(trace: Trace, memory_id: str, seq: int | None) -> str:
    """First words of the matching chunk, or of the memory."""
    own = trace.evidence.chunks.get(memory_id, ())
    found = next((chunk.text for chunk in own if chunk.seq == seq), None)
    return excerpt(trace.evidence.memories[memory_id].content if found is None else found)


VIEW = View("Lists", 30, draw, external=True)
