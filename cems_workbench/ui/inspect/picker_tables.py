"""Tables of the query picker: judged, recorded and traced queries, failing ones first. The picker imports them when it is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.grades import K, QueryStatus, query_statuses
from cems_workbench.jobs.evidence_memory import judged_queries
from cems_workbench.jobs.recorded_answers import failing_first, nearness, productions_of
from cems_workbench.jobs.traced_sets import is_external, traced_header
from cems_workbench.jobs.traces import traced_query
from cems_workbench.pipeline.explained import explained_config
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.bidi import neutralise
from cems_workbench.records import Query, RecordedAnswer
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.fetch_evidence import evidence_memory, evidence_of
from cems_workbench.ui.kit.session import kept
from cems_workbench.ui.kit.tables import Column, draw_table

Row = TypeVar("Row")
SET = "inspect:picker_set"
ALL_JUDGED = ""
"""Choice of the judged queries of all sets."""


def draw_queries(judged: int, recorded: Mapping[str, int], traced: Mapping[str, int], resources: Resources) -> None:
    """Draw the choice of a set, and its queries; given are the judged queries, and those of the recorded and the traced sets."""
    chosen = _chosen_set(judged, recorded, traced)
    if chosen in traced:
        draw_traced(chosen, resources)
    elif chosen == ALL_JUDGED:
        draw_judged(resources)
    else:
        draw_recorded(chosen, resources)


def _chosen_set(judged: int, recorded: Mapping[str, int], traced: Mapping[str, int]) -> str:
    names = [ALL_JUDGED] * bool(judged) + [*recorded, *traced]
    if not recorded and not traced:
        return ALL_JUDGED

    def named(name: str) -> str:
        kind, of = ("traced", traced) if name in traced else ("recorded", recorded)
        return f"{neutralise(name)} · {of.get(name, 0)} {kind}" if name else f"{judged} judged"

    help = "Judged: by people. Recorded: from a log of a live system. Traced: in another pipeline, with its stages or its explanation."
    return st.selectbox("Queries", names, key=SET, format_func=named, help=help)


SIGNS = {
    "missed": "✕ missed",
    "low": "◐ low",
    "found": "✓ found",
    "none known": "? none known",
    "no answer": "– no answer",
}
TABLE, TRACED = "inspect:picker_table", "inspect:picker_traced"
RECORDED, COMPARE, MATCHED = "inspect:picker_recorded", "inspect:picker_compare", "inspect:picker_found"


def draw_judged(resources: Resources) -> None:
    """Draw the judged queries with their outcome under the current config; missing evidence is gathered first."""
    queries, grades = judged_queries(resources)
    config = state.present_config()
    evidences = evidence_of(queries, config, resources)
    relevant_from = resources.store.query_sets.relevant_from_of([query.qid for query in queries])
    rows = query_statuses(queries, evidences, grades, config, relevant_from)
    counts = {name: sum(row.status == name for row in rows) for name in SIGNS}
    st.caption(
        " · ".join(f"{SIGNS[name]} {count}" for name, count in counts.items()),
        help=f"missed: no relevant memory within the first {K} results. low: one is, but the best judged memory is not "
        "the first judged one. none known: no judged memory is relevant. no answer: judged as not answered by the store. "
        "For the current config.",
    )
    _draw_queries(rows, JUDGED, TABLE, lambda row: state.choose_query(row.query))


JUDGED: list[Column[QueryStatus]] = [
    Column("status", lambda row: SIGNS[row.status], 84, help="Outcome of the query under the current config"),
    Column("rank", lambda row: row.best_rank, 46, help="Best rank of a relevant memory"),
    Column("query", lambda row: row.query.query, 300),
    Column("type", lambda row: row.query.type, 92, help="Query type"),
    Column("project", lambda row: row.query.project, 92, help="Project of the query"),
]


def _draw_queries(rows: Sequence[Row], columns: Sequence[Column[Row]], key: str, search: Callable[[Row], None]) -> None:
    """Draw one row per query; a click passes it on, and closes the popover."""

    def clicked(row: Row) -> None:
        search(row)
        st.session_state[state.PICKER] = False

    draw_table(rows, columns, height=420, width=660, key=key, on_pick=clicked)


def draw_recorded(name: str, resources: Resources) -> None:
    """Draw the recorded queries of a set; compared with the current config if their evidence is gathered."""
    answers = resources.store.recorded_answers.read(name)
    near = _similarity(answers, state.present_config(), resources)
    if near:
        answers = failing_first(answers, near)
    nothing = sum(not answer.returned for answer in answers)
    then = "largest differences from the current config" if near else "lowest scores"
    st.caption(f"Without a result: {nothing}, first; then the {then}.")
    rbo = "Rank-biased overlap with the results of the current config"
    similar = Column[RecordedAnswer]("RBO", lambda answer: near[answer.qid], 50, "%.2f", rbo)
    columns: list[Column[RecordedAnswer]] = [
        Column("results", lambda answer: len(answer.returned), 58, help="Number of memories returned"),
        Column("top score", lambda answer: answer.top_score, 72, "%.3f", "Highest recorded score"),
        *([similar] if near else []),
        Column("query", lambda answer: answer.query, 236),
        Column("asked", lambda answer: answer.asked_at, 120, "YYYY-MM-DD HH:mm", "UTC"),
        Column("project", lambda answer: answer.project, 80, help="Project of the query"),
    ]

    def open_recorded(answer: RecordedAnswer) -> None:
        """Search a recorded query, and open its recorded answer in the comparison tool."""
        state.choose_query(_query(answer))
        state.open_answer(answer.query or "", answer.returned)

    _draw_queries(answers, columns, RECORDED, open_recorded)


def draw_traced(name: str, resources: Resources) -> None:
    """Draw the traced or explained queries of a set."""
    queries = resources.store.query_sets.queries(name)
    fixed = is_external(traced_header(resources.store.path, name))
    st.caption(
        "Opens the recorded stages of a query; no setting changes them."
        if fixed
        else "Opens the recorded lists of a query, which replay under any setting."
    )
    columns: list[Column[Query]] = [
        Column("query", lambda query: query.query, 460),
        Column("asked", lambda query: query.as_of, 130, "YYYY-MM-DD HH:mm", "UTC"),
    ]

    def opened(query: Query) -> None:
        found = None if fixed else traced_query(resources.store, name, query.qid)
        if found is None:
            state.open_traced(state.TracedQuery(name, query.qid, query.query))
        else:
            state.open_evidence(found[0], explained_config(found[0]), resources.store)

    _draw_queries(queries, columns, TRACED, opened)


def _similarity(answers: Sequence[RecordedAnswer], config: PipelineConfig, resources: Resources) -> dict[str, float]:
    """Similarity of our results to the recorded answers, by qid; empty until their evidence is gathered. Raises as gathering does."""
    queries = [_query(answer) for answer in answers]
    place = st.empty()
    if not evidence_memory().has(queries, config, resources) and not place.button(
        "Compare with this config",
        key=COMPARE,
        icon=":material/compare_arrows:",
        help=f"Searches each of {len(queries)} queries once, and lists the largest differences first. Any other control stops it; "
        "finished searches are kept.",
    ):
        return {}
    place.empty()
    evidences = evidence_of(queries, config, resources)
    # Kept, since matching by text is slow.
    key = (tuple(answers), str(resources.store.path), resources.store.content_version)
    productions = kept(MATCHED, key, lambda: productions_of(answers, resources.store))
    return nearness(answers, productions, evidences, config)


def _query(answer: RecordedAnswer) -> Query:
    return Query(answer.qid, answer.query or "", answer.project, answer.asked_at)
