"""The state of the Label page: the queue at work, the card on the table, and what the other views last computed.

A press of one of the card's buttons comes here with the turn it was made for, and answers that card alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.labelling.judge_calibration import Calibration, GradedScore
from cems_workbench.evaluation.labelling.prejudging import PairScores
from cems_workbench.evaluation.labelling.queue import Card, LabelQueue, QueueSnapshot
from cems_workbench.jobs.importing import FileImport
from cems_workbench.jobs.labelling import give_grade, give_no_answer
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.kit.reviewer import require
from cems_workbench.ui.kit.state import PageState

VIEW, QUEUE, NEW_QUEUE, NOTE = "label:view", "label:chosen", "label:new", "label:note"
"""Widgets that are set from elsewhere: the view, the queue at work, the form of a new one, the note of the next label."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenQueue:
    """A queue at work, and the store and name it was opened by."""

    store: str
    name: str
    queue: LabelQueue


@dataclass(frozen=True, slots=True)
class DealtCard:
    """The card on the table and whose it is."""

    reviewer: str
    card: Card


@dataclass(frozen=True, slots=True, eq=False)
class JudgeScores:
    """What the judge said of labelled pairs, and under which judge and store content it was asked (`key`)."""

    key: object
    scores: PairScores


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """People and the judge on the same pairs, and what that was computed of (`key`).

    A grade of `relevant_from` or more means relevant.
    """

    key: object
    scores: PairScores
    pairs: list[GradedScore]
    relevant_from: int
    calibration: Calibration


@dataclass(frozen=True, slots=True, eq=False)
class LabelState:
    """All that the page remembers between runs, but for what its widgets show."""

    queue: OpenQueue | None = None
    dealt: DealtCard | None = None
    turn: int = 0
    """The number of the card on the table: part of its buttons' keys, so that a press can only reach the card it was made for."""
    message: str = ""
    """What became of the last press."""
    problem: str = ""
    """Why the last press was refused."""
    note_open: bool = False
    help_open: bool = False
    made_queue: str | None = None
    """A queue that was just made, to be put to work before the widgets are drawn."""
    prelabelled: tuple[str, PairScores] | None = None
    """The queue that was last pre-labelled, and what the judge said."""
    judge_scores: JudgeScores | None = None
    comparison: Comparison | None = None
    difference_problem: str = ""
    """Why the last answer to a difference was refused."""
    imports: tuple[FileImport, ...] = ()
    """What became of the files of the last import."""
    uploads: int = 0
    """Raised when the uploader is to be empty again."""


_page = PageState("label", LabelState)
present, update = _page.get, _page.update


def open_queue(resources: Resources, name: str) -> LabelQueue:
    """The queue at work, opened once per session, store and name. Raises InputError when it is gone."""
    store, opened = str(resources.store.path), present().queue
    if opened is None or (opened.store, opened.name) != (store, name):
        opened = OpenQueue(store, name, LabelQueue(resources.store, name))
        update(queue=opened, dealt=None)
    return opened.queue


def close_queue() -> None:
    """Have the queue read anew: its record or what it draws on has changed."""
    update(queue=None)


def card(queue: LabelQueue, reviewer: str) -> tuple[Card | None, QueueSnapshot]:
    """The card on the table, dealt when there is none (None: nothing is left), and what was said of the queue's pairs by then."""
    dealt = present().dealt
    if dealt is not None and dealt.reviewer == reviewer:
        return dealt.card, queue.snapshot()
    next_card, snapshot = queue.deal(reviewer)
    if next_card is not None:
        _lay(reviewer, next_card)
    return next_card, snapshot


def _lay(reviewer: str, next_card: Card) -> None:
    update(dealt=DealtCard(reviewer, next_card), turn=present().turn + 1)


def label(resources: Resources, reviewer: str, turn: int, grade: int) -> None:
    """Give the card of a turn a grade; the next card is dealt once it is on disk."""
    answered = _card_of(reviewer, turn)
    if answered is None:
        return
    qid, memory_id = answered.query.qid, answered.memory.id
    _write(
        lambda: give_grade(resources.store, qid, memory_id, grade, reviewer, shown=answered.shown(), note=_note()),
        f"Graded {grade}.",
    )


def skip(resources: Resources, reviewer: str, turn: int) -> None:
    """Leave the card to others."""
    answered = _card_of(reviewer, turn)
    if answered is not None:
        pair = answered.query.qid, answered.memory.id
        _write(lambda: resources.store.labels.skip(*pair, reviewer, _note()), "Skipped.")


def unclear(resources: Resources, reviewer: str, turn: int) -> None:
    """Put all cards of this query aside: what it asks for cannot be told."""
    answered = _card_of(reviewer, turn)
    if answered is not None:
        qid = answered.query.qid
        _write(lambda: resources.store.labels.unclear(qid, reviewer, _note()), "Query set aside as unclear.")


def nothing(resources: Resources, reviewer: str, turn: int) -> None:
    """Keep that nothing in the store answers the card's query, and put its other cards aside."""
    answered = _card_of(reviewer, turn)
    if answered is None:
        return
    relevant: list[str] = []

    def commit() -> None:
        qid, at_hand = answered.query.qid, answered.memory.id
        relevant.extend(
            give_no_answer(resources.store, qid, reviewer, at_hand=at_hand, shown=answered.shown(), note=_note())
        )

    _write(commit, "Nothing answers the query: kept.")
    if relevant and not present().problem:
        update(message=f"Kept; but {len(relevant)} of its memories were judged relevant, which counts.")


def undo(resources: Resources, queue: LabelQueue, reviewer: str) -> None:
    """Take the last label back and put its card on the table again."""
    try:
        require("reviewer")
        event = resources.store.labels.undo(reviewer)
    except WorkbenchError as error:
        update(problem=str(error))
        return
    if event is None:
        update(message="There is nothing to undo.")
        return
    again = queue.card((event.qid, event.memory_id)) if event.memory_id else None
    update(dealt=None, message="Taken back.")
    if again is not None:
        _lay(reviewer, again)


def toggle_note() -> None:
    """Open or close the note."""
    update(note_open=not present().note_open)


def toggle_help() -> None:
    """Show or hide what the keys do."""
    update(help_open=not present().help_open)


def _card_of(reviewer: str, turn: int) -> Card | None:
    """The card that a press was made for; None when it is not on the table any more."""
    state = present()
    if state.dealt is None or state.dealt.reviewer != reviewer or state.turn != turn:
        update(message="That was for a card that is gone, and did nothing.")
        return None
    return state.dealt.card


def _note() -> str | None:
    return str(st.session_state.get(NOTE) or "").strip() or None


def _write(commit: Callable[[], object], message: str) -> None:
    """Run a write; only when it is committed is the card taken off the table and confirmed."""
    try:
        require("reviewer")
        commit()
    except WorkbenchError as error:
        update(problem=str(error), turn=present().turn + 1)  # the card stays, and can be answered again
        return
    update(dealt=None, problem="", message=message)
    st.session_state[NOTE] = ""
