"""The judged queries of the store, the failing ones first, under the present config."""

from __future__ import annotations

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.grades import Grades, K, QueryStatus, agreed_grades, query_statuses
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Query
from cems_workbench.runs.evidence_memory import EvidenceMemory
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.progress import progress_in

SIGNS = {"missed": "✕ missed", "low": "◐ low", "found": "✓ found", "no answer": "– no answer"}


@st.cache_resource(show_spinner=False)
def evidence_memory() -> EvidenceMemory:
    """Evidence of judged queries, for every session of the app."""
    return EvidenceMemory()


def draw_picker(resources: Resources) -> None:
    """A popover with every judged query and how it fares; choosing a row searches it."""
    grades = human_grades(resources)
    queries = [query for query in resources.store.queries.read() if query.qid in grades]
    if not queries:
        return
    popover = st.popover(
        f"{len(queries)} judged queries", icon=":material/checklist:", key="picker", on_change="rerun",
        help="The queries of this store that have human judgments, the failing ones first.",
    )  # fmt: skip
    if not popover.open:
        return
    with popover:
        try:
            evidences = gathered(resources, queries, state.present_config())
        except WorkbenchError as error:
            st.error(str(error))
            return
        rows = query_statuses(queries, evidences, grades, state.present_config())
        counts = {name: sum(row.status == name for row in rows) for name in SIGNS}
        st.caption(
            " · ".join(f"{SIGNS[name]} {count}" for name, count in counts.items()),
            help=f"missed: nothing that helps within the first {K} results. low: something does, but the best judged memory is not "
            "the first judged one. Under the config as it is set now.",
        )
        st.dataframe(
            [_row(row) for row in rows],
            hide_index=True,
            height=420,
            width=660,
            row_height=30,
            placeholder="",
            key="picker_table",
            on_select=lambda: _search_selected(rows),
            selection_mode="single-row",
            column_config={
                "": st.column_config.TextColumn(
                    "status", width=84, help="How the query fares under the config as it is set now"
                ),
                "rank": st.column_config.NumberColumn("rank", width=46, help="Best rank of a memory that helps"),
                "query": st.column_config.TextColumn("query", width=300),
                "type": st.column_config.TextColumn("type", width=92, help="The kind of question it is"),
                "project": st.column_config.TextColumn("project", width=92, help="The project it is asked in"),
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


def _search_selected(rows: list[QueryStatus]) -> None:
    """Search the query of the row that was clicked, and close the popover."""
    selected = st.session_state["picker_table"]["selection"]["rows"]
    if selected:
        state.choose_query(rows[selected[0]].query)
        st.session_state["picker"] = False


def gathered(resources: Resources, queries: list[Query], config: PipelineConfig) -> list[Evidence]:
    """The evidence of every query, gathered once per content and gather parameters, with progress.

    Any interaction ends the gathering; what was gathered by then is kept.
    """
    memory = evidence_memory()
    if memory.has(queries, config, resources):
        return memory.get(queries, config, resources)
    place = st.empty()
    try:
        return memory.get(queries, config, resources, progress_in(place))
    finally:
        place.empty()


def human_grades(resources: Resources) -> Grades:
    """The grades that people agreed on, by qid and memory id."""
    return agreed_grades(resources.store.judgments.read(kind="human"))
