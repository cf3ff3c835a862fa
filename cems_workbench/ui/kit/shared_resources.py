"""Store and models of the server process, shared by all sessions."""

from __future__ import annotations

import importlib
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
from cems_workbench.platform.waiting import NOTICES
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from cems_workbench.ui.kit import reviewer
from cems_workbench.ui.kit.escape import plain

WARM_UP_DELAY_S = 2.0
"""Delay before models are loaded: loading holds the interpreter lock and would delay the first paint."""

OF_A_QUERY = ("cems_workbench.ui.inspect.searched", "cems_workbench.ui.inspect.views.contributions")
"""Imports of the first query's page."""


@dataclass
class WarmUpState:
    """State of the background loading of models and indexes."""

    state: Literal["cold", "loading", "ready", "failed"] = "cold"
    problem: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)


_next_resources: list[Resources] = []
_switching = threading.Lock()


@st.cache_resource(show_spinner=False)
def resources() -> Resources:
    """The open store: the one from the settings until `switch` opens another. Raises StoreError with a line for the page."""
    NOTICES.notify(_toast, _session)
    return _next_resources.pop() if _next_resources else open_resources(Settings())


def _session() -> str:
    """The session that the page of this thread belongs to."""
    context = get_script_run_ctx(suppress_warning=True)
    return "" if context is None else context.session_id


def _toast(line: str) -> None:
    """Show a toast on the page that waits for this thread, e.g. that another process holds the store's lock.

    From a separate thread: Streamlit replays elements drawn inside a cached function on every cache hit.
    """
    context = get_script_run_ctx(suppress_warning=True)
    if context is not None:
        words = plain(f"{line[0].upper()}{line[1:]}")
        saying = threading.Thread(target=st.toast, args=(words,), kwargs={"icon": ":material/hourglass_top:"})
        add_script_run_ctx(saying, context)
        saying.start()


def show_errors(main: Callable[[], None]) -> Callable[[], None]:
    """Decorate a page so that a WorkbenchError is shown as one line where it occurred.

    Background jobs yield to the page while it is drawn.
    """

    @wraps(main)
    def draw() -> None:
        try:
            with FOREGROUND.foreground_work():
                main()
        except WorkbenchError as error:
            st.error(plain(str(error)), icon=":material/error:")

    return draw


def open_or_explain() -> Resources | None:
    """The open store; None if it cannot be opened (the error is drawn). Stops the page before sign-in."""
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
def warm_up_state() -> WarmUpState:
    """The loading state, one per process."""
    return WarmUpState()


def switch(folder: str, *, create: bool) -> Resources:
    """Close the open store and open or create the one in `folder`, for every session of this process.

    Raises StoreError or InputError with a line for the page; the previous store then stays open.
    """
    if not folder:
        raise StoreError("type the path of a folder first")
    path = allowed_path(folder, Settings())
    there = Store.exists(path)
    with _switching:
        present = _present()
        if there == create:
            hint = "a store already exists; press Open" if there else "there is no store; press Create to make one"
            raise StoreError(f"{path}: {hint}")
        if present is not None and present.store.path.resolve() == path.resolve():
            return present
        settings = Settings()
        store = Store.open(path, create=create, chroma_url=settings.chroma_url, team=settings.team)
        wanted = for_store(settings, store)
        if present is not None and for_store(settings, present.store).embedder == wanted.embedder:
            model = present.embedder  # already loaded
        else:
            model = embedder(wanted)
        _next_resources.append(Resources(store, model, servers(settings)))
        resources.clear()
        warm_up_state.clear()
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
    """Load models and indexes in the background, once; called after the page is drawn so that it is shown first."""
    state = warm_up_state()
    with state.lock:
        if state.state != "cold":
            return
        state.state = "loading"
    threading.Thread(target=_load, args=(opened, state), name="warm-up", daemon=True).start()


def _load(opened: Resources, state: WarmUpState) -> None:
    time.sleep(WARM_UP_DELAY_S)
    try:
        for name in OF_A_QUERY:
            importlib.import_module(name)
        opened.embedder.encode_query("warm up")
        opened.refresh()
        state.state = "ready"
    except Exception as error:
        # The next search meets the same error in the foreground and shows it.
        state.state, state.problem = "failed", str(error)
