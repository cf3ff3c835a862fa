"""The Label page's own state: the queue at work and the card on the table, which a press of one of its buttons answers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import streamlit as st

from cems_workbench import garbage
from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.labelling.queue import Card, LabelQueue, QueueSnapshot
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Judgment

CARD, TURN, SAID, PROBLEM, NOTE = "lb:card", "lb:turn", "lb:said", "lb:problem", "lb:note"


def queue(resources: Resources, name: str) -> LabelQueue:
    """The queue at work, opened once per session, store and name. Raises InputError when it is gone."""
    key = (str(resources.store.path), name)
    kept: tuple[object, LabelQueue] | None = st.session_state.get("lb:queue")
    if kept is None or kept[0] != key:
        kept = (key, LabelQueue(resources.store, name))
        st.session_state["lb:queue"] = kept
        st.session_state[CARD] = None
    return kept[1]


def card(at_work: LabelQueue, who: str) -> tuple[Card | None, QueueSnapshot]:
    """The card on the table, dealt when there is none (None: nothing is left), and how the queue stands."""
    kept: tuple[str, Card] | None = st.session_state.get(CARD)
    if kept is not None and kept[0] == who:
        return kept[1], at_work.snapshot()
    dealt, snapshot = at_work.deal(who)
    if dealt is not None:
        _lay(who, dealt)
    return dealt, snapshot


def turn() -> int:
    """The number of the card on the table: part of its buttons’ keys, so that a press can only reach the card it was made for."""
    return int(st.session_state.get(TURN, 0))


def _lay(who: str, one: Card) -> None:
    st.session_state[TURN] = turn() + 1
    st.session_state[CARD] = (who, one)


def _seen(who: str, number: int) -> Card | None:
    """The card that a press was made for; None when it is not on the table any more."""
    kept: tuple[str, Card] | None = st.session_state.get(CARD)
    if kept is None or kept[0] != who or turn() != number:
        st.session_state[SAID] = "That was for a card that is gone, and did nothing."
        return None
    return kept[1]


def label(resources: Resources, who: str, number: int, grade: int) -> None:
    """Give the card of a turn a grade; the next card is dealt once it is on disk."""
    one = _seen(who, number)
    if one is None:
        return
    judgment = Judgment(one.query.qid, one.memory.id, grade, who, "human", judged_at=datetime.now(UTC), note=_note())
    _done(lambda: resources.store.labels.give(judgment, one.shown()), f"Graded {grade}.")


def skip(resources: Resources, who: str, number: int) -> None:
    """Leave the card to others."""
    one = _seen(who, number)
    if one is not None:
        _done(lambda: resources.store.labels.skip(one.query.qid, one.memory.id, who, _note()), "Skipped.")


def unclear(resources: Resources, who: str, number: int) -> None:
    """Put all cards of this query aside: what it asks for cannot be told."""
    one = _seen(who, number)
    if one is not None:
        _done(lambda: resources.store.labels.unclear(one.query.qid, who, _note()), "Query set aside as unclear.")


def undo(resources: Resources, at_work: LabelQueue, who: str) -> None:
    """Take the last label back and put its card on the table again."""
    try:
        event = resources.store.labels.undo(who)
    except WorkbenchError as error:
        st.session_state[PROBLEM] = str(error)
        return
    if event is None:
        st.session_state[SAID] = "There is nothing to undo."
        return
    again = at_work.card((event.qid, event.memory_id)) if event.memory_id else None
    st.session_state[CARD] = None
    if again is not None:
        _lay(who, again)
    st.session_state[SAID] = "Taken back."


@st.cache_resource(show_spinner=False)
def settle() -> None:
    """Leave what is loaded by now out of garbage collections: Streamlit makes a full one after every key press.

    No model is loaded for this page, which is when the other pages do it.
    """
    garbage.settle()


def _note() -> str | None:
    return str(st.session_state.get(NOTE) or "").strip() or None


def _done(write: Callable[[], object], said: str) -> None:
    """Run a write; only when it is committed is the card taken off the table and confirmed."""
    try:
        write()
    except WorkbenchError as error:
        st.session_state[PROBLEM] = str(error)
        st.session_state[TURN] = turn() + 1  # the card stays, and can be answered again
        return
    st.session_state[CARD] = None
    st.session_state[PROBLEM] = ""
    st.session_state[SAID] = said
    st.session_state[NOTE] = ""
