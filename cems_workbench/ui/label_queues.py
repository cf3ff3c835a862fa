"""Queues: which one is at work, making one from what chosen configs rank first, and one of what a comparison left unjudged."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.pooling import Strategy
from cems_workbench.evaluation.queue_making import QueuePlan, assemble
from cems_workbench.evaluation.shelf import Wanted
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.evaluate_state import config_options
from cems_workbench.ui.label_work import working
from cems_workbench.ui.memories_escape import plain

ORDERS: dict[str, tuple[Strategy, str]] = {
    "Top first": ("top", "What is ranked first by any config comes first."),
    "Shuffled": ("shuffled", "The place in the queue says nothing of the rank; everybody has an order of their own."),
    "Decisive first": (
        "decisive",
        "What could change which of the first two configs is better comes first, anew after each label; the rest is left out.",
    ),
    "Uncertain first": ("uncertain", "What the model judge is least sure of comes first."),
}
MADE = "lb:made"
UNJUDGED_DEPTH = 10
"""Results of each config that a comparison is judged to: what its measures look at."""


def choose(resources: Resources, left: DeltaGenerator, right: DeltaGenerator) -> str | None:
    """The queue at work, chosen in `left` or made in `right`; None while there is none."""
    if (made := st.session_state.pop(MADE, None)) is not None:  # before the widgets, which own these values afterwards
        st.session_state["lb:chosen"], st.session_state["lb:new"] = made, False
    queues = {one.name: one for one in resources.store.labels.queues()}
    name: str | None = None
    if queues:
        name = left.selectbox(
            "Queue", list(queues), key="lb:chosen", persist_state="session",
            format_func=lambda one: f"{one} · {queues[one].overlap} reviewer{'s' if queues[one].overlap > 1 else ''} a pair",
        )  # fmt: skip
    else:
        st.html(
            '<div class="wb-empty"><h3>Judge results, quickly and blind</h3><p>A queue holds what some configs rank first, for the '
            "queries of a set. Make one, and grade it with the keys 0 to 3.</p></div>"
        )
    box = right.popover("New queue", icon=":material/add:", width="stretch", key="lb:new", on_change="rerun")
    if box.open:
        with box:
            plan = _form(resources)
        if plan is not None:
            _keep(plan, resources)
    _offer_unjudged(resources)
    return name


def _keep(plan: QueuePlan, resources: Resources) -> None:
    """Make a queue and put it to work; what was gathered before a cancel is gone on with next time."""
    try:
        with working("queue") as progress:
            queue = assemble(plan, resources, progress)
        resources.store.labels.keep_queue(queue)
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")
        return
    st.session_state[MADE] = plan.name
    st.session_state.pop("lb:queue", None)
    st.rerun()


def _offer_unjudged(resources: Resources) -> None:
    """What the comparison on the Evaluate page was chosen of, as a queue of its unjudged results, in one click."""
    names, query_set = st.session_state.get("ev:configs"), st.session_state.get("ev:set")
    sets = {one.name for one in resources.store.query_sets()}
    if not names or query_set not in sets:
        return
    said = ", ".join(plain(str(name)) for name in names)
    pressed = st.button(
        f"Queue what is not judged of {said}", key="lb:unjudged", icon=":material/playlist_add:", type="tertiary",
        help=f"The comparison on the Evaluate page: the first {UNJUDGED_DEPTH} results of these configs for the judged queries of "
        f"{plain(query_set)} that no person has judged.",
    )  # fmt: skip
    if not pressed:
        return
    options = config_options(resources)
    chosen = {name: options[name] for name in names if name in options}
    judged = {one.qid for one in resources.store.judgments()}
    queries = tuple(query for query in resources.store.queries(query_set) if query.qid in judged)
    within = bool(st.session_state.get("ev:project_only"))
    _keep(QueuePlan(f"{query_set}-unjudged", Wanted(query_set, queries, within), chosen, UNJUDGED_DEPTH), resources)


def _form(resources: Resources) -> QueuePlan | None:
    """The form of a new queue; its plan when it is to be made."""
    sets = {one.name: one for one in resources.store.query_sets()}
    if not sets:
        st.caption("This store has no queries. Import some on the Memories page first.")
        return None
    options = config_options(resources)
    query_set = st.selectbox(
        "Query set", sorted(sets), key="lb:new:set", format_func=lambda one: f"{one} · {sets[one].size} queries"
    )
    configs = st.multiselect(
        "Configs", list(options), default=[name for name in ("cems", "recollection") if name in options], key="lb:new:configs",
        help="What any of them ranks within the depth is in the queue.",
    )  # fmt: skip
    depth = st.number_input(
        "Depth", 1, 100, 10, key="lb:new:depth", help="Results of each config and query that are pooled."
    )
    order = st.selectbox(
        "Order",
        list(ORDERS),
        key="lb:new:order",
        help="  \n".join(f"{name}: {about}" for name, (_, about) in ORDERS.items()),
    )
    overlap = st.number_input(
        "Reviewers a pair", 1, 10, 1, key="lb:new:overlap", help="More than one to measure how far reviewers agree."
    )
    fresh = st.toggle("Leave out what people judged already", value=overlap == 1, key="lb:new:fresh")
    usual = f"{query_set}-{ORDERS[order][0]}"
    name = st.text_input(
        "Name",
        key="lb:new:name",
        max_chars=120,
        placeholder=usual,
        help="A queue of the same name is replaced; labels stay.",
    )
    if not st.button("Make the queue", key="lb:new:make", type="primary", width="stretch"):
        return None
    wanted = Wanted(query_set, tuple(resources.store.queries(query_set)))
    chosen = {one: options[one] for one in configs}
    return QueuePlan(name.strip() or usual, wanted, chosen, int(depth), ORDERS[order][0], int(overlap), bool(fresh))
