"""State of the Label page: the open queue, the current card, and cached results of the other views.

Each button press carries the number of the card it was pressed for, and can only answer that card.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import streamlit as st

from cems_workbench.errors import WorkbenchError, counted
from cems_workbench.evaluation.labelling.pooling import Pair, PairScores
from cems_workbench.evaluation.labelling.queue import Card, LabelQueue, QueueSnapshot
from cems_workbench.jobs.importing import FileImport
from cems_workbench.jobs.labelling import give_grade, give_no_answer
from cems_workbench.pipeline.resources import Resources
from cems_workbench.store import Store
from cems_workbench.ui.kit.session import PageState, require

VIEW, QUEUE, NEW_QUEUE, NOTE = "label:view", "label:chosen", "label:new", "label:note"
"""Keys of widgets set from elsewhere: the view, the open queue, the form of a new one, the note of the next label."""
OF, ALL_QUERIES = "label:agreement:of", "all queries"
"""Key of the queue whose agreement is shown; the choice of no queue or set in particular."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelState:
    """What the page remembers between reruns, besides widget values."""

    queue: tuple[str, str, LabelQueue] | None = None
    """The open queue, after the store and the name that it was opened from."""
    dealt: tuple[str, Card] | None = None
    """The reviewer of the current card, and the card."""
    card_no: int = 0
    """Number of the current card, part of its buttons' keys, so that a late press cannot reach another card."""
    conflict_no: int = -1
    """Number of the current conflict, below 0: no key that was pressed for a card reaches it, nor the reverse."""
    decided: tuple[Pair, ...] = ()
    """The conflicts decided in this session, the latest last, for Undo."""
    put_off: tuple[Pair, ...] = ()
    """The conflicts skipped in this session: they come last."""
    message: str = ""
    """Outcome of the last press."""
    problem: str = ""
    """Why the last press was refused."""
    note_open: bool = False
    help_open: bool = False
    created_queue: str | None = None
    """A queue just created, or chosen elsewhere, to be opened before the widgets are drawn."""
    prelabelled: tuple[str, PairScores] | None = None
    """The queue that was last pre-labelled, and the judge's scores."""
    judge_scores: tuple[object, PairScores] | None = None
    """The judge's scores of labelled pairs, with the judge and the store content."""
    difference_problem: str = ""
    """Why the last write in the list of differences was refused."""
    imports: tuple[FileImport, ...] = ()
    """Reports of the last import."""
    uploads: int = 0
    """Incremented to clear the uploader."""


_page = PageState("label", LabelState)
present, update, guarded = _page.get, _page.update, _page.guarded


def open_queue(resources: Resources, name: str) -> LabelQueue:
    """The queue, opened once per session, store and name. Raises InputError if it no longer exists."""
    store, opened = str(resources.store.path), present().queue
    if opened is None or opened[:2] != (store, name):
        opened = (store, name, LabelQueue(resources.store, name))
        update(queue=opened, dealt=None)
    return opened[2]


def close_queue() -> None:
    """Close the queue so that it is reloaded: its record or its inputs have changed."""
    update(queue=None)


def card(queue: LabelQueue, reviewer: str) -> tuple[Card | None, QueueSnapshot]:
    """The current card, dealt if there is none (None: nothing is left), and the queue's labels at that time."""
    dealt = present().dealt
    if dealt is not None and dealt[0] == reviewer:
        return dealt[1], queue.snapshot()
    next_card, snapshot = queue.deal(reviewer)
    if next_card is not None:
        _show_card(reviewer, next_card)
    return next_card, snapshot


def _show_card(reviewer: str, next_card: Card) -> None:
    update(dealt=(reviewer, next_card), card_no=present().card_no + 1)


Press = int | Literal["skip", "unclear", "no answer", "accept", "reject"]
"""A grade, or what else a press says of a card."""


def answer(resources: Resources, reviewer: str, card_no: int, press: Press) -> None:
    """Answer the card that a press was made for; the next one is dealt, and the press confirmed, once it is on disk."""
    state = present()
    # A press on an earlier card must not label the next one.
    if state.dealt is None or state.dealt[0] != reviewer or state.card_no != card_no:
        update(message="Ignored: that card is no longer shown.")
        return
    try:
        require("reviewer")
        message = _write(resources.store, state.dealt[1], reviewer, press)
    except WorkbenchError as error:
        update(problem=str(error), card_no=card_no + 1)  # the card stays, and can be answered again
        return
    update(dealt=None, problem="", message=message)
    st.session_state[NOTE] = ""


def _write(store: Store, card: Card, reviewer: str, press: Press) -> str:
    """Save what a press says of a card, with the note; what was done. An unclear query, or one without an answer, has no more cards."""
    qid, memory_id, shown = card.query.qid, card.memory.id, card.shown()
    note = str(st.session_state.get(NOTE) or "").strip() or None
    if isinstance(press, int):
        give_grade(store, qid, memory_id, press, reviewer, shown=shown, note=note)
        return f"Graded {press}."
    if press in ("accept", "reject"):
        moved = store.labels.decide_move(qid, memory_id, list(card.judged), reviewer, accept=press == "accept")
        return f"Accepted: {counted(moved, 'labels')} moved." if press == "accept" else "Rejected."
    if press == "skip":
        store.labels.skip(qid, memory_id, reviewer, note)
        return "Skipped."
    if press == "unclear":
        store.labels.unclear(qid, reviewer, note)
        return "Query marked as unclear."
    relevant = give_no_answer(store, qid, reviewer, at_hand=memory_id, shown=shown, note=note)
    if relevant:
        return f"Recorded, but the query has {counted(len(relevant), 'memories')} judged relevant, which still counts."
    return "Recorded: nothing answers the query."


def show_queue(queue: str) -> None:
    """Open the cards of a queue."""
    st.session_state[VIEW] = "Label"
    update(created_queue=queue, message="")


def show_conflicts(queue: str) -> None:
    """Open the conflicts of a queue."""
    st.session_state[VIEW], st.session_state[OF] = "Agreement", queue
    update(message="")


def decide(resources: Resources, reviewer: str, number: int, pair: Pair, press: int | Literal["skip"]) -> None:
    """Decide the conflict that a press was made for, or put it off; the next one is shown once it is on disk."""
    state = present()
    if state.conflict_no != number:
        return
    with guarded("reviewer"):
        if press != "skip":
            resources.store.decisions.decide(*pair, press, reviewer)
            update(decided=(*state.decided, pair), problem="", message=f"Decided: {press}.")
        else:
            update(put_off=(*(one for one in state.put_off if one != pair), pair), message="Skipped.")
    update(conflict_no=number - 1)


def undo_decision(resources: Resources, reviewer: str) -> None:
    """Revoke the last decision of this session, and show its conflict first."""
    state = present()
    with guarded("reviewer"):
        if not state.decided:
            update(message="There is nothing to undo.")
            return
        resources.store.decisions.decide(*state.decided[-1], None, reviewer)
        put_off = tuple(pair for pair in state.put_off if pair != state.decided[-1])
        update(decided=state.decided[:-1], put_off=put_off, conflict_no=state.conflict_no - 1, message="Undone.")


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
