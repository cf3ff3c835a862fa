"""The pairs on which people and the judge differ most: each can be read in full, labelled again, or marked “judge wrong”."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.labelling.judge_calibration import Difference, GradedScore, differences
from cems_workbench.evaluation.labelling.pooling import Pair
from cems_workbench.evaluation.labelling.prejudging import PairScores
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import JudgeScale, Judgment
from cems_workbench.store import LabelEvent
from cems_workbench.ui.kit.escape import excerpt, plain
from cems_workbench.ui.kit.tables import ROW
from cems_workbench.ui.label.card import name_of

SHOWN = 200
PROBLEM = "lb:differences:problem"


def draw(
    pairs: Sequence[GradedScore], scores: PairScores, scale: JudgeScale, relevant_from: int, resources: Resources,
    who: str | None,
) -> None:  # fmt: skip
    """The differences, widest first, and the chosen one."""
    every = differences(pairs, scale, relevant_from)
    wrong = _called_wrong(resources, scores.judge)
    title, toggle = st.columns([4, 1.3], vertical_alignment="center")
    title.markdown(
        f"###### {len(every)} pairs that only one of them calls relevant",
        help="Those furthest apart first: by the steps between the person’s grade and the grade of the judge’s band, then by how far the "
        "score is from the threshold.",
    )
    hide = toggle.toggle("Hide “judge wrong”", key="lb:differences:hide", persist_state="session")
    found = [one for one in every if not (hide and one.one.pair in wrong)][:SHOWN]
    if not found:
        st.caption("Nothing is left here." if every else "They agree on every pair.")
        return
    rows = _rows(found, wrong, resources)
    event = st.dataframe(
        rows, hide_index=True, key="lb:differences", row_height=ROW, height=ROW * (min(len(rows), 8) + 1) + 4,
        on_select="rerun", selection_mode="single-row", placeholder="",
        column_config={
            "people": st.column_config.NumberColumn("people", width=64, help="Their grade: of several the median"),
            "judge": st.column_config.TextColumn("judge", width=112, help="The band of the judge’s score"),
            "score": st.column_config.NumberColumn("score", width=72, format="%.3g"),
            "judge wrong": st.column_config.TextColumn("judge wrong", width=96, help="Who marked it so"),
        },
    )  # fmt: skip
    if st.session_state.get(PROBLEM):
        st.error(plain(st.session_state[PROBLEM]), icon=":material/block:")
    picked = [at for at in event["selection"]["rows"] if at < len(found)]
    if not picked:
        first = f"The first {SHOWN} are shown. " if len(every) > SHOWN else ""
        st.caption(f"{first}Select a pair to read it in full, to label it again, or to mark that the judge is wrong.")
        return
    _one(found[picked[0]], scores, wrong, resources, who)


def _called_wrong(resources: Resources, judge: str) -> dict[Pair, list[LabelEvent]]:
    """The marks against this judge, by pair."""
    found: dict[Pair, list[LabelEvent]] = {}
    for mark in resources.store.labels.judged_wrong():
        if mark.note == judge:
            found.setdefault((mark.qid, mark.memory_id), []).append(mark)
    return found


def _rows(
    found: Sequence[Difference], wrong: Mapping[Pair, list[LabelEvent]], resources: Resources
) -> list[dict[str, Any]]:
    words = {query.qid: query.query for query in resources.store.queries.read()}
    memories = resources.store.memories.read({each.one.memory_id for each in found})
    return [
        {
            "people": each.one.grade,
            "judge": each.band,
            "score": each.one.raw,
            "judge wrong": ", ".join(mark.judge for mark in wrong.get(each.one.pair, ())),
            "query": words.get(each.one.qid, each.one.qid),
            "memory": excerpt(memories[each.one.memory_id].content) if each.one.memory_id in memories else "",
        }
        for each in found
    ]


def _one(
    each: Difference, scores: PairScores, wrong: Mapping[Pair, list[LabelEvent]], resources: Resources, who: str | None
) -> None:
    """A pair in full with who said what, and what can be done about it."""
    qid, memory_id = each.one.pair
    query = next((query for query in resources.store.queries.read() if query.qid == qid), None)
    memory = resources.store.memories.get(memory_id)
    if query is None or memory is None:
        st.caption("This query or memory is gone.")
        return
    said = [one for one in resources.store.judgments.read(qid, "human") if one.memory_id == memory_id]
    people = ", ".join(f"{plain(one.judge)} {one.grade}" for one in said)
    st.markdown(f"**{plain(query.query)}**")
    st.code(memory.content, language=None, wrap_lines=True)
    st.caption(f"People: {people}. Judge: {each.band}, score {number(each.one.raw)}.")
    if who is None:
        st.caption("Give your name on the Label view to answer.")
        return
    box = st.container(horizontal=True, vertical_alignment="center")
    shown = {"query": query.query, "blind": False, "judge": scores.judge, "score": each.one.raw}
    for grade, meaning in resources.store.query_sets.scale_of(qid).grades:
        box.button(
            f"**{grade}** {plain(name_of(meaning)[0])}", key=f"lb:differ:{grade}", help=plain(meaning), on_click=_label,
            args=(resources, Judgment(qid, memory_id, grade, who), shown),
        )  # fmt: skip
    mine = next((mark for mark in wrong.get(each.one.pair, ()) if mark.judge == who), None)
    box.button(
        "Take “judge wrong” back" if mine else "Judge is wrong", key="lb:differ:wrong", icon=":material/gavel:",
        on_click=_mark, args=(resources, each.one.pair, who, scores.judge, mine),
        help="Kept with your name and the judge’s; no grade changes.",
    )  # fmt: skip


def number(value: float) -> str:
    """A threshold in words: a true minus, three digits."""
    return f"{value:.3g}".replace("-", "−")


def _label(resources: Resources, judgment: Judgment, shown: Mapping[str, Any]) -> None:
    try:
        resources.store.labels.give(judgment, shown)
        st.session_state[PROBLEM] = ""
    except WorkbenchError as error:
        st.session_state[PROBLEM] = str(error)


def _mark(resources: Resources, pair: Pair, who: str, judge: str, mine: LabelEvent | None) -> None:
    try:
        if mine is None:
            resources.store.labels.call_judge_wrong(*pair, who, judge)
        else:
            resources.store.labels.take_back(mine)
        st.session_state[PROBLEM] = ""
    except WorkbenchError as error:
        st.session_state[PROBLEM] = str(error)
