"""Tables of the query picker: judged, recorded and traced queries. The picker imports them when it is opened.

Query picker: judged queries and recorded queries of a log, failing ones first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from cems_workbench.analysis.fidelity.answer import Production
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.grades import K, QueryStatus, query_statuses
from cems_workbench.formats.recorded_answers import Recording
from cems_workbench.jobs.evidence_memory import judged_queries
from cems_workbench.jobs.fidelity import STORED_FORM, failing_first, nearness, productions_of
from cems_workbench.jobs.traced_sets import traced_sets
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.bidi import neutralise
from cems_workbench.records import Query, RecordedAnswer
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.labelled import evidence_memory, evidence_of
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import draw_table

SET = "inspect:picker_set"
ALL_JUDGED = ""
"""Choice of the judged queries of all sets."""


def draw_picker(resources: Resources) -> None:
    """Draw a popover with all judged and recorded queries; selecting a row searches it. While closed, they are only counted."""
    judged = resources.store.judgments.count_queries("human")
    traced = traced_sets(resources.store)
    recorded = {name: count for name, count in resources.store.recorded_answers.sets().items() if name not in traced}
    if not judged and not recorded and not traced:
        return
    counted = [
        f"{count} {kind}"
        for kind, count in (("judged", judged), ("recorded", sum(recorded.values())), ("traced", sum(traced.values())))
        if count
    ]
    popover = st.popover(
        f"{' · '.join(counted)} queries",
        icon=":material/checklist:",
        key=state.PICKER,
        type="tertiary",
        on_change="rerun",
        help="Queries of this store that people judged, that a live system received, or that were traced in another pipeline.",
    )
    if popover.open:
        from cems_workbench.ui.inspect import picker_tables

        with popover:
            chosen = _chosen_set(judged, recorded, traced)
            if chosen in traced:
                picker_tables.draw_traced(chosen, resources)
            elif chosen == ALL_JUDGED:
                picker_tables.draw_judged(resources)
            else:
                picker_tables.draw_recorded(chosen, resources)


def _chosen_set(judged: int, recorded: Mapping[str, int], traced: Mapping[str, int]) -> str:
    """Draw the choice of the set whose queries are listed."""
    names = [ALL_JUDGED] * bool(judged) + [*recorded, *traced]
    if not recorded and not traced:
        return ALL_JUDGED
    return st.selectbox(
        "Queries",
        names,
        key=SET,
        format_func=lambda name: (
            f"{judged} judged"
            if not name
            else f"{neutralise(name)} · {traced[name]} traced"
            if name in traced
            else f"{neutralise(name)} · {recorded.get(name, 0)} recorded"
        ),
        help="Judged: by people. Recorded: from a log of a live system’s queries and answers. Traced: in another pipeline, with "
        "its stages.",
    )


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
    try:
        evidences = evidence_of(queries, config, resources)
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return
    relevant_from = resources.store.query_sets.relevant_from_of([query.qid for query in queries])
    rows = query_statuses(queries, evidences, grades, config, relevant_from)
    counts = {name: sum(row.status == name for row in rows) for name in SIGNS}
    st.caption(
        " · ".join(f"{SIGNS[name]} {count}" for name, count in counts.items()),
        help=f"missed: no relevant memory within the first {K} results. low: one is, but the best judged memory is not "
        "the first judged one. none known: no judged memory is relevant. no answer: judged as not answered by the store. "
        "For the current config.",
    )
    text = st.column_config.TextColumn
    _draw_queries(
        [_row(row) for row in rows],
        TABLE,
        lambda number: state.choose_query(rows[number].query),
        {
            "": text("status", width=84, help="Outcome of the query under the current config"),
            "rank": st.column_config.NumberColumn("rank", width=46, help="Best rank of a relevant memory"),
            "query": text("query", width=300),
            "type": text("type", width=92, help="Query type"),
            "project": text("project", width=92, help="Project of the query"),
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


def _draw_queries(
    rows: Sequence[Mapping[str, object]], key: str, search: Callable[[int], None], columns: Mapping[str, Any]
) -> None:
    """Draw one row per query; a click passes its index in `rows` on, and closes the popover."""

    def clicked() -> None:
        selected = st.session_state[key]["selection"]["rows"]
        if selected:
            search(selected[0])
            st.session_state[state.PICKER] = False

    draw_table(rows, height=420, width=660, key=key, on_select=clicked, selection_mode="single-row", columns=columns)


def draw_recorded(name: str, resources: Resources) -> None:
    """Draw the recorded queries of a set; compared with the current config if their evidence is gathered."""
    answers = resources.store.recorded_answers.read(name)
    config = state.present_config()
    try:
        near = _similarity(name, answers, config, resources)
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return
    if near:
        answers = failing_first(answers, near)
    nothing = sum(not answer.returned for answer in answers)
    then = "then those whose answer differs most from the current config’s" if near else "then the lowest scores"
    st.caption(
        f"First those without a result ({nothing}), {then}."
        if nothing
        else f"{then.removeprefix('then ').capitalize()} first."
    )
    text, number = st.column_config.TextColumn, st.column_config.NumberColumn
    _draw_queries(
        [_recorded_row(answer, near) for answer in answers],
        RECORDED,
        lambda number: _open_recorded(answers[number]),
        {
            "results": number("results", width=58, help="Number of memories returned"),
            "top score": number("top score", width=72, format="%.3f", help="Highest recorded score"),
            "RBO": number(
                "RBO",
                width=50,
                format="%.2f",
                help="Rank-biased overlap with the results of the current config",
            ),
            "query": text("query", width=236),
            "asked": st.column_config.DatetimeColumn("asked", width=120, format="YYYY-MM-DD HH:mm", help="UTC"),
            "project": text("project", width=80, help="Project of the query"),
        },
    )


def draw_traced(name: str, resources: Resources) -> None:
    """Draw the traced queries of a set."""
    queries = resources.store.query_sets.queries(name)
    st.caption("Opens the recorded stages of a query; no setting changes them.")
    text = st.column_config.TextColumn
    _draw_queries(
        [{"query": query.query, "asked": query.as_of} for query in queries],
        TRACED,
        lambda number: state.open_traced(state.TracedQuery(name, queries[number].qid, queries[number].query)),
        {
            "query": text("query", width=460),
            "asked": st.column_config.DatetimeColumn("asked", width=130, format="YYYY-MM-DD HH:mm", help="UTC"),
        },
    )


def _similarity(
    name: str, answers: Sequence[RecordedAnswer], config: PipelineConfig, resources: Resources
) -> dict[str, float]:
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
    return nearness(Recording(name, STORED_FORM, tuple(answers)), _productions(answers, resources), evidences, config)


def _productions(answers: Sequence[RecordedAnswer], resources: Resources) -> dict[str, Production]:
    """The answers mapped to the store's memories; cached, since matching by text is slow."""
    key = (tuple(answers), str(resources.store.path), resources.store.content_version)
    last: tuple[object, dict[str, Production]] | None = st.session_state.get(MATCHED)
    if last is None or last[0] != key:
        last = st.session_state[MATCHED] = (key, productions_of(answers, resources.store))
    return last[1]


def _query(answer: RecordedAnswer) -> Query:
    return Query(answer.qid, answer.query or "", answer.project, answer.asked_at)


def _recorded_row(answer: RecordedAnswer, near: Mapping[str, float]) -> dict[str, object]:
    row: dict[str, object] = {"results": len(answer.returned), "top score": answer.top_score}
    if near:
        row["RBO"] = near[answer.qid]
    return row | {"query": answer.query, "asked": answer.asked_at, "project": answer.project}


def _open_recorded(answer: RecordedAnswer) -> None:
    """Search a recorded query, and open its recorded answer in the comparison tool."""
    state.choose_query(_query(answer))
    state.open_answer(answer.query or "", answer.returned)
