"""State of the Memories page, and the changes of the store that it makes.

A change marks the indexes as outdated; the page refreshes them after it is drawn, with progress, so that the change is visible
immediately. Any click interrupts the refresh, and the next rerun of the page resumes it.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import WorkbenchError
from cems_workbench.jobs.connecting import ConnectReport
from cems_workbench.jobs.factory import RecentCache
from cems_workbench.jobs.importing import FileImport
from cems_workbench.jobs.store_status import SourceStatus
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress
from cems_workbench.records import Memory
from cems_workbench.sources.source import SourceInfo
from cems_workbench.store import ImportReport
from cems_workbench.store.rebase import Rebase
from cems_workbench.ui.inspect import state as inspect_state
from cems_workbench.ui.kit.address import go
from cems_workbench.ui.kit.session import PageState
from cems_workbench.ui.kit.widgets import cancellable

VIEW, PAGE = "memories:view", "memories:page"
"""Keys of widgets set from elsewhere: the view, and the page of the table."""
MAX_USES = 12
"""Maximum counts over a query set cached per session."""


@dataclass(frozen=True, slots=True, eq=False)
class MemoriesState:
    """What the page remembers between reruns, besides widget values."""

    store: str | None = None
    """The store that this state belongs to."""
    selected: str | None = None
    """Id of the memory shown in full."""
    editing: bool = False
    generation: int = 0
    """Incremented to reset widgets to new values."""
    deleted: str | None = None
    """Id of the last deleted memory, while undo is offered."""
    indexes_behind: bool = False
    """Whether the page must refresh the indexes after it is drawn."""
    imports: tuple[FileImport, ...] = ()
    """Reports of the last import."""
    labels: tuple[Rebase, ImportReport | None] | None = None
    """What it did to labels, as `moved_labels`."""
    undone: str = ""
    """Outcome of the last undo of an import."""
    asked_gone: str = ""
    """Id of a deleted memory of which the view Audit is to say what still holds it."""
    index_message: str = ""
    """Outcome of the last refresh or rebuild."""
    problem: str = ""
    """Error of the last change."""
    folder_problem: str = ""
    """Error of opening another folder."""
    notice: str = ""
    """Outcome of the last edit."""
    looked: tuple[str, SourceInfo] | None = None
    """The plain address of the last checked source, and its description."""
    connected: ConnectReport | None = None
    """Outcome of the last source import."""
    source_problem: str = ""
    """Error of checking, importing or forgetting a source."""
    sources_asked: tuple[object, list[SourceStatus]] | None = None
    """Status of the store's sources, with the store content and embedder it was requested for."""
    uses: RecentCache = field(default_factory=lambda: RecentCache(MAX_USES))
    """What queries do with memories, by evidence, config and memory."""
    opening: tuple[Request, PipelineConfig, tuple[str, int]] | None = None
    """A query to open in Inspect, with config, memory and target rank: selected in a table in the previous rerun."""
    last_use: Hashable = None
    """The key of the last count over a large query set that was asked for."""


_page = PageState("memories", MemoriesState)
present, update, guarded = _page.get, _page.update, _page.guarded


def reset_for(store: str) -> None:
    """Reset the state if it belongs to another store than the open one."""
    known = present().store
    if known is not None and known != store:
        forget_store()
    update(store=store)


def forget_store() -> None:
    """Drop the state of the previous store: here, and the query and evidence of the Inspect page."""
    for key in [key for key in st.session_state if str(key).startswith("memories:") and key != VIEW]:
        del st.session_state[key]
    inspect_state.forget_store()


def changed() -> None:
    """Record a change of the store's content: indexes and evidence are outdated, widgets get new values."""
    update(indexes_behind=True, index_message="", generation=present().generation + 1)
    inspect_state.forget_evidence()


def select(memory_id: str | None) -> None:
    """Show a memory in full, or none."""
    update(selected=memory_id, editing=False, problem="", notice="")


def show_in_browse(memory_id: str) -> None:
    """Show a memory in full in the view Browse; before the page is drawn."""
    select(memory_id)
    st.session_state[VIEW] = "Browse"


def ask_if_gone(memory_id: str) -> None:
    """Show what still holds a deleted memory, in the view Audit; before the page is drawn."""
    update(deleted=None, asked_gone=memory_id)
    st.session_state[VIEW] = "Audit"


def open_in_memories(memory_id: str) -> None:
    """Go to the Memories page and show this memory in full; does not return. Called from another page."""
    show_in_browse(memory_id)
    go("pages/memories.py")


def edit(on: bool) -> None:
    """Open or close the form; a newly opened one shows the stored values."""
    update(editing=on, problem="", notice="", generation=present().generation + 1)


def save(resources: Resources, memory: Memory, before: Memory) -> bool:
    """Save an edited memory; False after an error, which the page shows."""
    with guarded("operator"):
        differs = resources.store.memories.update(memory, before)
        update(editing=False, problem="", notice="Saved." if differs else "No changes.")
        if differs:
            changed()
        return True
    return False


def delete(resources: Resources, memory_id: str) -> None:
    """Delete a memory and offer to undo it."""
    with guarded("operator"):
        gone = resources.store.memories.delete(memory_id)
        update(selected=None, editing=False, problem="", notice="", deleted=memory_id if gone else None)
        if gone:
            changed()
            st.toast("Memory deleted", icon=":material/delete:")


def restore(resources: Resources, *memory_ids: str) -> None:
    """Restore deleted memories."""
    with guarded("operator"):
        back = [memory_id for memory_id in memory_ids if resources.store.memories.restore(memory_id)]
        update(deleted=None, problem="", notice="", selected=back[0] if len(back) == 1 else None, editing=False)
        if back:
            changed()
            st.toast(f"{len(back):,} {'memory' if len(back) == 1 else 'memories'} restored", icon=":material/undo:")


STOP_HELP = "Stop here. Finished work is kept; the next search, or Refresh under Store, does the rest."


def cancellable_job(place: DeltaGenerator, name: str, stop: str = STOP_HELP) -> AbstractContextManager[Progress]:
    """A progress bar in `place`, with Cancel (tooltip `stop`), which also skips the pending index refresh."""
    return cancellable(f"memories:cancel:{name}", stop, place=place, on_cancel=partial(update, indexes_behind=False))


def refresh_indexes(resources: Resources, place: DeltaGenerator) -> None:
    """Refresh outdated indexes. An error is shown once; the next search retries."""
    if not present().indexes_behind:
        return
    try:
        with cancellable_job(place, "refresh") as progress:
            resources.refresh(progress)
    except WorkbenchError:
        update(indexes_behind=False)
        raise
    update(indexes_behind=False)
