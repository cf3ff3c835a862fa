"""One memory followed through every stage."""

from __future__ import annotations

from html import escape
from typing import Any

import streamlit as st

from cems_workbench.pipeline import Trace
from cems_workbench.ui.inspect.glossary import about


def choose(trace: Trace) -> str | None:
    """Let the user choose a memory to follow; None when none is, or when it is no candidate of this query."""
    ranked = [row["memory_id"] for row in trace.stage("fusion").rows]
    rest = [memory_id for memory_id in sorted(trace.evidence.memories) if memory_id not in set(ranked)]
    options = [*ranked, *rest]
    if st.session_state["follow"] not in options:
        st.session_state["follow"] = None
    chosen: str | None = st.selectbox(
        "Follow a memory",
        options,
        index=None,
        key="follow",
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
    rows, blended = [], trace.config.rerank.combine == "position_bands"
    for stage, row in trace.path(memory_id):
        fate = "kept" if row["kept"] else "dropped"
        ranks = f"{_rank(row['rank_in'])} → {_rank(row['rank_out'])}" if row["rank_in"] or row["rank_out"] else "–"
        scores = f"{_score(row['score_in'])} → {_score(row['score'])}"
        classes = "" if row["kept"] else ' class="wb-lost"'
        rows.append(
            f'<tr{classes} title="{escape(about(stage))}">'
            f"<th>{escape(stage)}</th><td>{ranks}</td><td>{scores}</td><td>{fate}</td>"
            f"<td>{escape(row['reason'] or _detail(stage, row, blended))}</td></tr>"
        )
    head = "<tr><th>stage</th><td>rank</td><td>score</td><td></td><td>what was done</td></tr>"
    return (
        f'<div class="wb-path"><div><span class="wb-mark">◆</span> <code>{escape(memory_id)}</code> '
        f"{escape(excerpt(trace, memory_id, 140))}</div><table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _detail(stage: str, row: dict[str, Any], blended: bool) -> str:
    if stage in ("lists", "threshold"):
        used = [entry for entry in row.get("lists", ()) if entry["kept"]]
        return ", ".join(f"{entry['list']} {entry['normalized']:.4f}" for entry in used)
    if stage == "fusion":
        parts = [
            f"{e['list']} #{e['rank']}: {e['base']:.4f}" + (f" + {e['bonus']:g}" if e["bonus"] else "")
            for e in row["contributions"]
        ]
        return f"raw {row['raw']:.4f} = " + "; ".join(parts) if parts else ""
    if stage == "rerank" and row.get("unit") is not None:
        share = f", retrieval share {row['retrieval_weight']:g}" if blended else ""
        return "failed" if row["raw"] is None else f"raw {row['raw']:.4f}, unit {row['unit']:.4f}{share}"
    if stage == "adjust":
        return " × ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in row["factors"].items())
    if stage == "assembly":
        return f"{row['tokens']} tokens"
    return ""


def _rank(rank: int | None) -> str:
    return "–" if rank is None else str(rank)


def _score(score: float | None) -> str:
    return "–" if score is None else f"{score:.4f}"
