"""The judged queries of the store, the failing ones first, under the present config."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.grades import K, QueryStatus, query_statuses
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.labelled import evidence_of, judged_queries
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.tables import draw_table

SIGNS = {"missed": "✕ missed", "low": "◐ low", "found": "✓ found", "no answer": "– no answer"}
PICKER, TABLE = "inspect:picker", "inspect:picker_table"


def draw_picker(resources: Resources) -> None:
    """A popover with every judged query and how it fares; choosing a row searches it. While it is closed they are only counted."""
    count = resources.store.judgments.count_queries("human")
    if not count:
        return
    popover = st.popover(
        f"{count} judged queries", icon=":material/checklist:", key=PICKER, on_change="rerun",
        help="The queries of this store that have human judgments, the failing ones first.",
    )  # fmt: skip
    if popover.open:
        with popover:
            _draw_queries(resources)


def _draw_queries(resources: Resources) -> None:
    queries, grades = judged_queries(resources)
    config = state.present_config()
    try:
        evidences = evidence_of(queries, config, resources)
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return
    rows = query_statuses(queries, evidences, grades, config)
    counts = {name: sum(row.status == name for row in rows) for name in SIGNS}
    st.caption(
        " · ".join(f"{SIGNS[name]} {count}" for name, count in counts.items()),
        help=f"missed: nothing that helps within the first {K} results. low: something does, but the best judged memory is not "
        "the first judged one. Under the config as it is set now.",
    )
    text = st.column_config.TextColumn
    draw_table(
        [_row(row) for row in rows],
        height=420,
        width=660,
        key=TABLE,
        on_select=lambda: _search_selected(rows),
        selection_mode="single-row",
        columns={
            "": text("status", width=84, help="How the query fares under the config as it is set now"),
            "rank": st.column_config.NumberColumn("rank", width=46, help="Best rank of a memory that helps"),
            "query": text("query", width=300),
            "type": text("type", width=92, help="The kind of question it is"),
            "project": text("project", width=92, help="The project it is asked in"),
        },
    )


def _row(row: QueryStatus) -> dict[str, str | int | None]:
    query = row.query
    return {
        "": SIGNS[row.status],
        "rank": row.best_rank,
        "query": query.query,
        "type": query.type,
        "project": query.project,
    }


def _search_selected(rows: Sequence[QueryStatus]) -> None:
    """Search the query of the row that was clicked, and close the popover."""
    selected = st.session_state[TABLE]["selection"]["rows"]
    if selected:
        state.choose_query(rows[selected[0]].query)
        st.session_state[PICKER] = False
