"""The ready-made queue: created in the background when the page is first opened on a store without queues."""

from __future__ import annotations

import streamlit as st

from cems_workbench.jobs.ready_queue import BackgroundQueue, ready_plan
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.kit import widgets

REDRAW_INTERVAL_S = 0.5
"""Interval between redraws of the progress."""


@st.cache_resource(show_spinner=False)
def _background_queues() -> dict[str, BackgroundQueue]:
    """The last ready-made queue of each open store, by its folder; shared by all sessions."""
    return {}


def draw(resources: Resources) -> None:
    """Draw the progress of the ready-made queue; the first session starts it."""
    store = str(resources.store.path)
    if store not in _background_queues() and not _start(resources):
        widgets.empty(
            "Nothing to judge yet",
            "A queue holds the top results of some configs for the queries of a set, and this store has no queries. Import queries on the "
            "Memories page.",
        )
        return
    at_work = _background_queues()[store]
    if at_work.over:
        _draw_no_queue(at_work, resources)
    else:
        _watch(store)


def _start(resources: Resources) -> bool:
    """Start creating the ready-made queue of a store; False if the store has no queries for one."""
    plan = ready_plan(resources)
    if plan is not None:
        _background_queues()[str(resources.store.path)] = BackgroundQueue(resources, plan).start()
    return plan is not None


@st.fragment(run_every=REDRAW_INTERVAL_S)
def _watch(store: str) -> None:
    """Draw the progress; a fragment that reruns without the rest of the page."""
    at_work = _background_queues()[store]
    if at_work.over:
        st.rerun()
    widgets.empty("Creating a first queue", _contents(at_work))
    bar, button = st.columns([5, 1], vertical_alignment="center")
    bar.progress(at_work.done / max(1, at_work.total), text=f"{at_work.done} of {at_work.total} queries searched")
    button.button("Cancel", key="label:ready:cancel", on_click=at_work.stop, width="stretch")


def _draw_no_queue(at_work: BackgroundQueue, resources: Resources) -> None:
    """Draw why there is no queue, and how to create one."""
    why = f"It could not be created: {at_work.problem}" if at_work.problem else "It was deleted."
    widgets.empty("There is no queue", f"{why} {_contents(at_work)}")
    if st.button("Create the ready-made queue", key="label:ready:again", icon=":material/playlist_add:"):
        _start(resources)
        st.rerun()


def _contents(at_work: BackgroundQueue) -> str:
    selection = at_work.plan.selection
    return (
        f"A ready-made queue holds the top results of the preset {next(iter(at_work.plan.configs))} for {len(selection.queries)} queries "
        f"of {selection.query_set}, without pairs that people have judged. New queue creates one from your configs."
    )
