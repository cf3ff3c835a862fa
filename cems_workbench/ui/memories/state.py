"""The state of the Memories page, and the work it starts: every change of the store goes through here.

A change marks the indexes as behind; the page brings them up to date after it is drawn, with progress, so that the change itself is on
screen at once. Any click interrupts that work, and the next run of the page goes on with it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.analysis.near_duplicates import NearDuplicates
from cems_workbench.errors import WorkbenchError
from cems_workbench.jobs.connecting import ConnectReport
from cems_workbench.jobs.importing import FileImport
from cems_workbench.jobs.source_status import SourceStatus
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress
from cems_workbench.records import Memory
from cems_workbench.sources.source import SourceInfo
from cems_workbench.store import Duplicates, Statistics
from cems_workbench.ui.inspect import state as inspect_state
from cems_workbench.ui.kit import reviewer
from cems_workbench.ui.kit.progress import cancellable
from cems_workbench.ui.kit.state import PageState

VIEW, PAGE = "memories:view", "memories:page"
"""Widgets that are set from elsewhere: the view, and the page of the table."""


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """What the store holds in numbers, its exact duplicates and how many there are, and of which content and day (`key`)."""

    key: object
    statistics: Statistics
    duplicates: list[Duplicates]
    duplicated: int


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Near duplicates, and what they were looked for in (`key`): the store's content, the embedder, the threshold."""

    key: object
    near: NearDuplicates


@dataclass(frozen=True, slots=True, eq=False)
class MemoriesState:
    """All that the page remembers between runs, but for what its widgets show."""

    store: str | None = None
    """The store that everything here belongs to."""
    selected: str | None = None
    """Id of the memory that is shown in full."""
    editing: bool = False
    generation: int = 0
    """Raised when widgets are to show new values."""
    deleted: str | None = None
    """Id of the memory that was deleted last, while undo is offered."""
    indexes_behind: bool = False
    """Whether the page is to bring the indexes up to date once it is drawn."""
    imports: tuple[FileImport, ...] = ()
    """What became of the files of the last import."""
    counted: Counted | None = None
    compared: Compared | None = None
    index_message: str = ""
    """What the last rebuild came to."""
    problem: str = ""
    """Why the store refused the last change."""
    folder_problem: str = ""
    """Why another folder could not be opened."""
    notice: str = ""
    """What became of the last edit."""
    looked: tuple[str, SourceInfo] | None = None
    """The plain address of the source that was looked at last, and what it said."""
    connected: ConnectReport | None = None
    """What became of the sources that were taken last."""
    source_problem: str = ""
    """Why a source could not be looked at, taken or forgotten."""
    sources_asked: tuple[object, list[SourceStatus]] | None = None
    """How the sources of the store stand, and of which content and embedder that was asked."""


_page = PageState("memories", MemoriesState)
present, update = _page.get, _page.update


def belong_to(store: str) -> None:
    """Begin anew when the page's state belongs to another store than the one that is open."""
    known = present().store
    if known is not None and known != store:
        forget_store()
    update(store=store)


def forget_store() -> None:
    """Drop all that belongs to the store that was open: here, and the query and evidence of the Inspect page."""
    for key in [key for key in st.session_state if str(key).startswith("memories:") and key != VIEW]:
        del st.session_state[key]
    inspect_state.forget_store()


def changed() -> None:
    """The store's content has changed: indexes and evidence are behind, widgets show new values."""
    update(indexes_behind=True, compared=None, index_message="", generation=present().generation + 1)
    inspect_state.forget_evidence()


def select(memory_id: str | None) -> None:
    """Show a memory in full, or none."""
    update(selected=memory_id, editing=False, problem="", notice="")


def open_in_memories(memory_id: str) -> None:
    """Go to the Memories page and show this memory in full; does not return. Called from another page."""
    select(memory_id)
    st.session_state[VIEW] = "Browse"
    st.switch_page("pages/memories.py")


def edit(on: bool) -> None:
    """Open or close the form; a newly opened one shows the stored values."""
    update(editing=on, problem="", notice="", generation=present().generation + 1)


def save(resources: Resources, memory: Memory, before: Memory) -> bool:
    """Save an edited memory; False after an error, which is kept for the page."""
    try:
        reviewer.require("operator")
        differs = resources.store.memories.update(memory, before)
    except WorkbenchError as error:
        update(problem=str(error))
        return False
    update(editing=False, problem="", notice="Saved." if differs else "Nothing was changed.")
    if differs:
        changed()
    return True


def delete(resources: Resources, memory_id: str) -> None:
    """Delete a memory and offer to undo it."""
    try:
        reviewer.require("operator")
        gone = resources.store.memories.delete(memory_id)
    except WorkbenchError as error:
        update(problem=str(error))
        return
    update(selected=None, editing=False, problem="", notice="", deleted=memory_id if gone else None)
    if gone:
        changed()
        st.toast("Memory deleted", icon=":material/delete:")


def restore(resources: Resources, *memory_ids: str) -> None:
    """Bring deleted memories back."""
    try:
        reviewer.require("operator")
        back = [memory_id for memory_id in memory_ids if resources.store.memories.restore(memory_id)]
    except WorkbenchError as error:
        update(problem=str(error))
        return
    update(deleted=None, problem="", notice="", selected=back[0] if len(back) == 1 else None, editing=False)
    if back:
        changed()
        st.toast(f"{len(back):,} {'memory' if len(back) == 1 else 'memories'} restored", icon=":material/undo:")


def dismiss_undo() -> None:
    """Offer no undo any more."""
    update(deleted=None)


STOP = "Stop here. What is finished stays; the next search, or Bring up to date under Store, does the rest."


def work(place: DeltaGenerator, name: str, stop: str = STOP) -> AbstractContextManager[Progress]:
    """Progress of long work in `place`, with Cancel, which also leaves the indexes as they are by then; `stop` is its tooltip."""
    return cancellable(f"memories:cancel:{name}", stop, place=place, on_cancel=_leave_indexes)


def _leave_indexes() -> None:
    update(indexes_behind=False)


def bring_up_to_date(resources: Resources, place: DeltaGenerator) -> None:
    """Refresh the indexes when a change left them behind. What fails is said once; the next search tries again."""
    if not present().indexes_behind:
        return
    try:
        with work(place, "refresh") as progress:
            resources.refresh(progress)
    except WorkbenchError:
        update(indexes_behind=False)
        raise
    update(indexes_behind=False)
