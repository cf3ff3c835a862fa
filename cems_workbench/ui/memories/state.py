"""The Memories page's own state, and the work it starts: every change of the store goes through here.

A change marks the indexes as due; the page brings them up to date after it is drawn, with progress, so that the
change itself is on screen at once. Any click interrupts that work, and the next run of the page goes on with it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.errors import WorkbenchError
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress
from cems_workbench.records import Memory
from cems_workbench.ui.inspect import state as inspect_state
from cems_workbench.ui.kit.escape import plain

View = Literal["Browse", "Import", "Statistics", "Deleted", "Store"]
VIEWS: tuple[View, ...] = ("Browse", "Import", "Statistics", "Deleted", "Store")
FIRST: dict[str, Any] = {
    "selected": None,
    "editing": False,
    "generation": 0,
    "undo": None,
    "due": False,
    "outcomes": (),
    "near": None,
    "rebuilt": "",
    "problem": "",
    "notice": "",
}


def prepare(resources: Resources) -> None:
    """Give the page's state its first values; anew when the store is not the one it belongs to."""
    path = str(resources.store.path)
    if st.session_state.setdefault("mem:store", path) != path:
        forget_store()
        st.session_state["mem:store"] = path
    for name, value in FIRST.items():
        st.session_state.setdefault(f"mem:{name}", value)


def get(name: str) -> Any:
    """A value of the page's state."""
    return st.session_state[f"mem:{name}"]


def put(**values: Any) -> None:
    """Set values of the page's state."""
    for name, value in values.items():
        st.session_state[f"mem:{name}"] = value


def forget_store() -> None:
    """Drop all that belongs to the store that was open: here, and the query and evidence of the Inspect page."""
    for key in [key for key in st.session_state if str(key).startswith("mem:") and key != "mem:view"]:
        del st.session_state[key]
    inspect_state.forget_store()


def changed() -> None:
    """The store's content has changed: indexes and evidence are behind, widgets show new values."""
    put(due=True, near=None, rebuilt="", generation=get("generation") + 1)
    inspect_state.forget_evidence()


def select(memory_id: str | None) -> None:
    """Show a memory in full, or none."""
    put(selected=memory_id, editing=False, problem="", notice="")


def edit(on: bool) -> None:
    """Open or close the form; a newly opened one shows the stored values."""
    put(editing=on, problem="", notice="", generation=get("generation") + 1)


def update(resources: Resources, memory: Memory, before: Memory) -> bool:
    """Save an edited memory; False after an error, which is kept for the page."""
    try:
        differs = resources.store.memories.update(memory, before)
    except WorkbenchError as error:
        put(problem=str(error))
        return False
    put(editing=False, problem="", notice="Saved." if differs else "Nothing was changed.")
    if differs:
        changed()
    return True


def delete(resources: Resources, memory_id: str) -> None:
    """Delete a memory and offer to undo it."""
    try:
        gone = resources.store.memories.delete(memory_id)
    except WorkbenchError as error:
        put(problem=str(error))
        return
    put(selected=None, editing=False, problem="", notice="", undo=memory_id if gone else None)
    if gone:
        changed()
        st.toast("Memory deleted", icon=":material/delete:")


def restore(resources: Resources, *memory_ids: str) -> None:
    """Bring deleted memories back."""
    try:
        back = [memory_id for memory_id in memory_ids if resources.store.memories.restore(memory_id)]
    except WorkbenchError as error:
        put(problem=str(error))
        return
    put(undo=None, problem="", notice="", selected=back[0] if len(back) == 1 else None, editing=False)
    if back:
        changed()
        st.toast(f"{len(back):,} {'memory' if len(back) == 1 else 'memories'} restored", icon=":material/undo:")


@contextmanager
def work(place: DeltaGenerator, key: str) -> Iterator[Progress]:
    """Progress with a count, an estimate and a Cancel button in `place`, which is empty again afterwards.

    Cancel, like any click, starts the page anew: the next report of the work then raises, and what it finished stays.
    """
    with place.container():
        bar, button = st.columns([6, 1], vertical_alignment="center")
        button.button(
            "Cancel", key=f"mem:cancel:{key}", on_click=put, kwargs={"due": False}, width="stretch",
            help="Stop here. What is finished stays; the next search, or Bring up to date under Store, does the rest.",
        )  # fmt: skip
        yield reporter(bar.empty())
    place.empty()


def reporter(place: DeltaGenerator) -> Progress:
    """A progress that draws a bar in `place`."""
    began: dict[str, float] = {}

    def report(label: str, done: int, total: int) -> None:
        elapsed = time.monotonic() - began.setdefault(label, time.monotonic())
        share = min(done / total, 1.0) if total else 0.0
        place.progress(share, text=plain(f"{label}: {progress_text(label, done, total, elapsed)}"))

    return report


def progress_text(label: str, done: int, total: int, elapsed: float) -> str:
    """How far work is, and about how long it will take still; reading counts bytes, which are shown as a share."""
    count = f"{100 * done // total if total else 0} %" if label.startswith("reading") else f"{done:,} of {total:,}"
    if elapsed < 1 or not 0 < done < total:
        return count
    left = elapsed * (total - done) / done
    return f"{count}, about {left:.0f} s left" if left < 90 else f"{count}, about {left / 60:.0f} min left"


def bring_up_to_date(resources: Resources, place: DeltaGenerator) -> None:
    """Refresh the indexes when a change made that due."""
    if not get("due"):
        return
    with work(place, "refresh") as progress:
        resources.refresh(progress)
    put(due=False)
