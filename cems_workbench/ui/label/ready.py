"""The ready-made queue: begun when the page is first opened on a store that has no queue, and watched until it is there."""

from __future__ import annotations

import streamlit as st

from cems_workbench.jobs.ready_queue import BackgroundQueue, ready_plan
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.kit import panels

EVERY = 0.5
"""Seconds between two looks at a queue that is being made."""


@st.cache_resource(show_spinner=False)
def _made() -> dict[str, BackgroundQueue]:
    """The last ready-made queue of each store that this process opened, by its folder; shared by all sessions."""
    return {}


def draw(resources: Resources) -> None:
    """How far the ready-made queue of a store without queues is; begun by whoever is here first."""
    store = str(resources.store.path)
    if store not in _made() and not _begin(resources):
        panels.empty(
            "Nothing to judge yet",
            "A queue holds what some configs rank first for the queries of a set, and this store has no queries. Import some on the "
            "Memories page.",
        )
        return
    at_work = _made()[store]
    if at_work.over:
        _over(at_work, resources)
    else:
        _watch(store)


def _begin(resources: Resources) -> bool:
    """Begin the ready-made queue of a store; False where there is nothing to make one of."""
    plan = ready_plan(resources)
    if plan is not None:
        _made()[str(resources.store.path)] = BackgroundQueue(resources, plan).start()
    return plan is not None


@st.fragment(run_every=EVERY)
def _watch(store: str) -> None:
    """What is being made and how far it is; drawn again and again without the rest of the page."""
    at_work = _made()[store]
    if at_work.over:
        st.rerun()
    panels.empty("A first queue is being made", _contents(at_work))
    bar, button = st.columns([5, 1], vertical_alignment="center")
    bar.progress(at_work.done / max(1, at_work.total), text=f"{at_work.done} of {at_work.total} queries searched")
    button.button("Cancel", key="label:ready:cancel", on_click=at_work.stop, width="stretch")


def _over(at_work: BackgroundQueue, resources: Resources) -> None:
    """There is none: why, and how to have one."""
    why = f"It could not be made: {at_work.problem}" if at_work.problem else "It was deleted."
    panels.empty("There is no queue", f"{why} {_contents(at_work)}")
    if st.button("Make the ready-made queue", key="label:ready:again", icon=":material/playlist_add:"):
        _begin(resources)
        st.rerun()


def _contents(at_work: BackgroundQueue) -> str:
    selection = at_work.plan.selection
    return (
        f"A ready-made queue holds what the preset {next(iter(at_work.plan.configs))} ranks first for {len(selection.queries)} queries of "
        f"{selection.query_set}, without what people have judged. New queue makes one of your own configs."
    )
