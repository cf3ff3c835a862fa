"""One memory followed through every stage."""

from __future__ import annotations

from html import escape

import streamlit as st

from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.stages import FUSION, STAGES
from cems_workbench.ui.inspect import state


def choose(trace: Trace) -> str | None:
    """Let the user choose a memory to follow; None when none is, or when it is no candidate of this query."""
    ranked = [row.memory_id for row in trace.stage(FUSION).rows]
    rest = [memory_id for memory_id in sorted(trace.evidence.memories) if memory_id not in set(ranked)]
    options = [*ranked, *rest]
    if state.followed() not in options:
        state.follow(None)
    chosen: str | None = st.selectbox(
        "Follow a memory",
        options,
        index=None,
        key=state.FOLLOW,
        placeholder="Follow a memory through every stage",
        label_visibility="collapsed",
        format_func=lambda memory_id: f"{memory_id}  {excerpt(trace, memory_id)}",
    )
    return chosen


def excerpt(trace: Trace, memory_id: str, length: int = 90) -> str:
    """The beginning of a memory's text on one line."""
    text = " ".join(trace.evidence.memories[memory_id].content.split())
    return text if len(text) <= length else text[: length - 1] + "…"


def path_html(trace: Trace, memory_id: str) -> str:
    """A memory's way through the stages: rank and score in and out, whether it was kept, and what was done to it."""
    rows = []
    for stage in STAGES:
        row = trace.stage(stage).by_id.get(memory_id)
        if row is None:
            continue
        fate = "kept" if row.kept else "dropped"
        ranks = f"{_rank(row.rank_in)} → {_rank(row.rank_out)}" if row.rank_in or row.rank_out else "–"
        scores = f"{_score(row.score_in)} → {_score(row.score)}"
        classes = "" if row.kept else ' class="wb-lost"'
        rows.append(
            f'<tr{classes} title="{escape(stage.description)}">'
            f"<th>{escape(stage.name)}</th><td>{ranks}</td><td>{scores}</td><td>{fate}</td>"
            f"<td>{escape(row.reason or stage.detail(row, trace.config))}</td></tr>"
        )
    head = "<tr><th>stage</th><td>rank</td><td>score</td><td></td><td>what was done</td></tr>"
    return (
        f'<div class="wb-path"><div><span class="wb-mark">◆</span> <code>{escape(memory_id)}</code> '
        f"{escape(excerpt(trace, memory_id, 140))}</div><table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _rank(rank: int | None) -> str:
    return "–" if rank is None else str(rank)


def _score(score: float | None) -> str:
    return "–" if score is None else f"{score:.4f}"
