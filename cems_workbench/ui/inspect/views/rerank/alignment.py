"""Token by token: late-interaction alignment of one candidate, and of a second for comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import streamlit as st

from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.evidence import ModelScore
from cems_workbench.pipeline.stages.rerank import RERANK, RerankRow, model_key
from cems_workbench.ui.inspect.alignment import alignment, alignment_html, token_matches
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.html import excerpt, plain
from cems_workbench.ui.kit.tables import short_id

HELP = (
    "Late interaction compares token by token: each query token is matched with the most similar token of the text "
    "(highest cosine). Rare tokens count more (idf). score = sum of idf × cosine / sum of idf."
)


def draw_alignment(context: InspectContext) -> None:
    """Draw the tokens of one candidate, and of a second one; without late interaction, why there are none."""
    trace = context.trace
    st.markdown("## Token by token", help=HELP)
    key = model_key(trace.config.rerank)
    scores = trace.evidence.model_scores.get(key, {})
    ranked = sorted(
        (row for row in trace.stage(RERANK).rows if alignment(scores.get(row.memory_id))),
        key=lambda row: row.rank_out or math.inf,
    )
    if not ranked:
        label = trace.evidence.notes.get("rerankers", {}).get(key) or key
        st.caption(
            f"{plain(str(label))} has no token alignment. Only late interaction has one: choose it under Rerank → "
            "Backend in the sidebar."
        )
        return
    named = {row.memory_id: _named(trace, row) for row in ranked}
    first, second = defaults(list(named), context.followed)
    for place, column, memory_id in zip(("first", "second"), st.columns(2, gap="medium"), (first, second), strict=True):
        with column:
            _draw_candidate(place, named, memory_id, scores)


def defaults(ranked: Sequence[str], followed: str | None) -> tuple[str, str | None]:
    """The initial candidates: the followed one and the best, or the best two."""
    if followed in ranked and followed != ranked[0]:
        return ranked[0], followed
    return ranked[0], ranked[1] if len(ranked) > 1 else None


def _named(trace: Trace, row: RerankRow) -> str:
    memory_id = row.memory_id
    rank = row.rank_out or "✕"
    return f"{rank}  {short_id(memory_id)}  {excerpt(trace.evidence.memories[memory_id].content, 90)}"


def _draw_candidate(
    place: str, named: Mapping[str, str], default: str | None, scores: Mapping[str, ModelScore]
) -> None:
    options = list(named)
    chosen = st.selectbox(
        f"{place} candidate",
        options,
        None if default is None else options.index(default),
        format_func=named.__getitem__,
        key=f"inspect:alignment:{place}:{default}",
        label_visibility="collapsed",
        placeholder="Compare with another candidate",
    )
    if chosen is None:
        return
    score = scores[chosen]
    st.html(alignment_html(token_matches(alignment(score)), score.raw))
