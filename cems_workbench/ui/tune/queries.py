"""Wins and losses per query, proposal against baseline; each opens in Inspect with both configs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.evaluation.evaluate import NO_TYPE
from cems_workbench.jobs.query_set_evidence import request_for
from cems_workbench.jobs.tuning import SearchResult
from cems_workbench.tuning.wins import QueryChange, Tally, tally, tally_by_type, wins_and_losses
from cems_workbench.ui.inspect.state import open_in_inspect
from cems_workbench.ui.kit.charts import HOVERTEXT, LIST_COLOURS, draw_chart, layout
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import Column, draw_table, pick_row

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SIGNS = {"won": "▲ won", "lost": "▼ lost", "same": "= same"}
COLOURS = {"won": LIST_COLOURS[4], "lost": LIST_COLOURS[3]}


def draw(result: SearchResult) -> None:
    """Draw the counts, a bar for each changed query, the types, and the table."""
    measure = str(result.planned.plan.goal.objectives[0])
    if not result.better:
        st.info("The baseline is proposed: no query changes.", icon=":material/drag_handle:")
        return
    changes = wins_and_losses(result.tuned, result.planned.score, result.planned.batch)
    whole = tally(changes)
    st.markdown(f"## {_tally_text(whole)}, {result.planned.measure} {whole.difference:+.3f}")
    st.caption("Tuning queries only; the hold-out stays sealed.")
    changed = [change for change in changes if change.outcome != "same"]
    if changed:
        draw_chart(
            figure(changed, measure),
            key="tune:wins",
            table=None,
            alt=f"Bar chart: difference in {measure} of each changed query, largest gain first; the table below has the numbers.",
        )
    _types(changes)
    _table(result, changes)


def _tally_text(counts: Tally) -> str:
    return f"▲ {counts.won} won · ▼ {counts.lost} lost · = {counts.same} same"


def figure(changes: Sequence[QueryChange], measure: str) -> Figure:
    """One bar per query, largest gain first."""
    import plotly.graph_objects as go

    chart = go.Figure()
    chart.add_bar(
        x=list(range(len(changes))),
        y=[change.difference for change in changes],
        marker={"color": [COLOURS[change.outcome] for change in changes]},
        hovertext=[f"{measure} {change.baseline:.3f} → {change.proposal:.3f}" for change in changes],
        hovertemplate=HOVERTEXT,
    )
    chart.update_layout(
        layout(
            190,
            {"visible": False, "range": [-1, max(len(changes), 12)]},
            {"title": f"Δ {measure}", "zeroline": True, "zerolinecolor": "rgba(128,128,128,0.6)", "tickformat": "+.2f"},
            bargap=0.15 if len(changes) < 120 else 0,
        )
    )
    return chart


def _types(changes: Sequence[QueryChange]) -> None:
    kinds = tally_by_type(changes)
    if len(kinds) > 1:
        draw_table(list(kinds.items()), TYPES, key="tune:types", width="content")


TYPES: list[Column[tuple[str | None, Tally]]] = [
    Column("type", lambda row: row[0] or NO_TYPE, 170),
    Column("queries", lambda row: row[1].won + row[1].lost + row[1].same, 70),
    Column("difference", lambda row: row[1].difference, 90, "%+.3f"),
    Column("won", lambda row: row[1].won, 60),
    Column("lost", lambda row: row[1].lost, 60),
    Column(
        "regression",
        lambda row: "▼" if row[1].difference < 0 else "",
        60,
        help="Whether the mean of this type is below the baseline’s",
    ),
]
COLUMNS: list[Column[QueryChange]] = [
    Column("qid", lambda change: change.qid, 70),
    Column("type", lambda change: change.type, 95),
    Column("query", lambda change: change.query, 330),
    Column("baseline", lambda change: change.baseline, 70, "%.3f"),
    Column("proposal", lambda change: change.proposal, 75, "%.3f"),
    Column("difference", lambda change: change.difference, 80, "%+.3f"),
    Column("outcome", lambda change: SIGNS[change.outcome], 68),
]


def _table(result: SearchResult, changes: Sequence[QueryChange]) -> None:
    wanted = st.pills(
        "Show",
        list(SIGNS.values()),
        selection_mode="multi",
        key="tune:outcomes",
        label_visibility="collapsed",
        persist_state="session",
    )
    listed = [change for change in changes if not wanted or SIGNS[change.outcome] in wanted]
    if not listed:
        st.caption("No query matches this filter.")
        return
    picked = pick_row(listed, COLUMNS, key="tune:queries", most=12, placeholder="–")
    if picked is not None:
        _offer(result, picked)
    else:
        st.caption("Select a row to open the query in Inspect: the proposal on the sliders, the baseline pinned.")


def _offer(result: SearchResult, change: QueryChange) -> None:
    base = result.planned.plan.space.baseline
    left, right = st.columns([4, 1], vertical_alignment="center")
    left.markdown(
        f"{plain(change.query)}  \n:small[the proposal on the sliders, {plain(base.name)} pinned as the baseline]"
    )
    if right.button("Open in Inspect", key="tune:inspect", icon=":material/search:", width="stretch"):
        query = next(query for query in result.planned.batch.queries if query.qid == change.qid)
        header = result.planned.data.evidence.header
        request = request_for(query, header.moment, header.only_project)
        open_in_inspect(request, result.tuned.config, (base.name, base))
