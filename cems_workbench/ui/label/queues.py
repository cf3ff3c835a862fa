"""A queue at large: how it was made, who did how much, how much of each query's results is judged, and pre-labelling by the judge.

Queues: which one is at work, making one from what chosen configs rank first, and one of what a comparison left unjudged.
"""

from __future__ import annotations

from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.labelling.pooling import Strategy, coverage, mean_judged
from cems_workbench.evaluation.labelling.prejudging import PairScores, prelabel
from cems_workbench.evaluation.labelling.queue import LabelQueue, QueueSnapshot
from cems_workbench.pipeline.resources import Resources
from cems_workbench.runs.gathering import QuerySelection, judged_selection
from cems_workbench.runs.labelling import QueuePlan, assemble
from cems_workbench.ui.evaluate.state import config_options
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.tables import ROW
from cems_workbench.ui.label.work import working

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
    queues = {one.name: one for one in resources.store.queues.read()}
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
        resources.store.queues.save(queue)
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")
        return
    st.session_state[MADE] = plan.name
    st.session_state.pop("lb:queue", None)
    st.rerun()


def _offer_unjudged(resources: Resources) -> None:
    """What the comparison on the Evaluate page was chosen of, as a queue of its unjudged results, in one click."""
    names, query_set = st.session_state.get("ev:configs"), st.session_state.get("ev:set")
    sets = {one.name for one in resources.store.query_sets.latest()}
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
    options = config_options(resources).configs
    chosen = {name: options[name] for name in names if name in options}
    within = bool(st.session_state.get("ev:project_only"))
    selection = judged_selection(query_set, resources, resources.store.judgments.read(), within)
    _keep(QueuePlan(f"{query_set}-unjudged", selection, chosen, UNJUDGED_DEPTH), resources)


def _form(resources: Resources) -> QueuePlan | None:
    """The form of a new queue; its plan when it is to be made."""
    sets = {one.name: one for one in resources.store.query_sets.latest()}
    if not sets:
        st.caption("This store has no queries. Import some on the Memories page first.")
        return None
    options = config_options(resources).configs
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
    selection = QuerySelection(query_set, tuple(resources.store.query_sets.queries(query_set)))
    chosen = {one: options[one] for one in configs}
    return QueuePlan(name.strip() or usual, selection, chosen, int(depth), ORDERS[order][0], int(overlap), bool(fresh))


DONE = "lb:prelabelled"
JUDGED = (
    "Judged@k: the share of the first k results that is judged. What is not judged counts as not relevant in every measure, so a "
    "config with low coverage is measured too low."
)
PRELABEL = (
    "The judge of Inspect grades the pairs by its bands: highly relevant is the highest grade, irrelevant the lowest. They are kept as "
    "judgments of a model, beside people’s and never in their place. Evaluate says whose judgments it uses."
)


def draw(at_work: LabelQueue, resources: Resources) -> None:
    """The queue, its coverage, and what can be done with it."""
    snapshot = at_work.snapshot()
    _about(at_work, snapshot)
    _coverage(at_work, resources)
    _prelabel(at_work, resources)
    _forget(at_work, resources)


def _about(at_work: LabelQueue, snapshot: QueueSnapshot) -> None:
    record = at_work.record
    how = record.settings
    order = next((name for name, (strategy, _) in ORDERS.items() if strategy == how.get("strategy")), "in its order")
    configs = ", ".join(plain(str(name)) for name in how.get("configs", ()))
    made = f"{record.created_at:%Y-%m-%d %H:%M} UTC"
    source = f" from query set {plain(str(how['query_set']))}" if how.get("query_set") else ""
    pooled = f", the first {how['depth']} of {configs}" if configs and how.get("depth") else ""
    st.caption(f"{len(at_work.pairs):,} pairs{source}{pooled}; {order.lower()}; made {made}.")
    reviewers = sorted({one.judge for one in snapshot.labels})
    if not reviewers:
        st.caption("Nobody has graded any of them yet.")
        return
    rows = []
    for who in reviewers:
        progress = at_work.progress(who, snapshot)
        rows.append(
            {
                "reviewer": who, "graded": progress.graded, "skipped": progress.skipped,
                "unclear queries": progress.unclear, "left": progress.left, "seconds a card": progress.seconds_per_label,
            }
        )  # fmt: skip
    st.dataframe(
        rows, hide_index=True, key="lb:reviewers", row_height=ROW, placeholder="–", height=ROW * (min(len(rows), 8) + 1) + 4,
        column_config={
            "left": st.column_config.NumberColumn("left", help="Pairs this reviewer could still be dealt"),
            "seconds a card": st.column_config.NumberColumn(
                "seconds a card", format="%.1f", help="The median over the latest labels, pauses left out"
            ),
        },
    )  # fmt: skip


def _coverage(at_work: LabelQueue, resources: Resources) -> None:
    """Judged@k of each query under each config of the queue."""
    kept = resources.store.queues.rankings(at_work.record.name)
    rankings = {name: kept[name] for name in at_work.record.settings.get("configs", kept) if name in kept}
    st.markdown("###### Coverage", help=JUDGED)
    if not rankings:
        st.caption("What the configs returned was not kept with this queue; a new one keeps it.")
        return
    deepest = max(len(row) for ranked in rankings.values() for row in ranked.values())
    left, right, _ = st.columns([1, 1.4, 2], vertical_alignment="bottom")
    k = int(
        left.number_input("k", 1, max(deepest, 1), min(10, max(deepest, 1)), key="lb:cover:k", persist_state="session")
    )
    whose = right.selectbox("Judged by", ["people", "people or models"], key="lb:cover:by", persist_state="session")
    judgments = resources.store.judgments.read(kind="human" if whose == "people" else None)
    found = coverage(rankings, {(one.qid, one.memory_id) for one in judgments}, k)
    means = mean_judged(found)
    parts = " · ".join(f"{plain(name)} **{share:.0%}**" for name, share in means.items())
    full = sum(not one.unjudged for one in found)
    st.markdown(f"Judged@{k}: {parts} · {full} of {len(found)} queries fully judged")
    words = {query.qid: query.query for query in resources.store.queries.read()}
    rows: list[dict[str, Any]] = [
        {
            "query": words.get(one.qid, one.qid),
            **{name: 100 * one.judged[name] if name in one.judged else None for name in rankings},
            "unjudged": len(one.unjudged),
        }
        for one in found
    ]
    columns: dict[str, Any] = {
        name: st.column_config.ProgressColumn(name, format="%.0f %%", min_value=0.0, max_value=100.0, width=130)
        for name in rankings
    }
    columns["unjudged"] = st.column_config.NumberColumn(
        "unjudged", width=86, help="Distinct results within k that are not judged"
    )
    st.dataframe(
        rows, hide_index=True, key="lb:coverage", row_height=ROW, height=ROW * (min(len(rows), 10) + 1) + 4,
        column_config=columns, placeholder="–",
    )  # fmt: skip


def _prelabel(at_work: LabelQueue, resources: Resources) -> None:
    """Grades by the judge of Inspect for every pair of the queue, stored as a model's."""
    st.markdown("###### Pre-label with the model judge", help=PRELABEL)
    here = set(at_work.pairs)
    kept: dict[str, int] = {}
    for one in resources.store.judgments.read(kind="model"):
        if (one.qid, one.memory_id) in here:
            kept[one.judge] = kept.get(one.judge, 0) + 1
    said = "; ".join(f"{plain(judge)}: {count:,}" for judge, count in sorted(kept.items()))
    box, button = st.columns([4, 1.2], vertical_alignment="center")
    box.caption(f"Judgments of models on these pairs: {said or 'none yet'}. People’s labels and cards are not touched.")
    off = state.config().judge.backend == "none"
    pressed = button.button(
        f"Judge {len(here):,} pairs", key="lb:prelabel", icon=":material/gavel:", width="stretch", disabled=off,
        help="The judge is off in Inspect; choose one under Judge." if off else "Can be cancelled; what was judged by then stays.",
    )  # fmt: skip
    if pressed:
        with working("prelabel") as progress:
            found = prelabel(at_work.pairs, state.config(), resources, progress)
        st.session_state[DONE] = (at_work.record.name, found)
        st.rerun()
    done: tuple[str, PairScores] | None = st.session_state.get(DONE)
    if done is not None and done[0] == at_work.record.name:
        _told(done[1])


def _told(found: PairScores) -> None:
    failed = (
        f" {len(found.failed):,} have no score: {plain(next(iter(found.failed.values())))}." if found.failed else ""
    )
    st.success(f"{len(found.scores):,} pairs judged by {plain(found.judge)}.{failed}", icon=":material/task_alt:")
    if found.instead:
        st.warning(plain(found.instead), icon=":material/swap_horiz:")


def _forget(at_work: LabelQueue, resources: Resources) -> None:
    with st.popover("Delete this queue", icon=":material/delete:", key="lb:forget"):
        st.caption("The queue goes; every label that was given stays.")
        if st.button("Delete the queue", key="lb:forget:sure", type="primary"):
            resources.store.queues.remove(at_work.record.name)
            for key in ("lb:chosen", "lb:queue", "lb:card"):
                st.session_state.pop(key, None)
            st.rerun()
