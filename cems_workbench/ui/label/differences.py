"""Pairs on which people and the model judge differ most: read in full, relabel, or mark “judge wrong”."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.labelling.judge_calibration import Difference, GradedScore, differences
from cems_workbench.evaluation.labelling.pooling import Pair
from cems_workbench.evaluation.labelling.prejudging import PairScores
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.bidi import neutralise
from cems_workbench.records import JudgeScale, Judgment, Query
from cems_workbench.store import LabelEvent
from cems_workbench.ui.kit.html import excerpt, plain
from cems_workbench.ui.kit.session import reviewer
from cems_workbench.ui.kit.tables import pick_row
from cems_workbench.ui.label import state
from cems_workbench.ui.label.card import split_meaning

MAX_ROWS = 200
Marks = Mapping[Pair, Sequence[LabelEvent]]
"""By pair: the events that mark the judge as wrong."""


def draw(
    pairs: Sequence[GradedScore], scores: PairScores, scale: JudgeScale, relevant_from: int, resources: Resources
) -> None:
    """Draw the differences, largest first, and the selected one."""
    every = differences(pairs, scale, relevant_from)
    marks = _marks(resources, scores.judge)
    title, toggle = st.columns([4, 1.3], vertical_alignment="center")
    title.markdown(
        f"## {len(every)} pairs that only one of them calls relevant",
        help="Largest difference first: by the distance between the person’s grade and the grade of the judge’s band, then by the "
        "distance of the score from the threshold.",
    )
    hide = toggle.toggle("Hide “judge wrong”", key="label:differences:hide", persist_state="session")
    shown = [difference for difference in every if not (hide and difference.scored.pair in marks)][:MAX_ROWS]
    if not shown:
        st.caption("No pairs left." if every else "They agree on every pair.")
        return
    queries = {query.qid: query for query in resources.store.queries.read()}
    picked = pick_row(
        _rows(shown, marks, queries, resources),
        key="label:differences",
        most=8,
        columns={
            "people": st.column_config.NumberColumn("people", width=64, help="The grade, or the median of several"),
            "judge": st.column_config.TextColumn("judge", width=112, help="The band of the judge’s score"),
            "score": st.column_config.NumberColumn("score", width=72, format="%.3g"),
            "judge wrong": st.column_config.TextColumn("judge wrong", width=96, help="Who marked the judge as wrong"),
        },
    )
    if problem := state.present().difference_problem:
        st.error(plain(problem), icon=":material/block:")
    if picked is None:
        first = f"The first {MAX_ROWS} are shown. " if len(every) > MAX_ROWS else ""
        st.caption(f"{first}Select a pair to read it in full, relabel it, or mark the judge as wrong.")
        return
    difference = shown[picked]
    _draw_pair(difference, scores, marks.get(difference.scored.pair, ()), queries, resources)


def _marks(resources: Resources, judge: str) -> Marks:
    """The marks against this judge, by pair."""
    marks: dict[Pair, list[LabelEvent]] = {}
    for mark in resources.store.labels.judged_wrong():
        if mark.note == judge:
            marks.setdefault((mark.qid, mark.memory_id), []).append(mark)
    return marks


def _rows(
    shown: Sequence[Difference], marks: Marks, queries: Mapping[str, Query], resources: Resources
) -> list[dict[str, Any]]:
    memories = resources.store.memories.read({difference.scored.memory_id for difference in shown})
    rows: list[dict[str, Any]] = []
    for difference in shown:
        scored = difference.scored
        query, memory = queries.get(scored.qid), memories.get(scored.memory_id)
        rows.append(
            {
                "people": scored.grade,
                "judge": difference.band,
                "score": scored.raw,
                "judge wrong": ", ".join(mark.judge for mark in marks.get(scored.pair, ())),
                "query": scored.qid if query is None else query.query,
                "memory": "" if memory is None else excerpt(memory.content),
            }
        )
    return rows


def _draw_pair(
    difference: Difference,
    scores: PairScores,
    marks: Sequence[LabelEvent],
    queries: Mapping[str, Query],
    resources: Resources,
) -> None:
    """A pair in full with all grades, and the buttons to relabel it or to mark the judge as wrong."""
    qid, memory_id = difference.scored.pair
    query, memory = queries.get(qid), resources.store.memories.get(memory_id)
    if query is None or memory is None:
        st.caption("This query or memory no longer exists.")
        return
    judgments = [
        judgment for judgment in resources.store.judgments.read(qid, "human") if judgment.memory_id == memory_id
    ]
    people = ", ".join(f"{plain(judgment.judge)} {judgment.grade}" for judgment in judgments)
    st.markdown(f"**{plain(query.query)}**")
    st.code(neutralise(memory.content), language=None, wrap_lines=True)
    score = difference.scored.raw
    st.caption(f"People: {people}. Judge: {difference.band}, score {threshold_text(score)}.")
    name = reviewer()
    if name is None:
        st.caption("Enter your name in the Label view to answer.")
        return
    box = st.container(horizontal=True, vertical_alignment="center")
    shown = {"query": query.query, "blind": False, "judge": scores.judge, "score": score}
    for grade, meaning in resources.store.query_sets.scale_of(qid).grades:
        box.button(
            f"**{grade}** {plain(split_meaning(meaning)[0])}",
            key=f"label:differ:{grade}",
            help=plain(meaning),
            on_click=_label,
            args=(resources, Judgment(qid, memory_id, grade, name), shown),
        )
    mine = next((mark for mark in marks if mark.judge == name), None)
    box.button(
        "Undo “judge wrong”" if mine else "Judge is wrong",
        key="label:differ:wrong",
        icon=":material/gavel:",
        on_click=_mark,
        args=(resources, (qid, memory_id), name, scores.judge, mine),
        help="Saved with your name and the judge’s; no grade changes.",
    )


def threshold_text(value: float) -> str:
    """A score or threshold with three significant digits and a typographic minus."""
    return f"{value:.3g}".replace("-", "−")


def _label(resources: Resources, judgment: Judgment, shown: Mapping[str, Any]) -> None:
    _write(lambda: resources.store.labels.give(judgment, shown))


def _mark(resources: Resources, pair: Pair, reviewer: str, judge: str, mine: LabelEvent | None) -> None:
    if mine is None:
        _write(lambda: resources.store.labels.call_judge_wrong(*pair, reviewer, judge))
    else:
        _write(lambda: resources.store.labels.take_back(mine))


def _write(commit: Callable[[], object]) -> None:
    """Run a write; an error is shown below the table."""
    try:
        commit()
        state.update(difference_problem="")
    except WorkbenchError as error:
        state.update(difference_problem=str(error))
