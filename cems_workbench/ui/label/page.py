"""Label: grade pooled results quickly, blind and by keyboard; see how far reviewers agree, and settle their conflicts."""

from __future__ import annotations

import streamlit as st

from cems_workbench.errors import WorkbenchError
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit import handles, reviewer
from cems_workbench.ui.kit.assets import write_stylesheet
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.label import agreement as label_agreement
from cems_workbench.ui.label import card as label_card
from cems_workbench.ui.label import files as label_files
from cems_workbench.ui.label import judge as label_judge
from cems_workbench.ui.label import keys as label_keys
from cems_workbench.ui.label import queues as label_queue_view
from cems_workbench.ui.label import queues as label_queues
from cems_workbench.ui.label import state as labels

VIEWS = ("Label", "Queue", "Agreement", "People and judge", "Files")


def draw_label(resources: Resources) -> None:
    """The name, the queue, the card."""
    name_box, queue_box, new_box = st.columns([2, 4, 1.4], vertical_alignment="bottom")
    with name_box:
        reviewer.ask()
    name = label_queues.choose(resources, queue_box, new_box)
    who = reviewer.reviewer()
    if name is None:
        return
    if who is None:
        how = "Sign in" if reviewer.sign_in_configured() else "Give your name"
        st.info(f"{how} above to begin.", icon=":material/badge:")
        return
    label_keys.listen()
    label_card.draw(labels.queue(resources, name), resources, who)


def draw_queue(resources: Resources) -> None:
    """The queue at large."""
    queue_box, new_box = st.columns([6, 1.4], vertical_alignment="bottom")
    name = label_queues.choose(resources, queue_box, new_box)
    if name is not None:
        label_queue_view.draw(labels.queue(resources, name), resources)


def main() -> None:
    """Draw the page."""
    state.prepare()
    write_stylesheet("workbench", "label")
    try:
        resources = handles.resources()
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/lock:")
        return
    view = st.segmented_control(
        "View",
        VIEWS,
        default="Label",
        required=True,
        key="lb:view",
        label_visibility="collapsed",
        persist_state="session",
    )
    try:
        if view == "Agreement":
            label_agreement.draw(resources, reviewer.reviewer())
        elif view == "Queue":
            draw_queue(resources)
        elif view == "Files":
            label_files.draw(resources)
        elif view == "People and judge":
            label_judge.draw(resources, reviewer.reviewer())
        else:
            draw_label(resources)
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")
    labels.settle()
