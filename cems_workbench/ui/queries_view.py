"""Several queries at once: what each of them gave each of the first candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.query_shares import query_shares
from cems_workbench.ui.tables import short_id

if TYPE_CHECKING:
    import pandas as pd

TOP = 10
ROW = 30
HELP = (
    "A row per query, a column per candidate in the order of fusion. A cell is the sum of base and bonus over the query's lists; "
    "empty: this query did not find it. rrf and score_sum add the rows of a column up, score_max takes the largest term (◆); either "
    "is then multiplied by the boost, 1 + multi-list boost × (lists that hold it − 1)."
)


def draw_queries(trace: Trace) -> None:
    """The table, when more than one query was searched."""
    if len(trace.evidence.variants) < 2:
        return
    st.markdown(f"###### What each of the {len(trace.evidence.variants)} queries gave", help=HELP)
    frame = queries_table(trace)
    text = st.column_config.TextColumn
    candidates = {name: text(name, width=84) for name in frame.columns[2:]}
    st.dataframe(
        frame,
        hide_index=True,
        height=ROW * (len(frame) + 1) + 4,
        row_height=ROW,
        placeholder="",
        key="queries",
        column_config={
            "query": text("query", width=210, pinned=True, help="Its number is that in the names of its lists"),
            "found": st.column_config.NumberColumn("found", width=56, help="Candidates that its lists still hold after the threshold"),
            **candidates,
        },
    )  # fmt: skip


def queries_table(trace: Trace) -> pd.DataFrame:
    """A row per query and, below, what no query gave, the boost and the raw score; a column per candidate."""
    import pandas as pd

    every = query_shares(trace)
    shown = every[:TOP]
    names = [f"{rank}  {short_id(shares.memory_id)}" for rank, shares in enumerate(shown, 1)]
    rows = []
    for i, variant in enumerate(trace.evidence.variants):
        cells = [
            "" if i not in shares.by_variant
            else f"{'◆ ' if shares.decisive == i else ''}{shares.by_variant[i]:.4f}"
            for shares in shown
        ]  # fmt: skip
        found = sum(i in shares.by_variant for shares in every)
        rows.append([f"{i}  {' '.join(variant.text.split())}", found, *cells])
    if any(shares.other for shares in shown):
        rows.append(["other lists and bonuses", None, *(f"{shares.other:.4f}" for shares in shown)])
    if any(shares.boost != 1 for shares in shown):
        rows.append(["× boost", None, *(f"× {shares.boost:g}" for shares in shown)])
    rows.append(["= raw score", None, *(f"{shares.raw:.4f}" for shares in shown)])
    return pd.DataFrame(rows, columns=["query", "found", *names]).astype({"found": "Int64"})
