"""The Label page: grade pooled results blind and by keyboard, measure reviewer agreement, resolve conflicts."""

from __future__ import annotations

import streamlit as st

from cems_workbench.jobs.store_status import team_status
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import begin_page, plain, write_script
from cems_workbench.ui.kit.widgets import errors_shown, switch
from cems_workbench.ui.label import agreement, card, files, queues, state, superseded

CACHE_S = 60
"""Cache time of the lines."""


def draw(resources: Resources) -> None:
    """Draw the notice; nothing for a store with its own labels."""
    where = resources.store.team.place
    if not where:
        return
    st.caption(plain(f"Labels are stored in the team's database {where}"))
    for line in _lines(str(resources.store.path), resources):
        st.caption(plain(line))


@st.cache_data(ttl=CACHE_S, show_spinner=False)
def _lines(store: str, _resources: Resources) -> list[str]:
    return team_status(_resources.store)


def draw_label(resources: Resources) -> None:
    """Draw the reviewer's name, the queue and the card."""
    write_script("label_keys")  # before the boxes and the card, so that no early key press is lost
    name_box, queue_box, new_box = st.columns([2, 4, 1.4], vertical_alignment="bottom")
    with name_box:
        session.ask()
    draw(resources)
    queue = queues.choose(resources, queue_box, new_box)
    name = session.reviewer()
    if queue is None:
        return
    if name is None:
        how = "Sign in" if session.sign_in_configured() else "Enter your name"
        st.info(f"{how} above to start.", icon=":material/badge:")
        return
    card.draw(state.open_queue(resources, queue), resources, name)


def draw_queue(resources: Resources) -> None:
    """Draw the queue's settings, progress and coverage."""
    queue_box, new_box = st.columns([6, 1.4], vertical_alignment="bottom")
    draw(resources)
    queue = queues.choose(resources, queue_box, new_box)
    if queue is not None:
        queues.draw_queues(state.open_queue(resources, queue), resources)


VIEWS = {
    "Label": draw_label,
    "Queue": draw_queue,
    "Superseded": superseded.draw,
    "Agreement": agreement.draw,
    "People and judge": agreement.draw_judge,
    "Files": files.draw,
}


@session.show_errors
def main() -> None:
    """Draw the page."""
    begin_page("Label", "label")
    resources = session.open_or_explain()
    if resources is None:
        return
    view = switch("View", list(VIEWS), state.VIEW)
    with errors_shown():
        VIEWS[view](resources)
