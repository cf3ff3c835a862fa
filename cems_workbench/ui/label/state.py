"""State of the Label page: the open queue, the current card, and cached results of the other views.

Each button press carries the number of the card it was pressed for, and can only answer that card.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.labelling.judge_calibration import Calibration, GradedScore
from cems_workbench.evaluation.labelling.pooling import PairScores
from cems_workbench.evaluation.labelling.queue import Card, LabelQueue, QueueSnapshot
from cems_workbench.jobs.importing import FileImport
from cems_workbench.jobs.labelling import give_grade, give_no_answer
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.kit.session import PageState, require

VIEW, QUEUE, NEW_QUEUE, NOTE = "label:view", "label:chosen", "label:new", "label:note"
"""Keys of widgets set from elsewhere: the view, the open queue, the form of a new one, the note of the next label."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenQueue:
    """An open queue, with the store and name it was opened from."""

    store: str
    name: str
    queue: LabelQueue


@dataclass(frozen=True, slots=True)
class DealtCard:
    """The current card and its reviewer."""

    reviewer: str
    card: Card


@dataclass(frozen=True, slots=True, eq=False)
class JudgeScores:
    """The judge's scores of labelled pairs; `key` identifies judge and store content."""

    key: object
    scores: PairScores


@dataclass(frozen=True, slots=True, eq=False)
class JudgeComparison:
    """People and the judge on the same pairs; `key` identifies the inputs.

    A grade of `relevant_from` or more means relevant.
    """

    key: object
    scores: PairScores
    pairs: list[GradedScore]
    relevant_from: int
    calibration: Calibration


@dataclass(frozen=True, slots=True, eq=False)
class LabelState:
    """What the page remembers between reruns, besides widget values."""

    queue: OpenQueue | None = None
    dealt: DealtCard | None = None
    card_no: int = 0
    """Number of the current card, part of its buttons' keys, so that a late press cannot reach another card."""
    message: str = ""
    """Outcome of the last press."""
    problem: str = ""
    """Why the last press was refused."""
    note_open: bool = False
    help_open: bool = False
    created_queue: str | None = None
    """A queue just created, to be opened before the widgets are drawn."""
    prelabelled: tuple[str, PairScores] | None = None
    """The queue that was last pre-labelled, and the judge's scores."""
    judge_scores: JudgeScores | None = None
    comparison: JudgeComparison | None = None
    difference_problem: str = ""
    """Why the last write in the list of differences was refused."""
    imports: tuple[FileImport, ...] = ()
    """Reports of the last import."""
    uploads: int = 0
    """Incremented to clear the uploader."""


_page = PageState("label", LabelState)
present, update = _page.get, _page.update


def open_queue(resources: Resources, name: str) -> LabelQueue:
    """The queue, opened once per session, store and name. Raises InputError if it no longer exists."""
    store, opened = str(resources.store.path), present().queue
    if opened is None or (opened.store, opened.name) != (store, name):
        opened = OpenQueue(store, name, LabelQueue(resources.store, name))
        update(queue=opened, dealt=None)
    return opened.queue


def close_queue() -> None:
    """Close the queue so that it is reloaded: its record or its inputs have changed."""
    update(queue=None)


def card(queue: LabelQueue, reviewer: str) -> tuple[Card | None, QueueSnapshot]:
    """The current card, dealt if there is none (None: nothing is left), and the queue's labels at that time."""
    dealt = present().dealt
    if dealt is not None and dealt.reviewer == reviewer:
        return dealt.card, queue.snapshot()
    next_card, snapshot = queue.deal(reviewer)
    if next_card is not None:
        _show_card(reviewer, next_card)
    return next_card, snapshot


def _show_card(reviewer: str, next_card: Card) -> None:
    update(dealt=DealtCard(reviewer, next_card), card_no=present().card_no + 1)


def label(resources: Resources, reviewer: str, card_no: int, grade: int) -> None:
    """Grade a card; the next card is dealt once the label is on disk."""
    answered = _card_of(reviewer, card_no)
    if answered is None:
        return
    qid, memory_id = answered.query.qid, answered.memory.id
    _write(
        lambda: give_grade(resources.store, qid, memory_id, grade, reviewer, shown=answered.shown(), note=_note()),
        f"Graded {grade}.",
    )


def skip(resources: Resources, reviewer: str, card_no: int) -> None:
    """Skip the card, leaving it to other reviewers."""
    answered = _card_of(reviewer, card_no)
    if answered is not None:
        pair = answered.query.qid, answered.memory.id
        _write(lambda: resources.store.labels.skip(*pair, reviewer, _note()), "Skipped.")


def unclear(resources: Resources, reviewer: str, card_no: int) -> None:
    """Mark the card's query as unclear, which removes its cards for this reviewer."""
    answered = _card_of(reviewer, card_no)
    if answered is not None:
        qid = answered.query.qid
        _write(lambda: resources.store.labels.unclear(qid, reviewer, _note()), "Query marked as unclear.")


def no_answer(resources: Resources, reviewer: str, card_no: int) -> None:
    """Record that nothing in the store answers the card's query, which removes its other cards."""
    answered = _card_of(reviewer, card_no)
    if answered is None:
        return
    relevant: list[str] = []

    def commit() -> None:
        qid, at_hand = answered.query.qid, answered.memory.id
        relevant.extend(
            give_no_answer(resources.store, qid, reviewer, at_hand=at_hand, shown=answered.shown(), note=_note())
        )

    _write(commit, "Recorded: nothing answers the query.")
    if relevant and not present().problem:
        update(message=f"Recorded, but {len(relevant)} of its memories were judged relevant; those judgments count.")


def undo(resources: Resources, queue: LabelQueue, reviewer: str) -> None:
    """Undo the last label and show its card again."""
    with _page.guarded("reviewer"):
        event = resources.store.labels.undo(reviewer)
        if event is None:
            update(message="There is nothing to undo.")
            return
        # The label of a whole query has no memory and no card.
        again = queue.card((event.qid, event.memory_id)) if event.memory_id else None
        update(dealt=None, message="Undone.")
        if again is not None:
            _show_card(reviewer, again)


def toggle_note() -> None:
    """Open or close the note."""
    update(note_open=not present().note_open)


def toggle_help() -> None:
    """Show or hide the help."""
    update(help_open=not present().help_open)


def _card_of(reviewer: str, card_no: int) -> Card | None:
    """The card that a press was made for; None if it is no longer the current one."""
    state = present()
    # A press on an earlier card must not label the next one.
    if state.dealt is None or state.dealt.reviewer != reviewer or state.card_no != card_no:
        update(message="Ignored: that card is no longer shown.")
        return None
    return state.dealt.card


def _note() -> str | None:
    return str(st.session_state.get(NOTE) or "").strip() or None


def _write(commit: Callable[[], object], message: str) -> None:
    """Run a write; the card is removed and confirmed only after the commit."""
    try:
        require("reviewer")
        commit()
    except WorkbenchError as error:
        update(problem=str(error), card_no=present().card_no + 1)  # the card stays, and can be answered again
        return
    update(dealt=None, problem="", message=message)
    st.session_state[NOTE] = ""
