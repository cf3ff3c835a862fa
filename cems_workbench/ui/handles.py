"""The store and the models of this server process, shared by all sessions."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Literal

import streamlit as st

from cems_workbench.pipeline.resources import Resources
from cems_workbench.resources import open_resources
from cems_workbench.settings import Settings

PAINT_SECONDS = 2.0
"""Head start of the first page: importing torch holds the interpreter and would delay what is on its way to the browser."""


@dataclass
class Warmth:
    """How far the background loading of models and indexes is."""

    state: Literal["cold", "loading", "ready", "failed"] = "cold"
    problem: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)


@st.cache_resource(show_spinner=False)
def resources() -> Resources:
    """The open store. Raises StoreLockedError or StoreError with a line for the page."""
    return open_resources(Settings())


@st.cache_resource(show_spinner=False)
def warmth() -> Warmth:
    """The loading state, one per process."""
    return Warmth()


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
