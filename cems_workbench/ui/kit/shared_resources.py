"""The store and the models of this server process, shared by all sessions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Literal

import streamlit as st
from streamlit.runtime.scriptrunner import add_script_run_ctx, get_script_run_ctx

from cems_workbench.errors import StoreError, WorkbenchError
from cems_workbench.jobs.access import allowed_path
from cems_workbench.jobs.background_priority import FOREGROUND
from cems_workbench.jobs.factory import embedder, for_store, open_resources, servers
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.process_lock import set_wait_notifier
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from cems_workbench.ui.kit import reviewer
from cems_workbench.ui.kit.escape import plain

PAINT_SECONDS = 2.0
"""Head start of the first page: loading models holds the interpreter and would delay what is on its way to the browser."""


@dataclass
class Warmth:
    """How far the background loading of models and indexes is."""

    state: Literal["cold", "loading", "ready", "failed"] = "cold"
    problem: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)


_handed_over: list[Resources] = []
_switching = threading.Lock()


@st.cache_resource(show_spinner=False)
def resources() -> Resources:
    """The open store: the one the settings name, until `switch`. Raises StoreError with a line for the page."""
    set_wait_notifier(_said_on_page)
    return _handed_over.pop() if _handed_over else open_resources(Settings())


def _said_on_page(line: str) -> None:
    """That another process has the store, or that the team's database is away, where somebody looks at a page for which this thread waits.

    Said in a thread of its own: what is said inside a cached function would be said again whenever that is asked.
    """
    context = get_script_run_ctx(suppress_warning=True)
    if context is not None:
        words = plain(f"{line[0].upper()}{line[1:]}")
        saying = threading.Thread(target=st.toast, args=(words,), kwargs={"icon": ":material/hourglass_top:"})
        add_script_run_ctx(saying, context)
        saying.start()


def said_in_place(main: Callable[[], None]) -> Callable[[], None]:
    """A page that says what a user can act on where it was met, such as a damaged block of the database, in a line.

    What is done in the background gives way to it.
    """

    @wraps(main)
    def draw() -> None:
        try:
            with FOREGROUND.foreground_work():
                main()
        except WorkbenchError as error:
            st.error(plain(str(error)), icon=":material/error:")

    return draw


def opened() -> Resources | None:
    """The open store; None where it cannot be opened, and the page has said why. Ends the page before sign-in."""
    reviewer.gate()
    try:
        found = resources()
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/lock:")
        return None
    for line in found.notices:
        st.warning(plain(line), icon=":material/healing:")
    return found


@st.cache_resource(show_spinner=False)
def warmth() -> Warmth:
    """The loading state, one per process."""
    return Warmth()


def switch(folder: str, *, create: bool) -> Resources:
    """Close the open store and open the one in `folder`, or create it there; for every session of this process.

    Raises StoreError or InputError with a line for the page; the store that was open is open still, then.
    """
    if not folder:
        raise StoreError("type the path of a folder first")
    path = allowed_path(folder, Settings())
    there = Store.exists(path)
    with _switching:
        present = _present()
        if there == create:
            hint = "there is a store already; press Open" if there else "there is no store; Create makes one"
            raise StoreError(f"{path}: {hint}")
        if present is not None and present.store.path.resolve() == path.resolve():
            return present
        settings = Settings()
        store = Store.open(path, create=create, chroma_url=settings.chroma_url, team=settings.team)
        wanted = for_store(settings, store)
        if present is not None and for_store(settings, present.store).embedder == wanted.embedder:
            model = present.embedder  # it is loaded
        else:
            model = embedder(wanted)
        _handed_over.append(Resources(store, model, servers(settings)))
        resources.clear()
        warmth.clear()
        opened = resources()
        if present is not None:
            present.close()
    return opened


def _present() -> Resources | None:
    """The store that is open, None when it could not be opened."""
    try:
        return resources()
    except StoreError:
        return None


def warm_up(opened: Resources) -> None:
    """Load models and indexes in the background, once; called after the page is drawn so that it paints first."""
    state = warmth()
    with state.lock:
        if state.state != "cold":
            return
        state.state = "loading"
    threading.Thread(target=_load, args=(opened, state), name="warm-up", daemon=True).start()


def _load(opened: Resources, state: Warmth) -> None:
    time.sleep(PAINT_SECONDS)
    try:
        opened.embedder.encode_query("warm up")
        opened.refresh()
        state.state = "ready"
    except Exception as error:
        # Whatever it was, the next search meets it again in the foreground and shows it there.
        state.state, state.problem = "failed", str(error)
