"""Shared table helpers: mark the followed memory's row, and add a column for the pinned baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.analysis.ranks import RankComparison
from cems_workbench.analysis.supersession import stale_words
from cems_workbench.pipeline import Trace
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.baseline import COLUMN, delta_sign
from cems_workbench.ui.kit.tables import draw_table

if TYPE_CHECKING:
    import pandas as pd

FOLLOWED_TINT = "rgba(0, 114, 178, 0.16)"
"""Tint of the followed memory's row, which also has the sign ◆."""
OUT_OF_DATE = "out of date"
EXCERPT_CHARS = 160
"""Maximum characters of a memory's text in a cell."""


def mark_followed(frame: pd.DataFrame, memory_id: str | None) -> Any:
    """The frame with the followed memory's row marked; unchanged if it is not in the frame."""
    if memory_id is None or memory_id not in set(frame["memory"]):
        return frame
    shown = frame.copy()
    shown["memory"] = [f"◆ {value}" if value == memory_id else value for value in frame["memory"]]
    tint = [f"background-color: {FOLLOWED_TINT}" if value == memory_id else "" for value in frame["memory"]]
    return shown.style.apply(lambda column: tint, axis=0)


def follow_table(frame: pd.DataFrame, memory_id: str | None, *, key: str, **options: Any) -> None:
    """Draw a table of memories; the followed one is marked, and a selected row is followed. `options` as for `draw_table`."""

    def chosen() -> None:
        picked = st.session_state[key]["selection"]["rows"]
        if picked:
            state.follow(str(frame["memory"].iloc[picked[0]]))

    if OUT_OF_DATE in frame:
        help = "By which memory it is superseded, and where that one is; or when it expired"
        options["columns"] = {OUT_OF_DATE: st.column_config.TextColumn(OUT_OF_DATE, width=300, help=help)} | options[
            "columns"
        ]
    draw_table(mark_followed(frame, memory_id), key=key, on_select=chosen, selection_mode="single-row", **options)


def with_staleness(frame: pd.DataFrame, trace: Trace) -> pd.DataFrame:
    """The frame with a column that says by which memory each one is superseded, or that it has expired; unchanged if none is."""
    words = [] if frame.empty else [stale_words(trace, str(memory_id)) for memory_id in frame["memory"]]
    if any(words):
        frame.insert(list(frame.columns).index("memory") + 1, OUT_OF_DATE, words)
    return frame


def with_deltas(frame: pd.DataFrame, against: RankComparison | None, name: str, after: str) -> pd.DataFrame:
    """The frame with each memory's rank difference in the list or stage `name`, after column `after`; unchanged without a baseline."""
    if against is not None and not frame.empty:
        deltas = [delta_sign(against.delta(memory_id, name)) for memory_id in frame["memory"]]
        frame.insert(list(frame.columns).index(after) + 1, COLUMN, deltas)
    return frame
