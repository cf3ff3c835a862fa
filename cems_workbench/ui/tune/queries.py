"""Wins and losses per query, proposal against baseline; each opens in Inspect with both configs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.evaluation.evaluate import NO_TYPE
from cems_workbench.jobs.query_set_evidence import request_for
from cems_workbench.jobs.tuning import SearchResult
from cems_workbench.tuning.wins import QueryChange, Tally, tally, tally_by_type, wins_and_losses
from cems_workbench.ui.inspect.state import open_in_inspect
from cems_workbench.ui.kit.charts import GRID, HOVERTEXT, LIST_COLOURS, draw_chart
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import draw_table, pick_row

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
    _table(result, changes, measure)


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
        height=190,
        margin={"l": 8, "r": 8, "t": 6, "b": 6},
        bargap=0.15 if len(changes) < 120 else 0,
        showlegend=False,
        xaxis={"visible": False, "fixedrange": True, "range": [-1, max(len(changes), 12)]},
        yaxis={
            "title": {"text": f"Δ {measure}"},
            "fixedrange": True,
            "zerolinecolor": "rgba(128,128,128,0.6)",
            "gridcolor": GRID,
            "automargin": True,
            "tickformat": "+.2f",
        },
    )
    return chart


def _types(changes: Sequence[QueryChange]) -> None:
    kinds = tally_by_type(changes)
    if len(kinds) < 2:
        return
    rows = [
        {
            "type": kind or NO_TYPE,
            "queries": counts.won + counts.lost + counts.same,
            "difference": counts.difference,
            "won": counts.won,
            "lost": counts.lost,
            "falls": "▼" if counts.difference < 0 else "",
        }
        for kind, counts in kinds.items()
    ]
    draw_table(
        rows,
        key="tune:types",
        width="content",
        columns={
            "type": st.column_config.TextColumn("type", width=170),
            "queries": st.column_config.NumberColumn("queries", width=70),
            "difference": st.column_config.NumberColumn("difference", format="%+.3f", width=90),
            "won": st.column_config.NumberColumn("won", width=60),
            "lost": st.column_config.NumberColumn("lost", width=60),
            "falls": st.column_config.TextColumn(
                "regression", width=60, help="Whether the mean of this type is below the baseline’s"
            ),
        },
    )


def _table(result: SearchResult, changes: Sequence[QueryChange], measure: str) -> None:
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
    picked = pick_row(
        [_row(change, measure) for change in listed],
        key="tune:queries",
        most=12,
        placeholder="–",
        columns=_columns(measure),
    )
    if picked is not None:
        _offer(result, listed[picked])
    else:
        st.caption("Select a row to open the query in Inspect: the proposal on the sliders, the baseline pinned.")


def _row(change: QueryChange, measure: str) -> dict[str, Any]:
    return {
        "qid": change.qid,
        "type": change.type,
        "query": change.query,
        "baseline": change.baseline,
        measure: change.proposal,
        "difference": change.difference,
        "outcome": SIGNS[change.outcome],
    }


def _columns(measure: str) -> dict[str, Any]:
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    return {
        "qid": text("qid", width=70),
        "type": text("type", width=95),
        "query": text("query", width=330),
        "baseline": number("baseline", format="%.3f", width=70),
        measure: number("proposal", format="%.3f", width=75),
        "difference": number("difference", format="%+.3f", width=80),
        "outcome": text("outcome", width=68),
    }


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
