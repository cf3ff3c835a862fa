"""Queues: which one is at work, and making one from what chosen configs rank first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError, WorkbenchError
from cems_workbench.evaluation.decisive import decisive_first
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.evaluation.honest import judge_name
from cems_workbench.evaluation.pooling import (
    Pair,
    PooledPair,
    Strategy,
    pool,
    shuffled,
    top_first,
    uncertain_first,
    without_judged,
)
from cems_workbench.evaluation.queue import make_queue
from cems_workbench.evaluation.shelf import Wanted, gather_for, read_for
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.judge import scale_of
from cems_workbench.ui.evaluate_state import config_options
from cems_workbench.ui.gathering import progress_in
from cems_workbench.ui.memories_escape import plain

ORDERS: dict[str, tuple[Strategy, str]] = {
    "Top first": ("top", "What is ranked first by any config comes first."),
    "Shuffled": ("shuffled", "The place in the queue says nothing of the rank; everybody has an order of their own."),
    "Decisive first": (
        "decisive",
        "What could change which of the first two configs is better comes first; the rest is left out.",
    ),
    "Uncertain first": ("uncertain", "What the model judge is least sure of comes first."),
}


def choose(resources: Resources, left: DeltaGenerator, right: DeltaGenerator) -> str | None:
    """The queue at work, chosen in `left` or made in `right`; None while there is none."""
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
    if not box.open:
        return name
    with box:
        made = _make(resources)
    if made is not None:
        st.session_state["lb:new"] = False
        st.session_state["lb:chosen"] = made
        st.rerun()
    return name


def _make(resources: Resources) -> str | None:
    """The form of a new queue; its name when it was made."""
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
    name = st.text_input("Name", value=f"{query_set}-{ORDERS[order][0]}", key="lb:new:name", max_chars=120)
    if not st.button("Make the queue", key="lb:new:make", type="primary", width="stretch"):
        return None
    if not configs:
        st.error("Choose a config at least.")
        return None
    try:
        chosen = {one: options[one] for one in configs}
        pairs = _pairs(query_set, chosen, int(depth), ORDERS[order][0], bool(fresh), resources)
        settings = {"query_set": query_set, "configs": configs, "depth": int(depth)}
        resources.store.labels.keep_queue(
            make_queue(name.strip(), pairs, ORDERS[order][0], int(overlap), settings=settings)
        )
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return None
    st.session_state.pop("lb:queue", None)
    return name.strip()


def _pairs(
    query_set: str, configs: Mapping[str, PipelineConfig], depth: int, strategy: Strategy, fresh: bool, resources: Resources
) -> list[PooledPair]:  # fmt: skip
    """The pool in its order, gathered first where it has to be."""
    wanted = Wanted(query_set, tuple(resources.store.queries(query_set)))
    evidence = {name: _evidence(config, wanted, resources, name) for name, config in configs.items()}
    ranked = {
        name: {qid: [row["memory_id"] for row in replay(one, configs[name]).results] for qid, one in found.items()}
        for name, found in evidence.items()
    }
    judgments = resources.store.judgments()
    pairs = pool(ranked, depth)
    pairs = without_judged(pairs, judgments) if fresh else pairs
    if strategy == "decisive":
        if len(configs) < 2:
            raise InputError("decisive first needs two configs: what could decide between them")
        first, second = list(configs)[:2]
        grades = {
            (qid, key): grade for qid, row in agreed_grades(judgments, "human").items() for key, grade in row.items()
        }
        return decisive_first(pairs, first, second, grades)
    if strategy == "uncertain":
        return _uncertain(pairs, evidence, configs)
    return shuffled(pairs, 0) if strategy == "shuffled" else top_first(pairs)


def _uncertain(
    pairs: Sequence[PooledPair], evidence: Mapping[str, Mapping[str, Evidence]], configs: Mapping[str, PipelineConfig]
) -> list[PooledPair]:
    scores: dict[Pair, float] = {}
    threshold = 0.0
    for name, found in evidence.items():
        for qid, one in found.items():
            judge = judge_name(one, configs[name])
            if judge is None:
                continue
            threshold = scale_of(one.notes, judge, configs[name].judge).threshold
            good = {
                key: score.raw for key, score in one.judge_scores[judge].items() if score.good and score.raw is not None
            }
            scores |= {(qid, key): raw for key, raw in good.items()}
    if not scores:
        raise InputError("uncertain first needs a judge: choose configs whose judge is not off")
    return uncertain_first(pairs, scores, threshold)


def _evidence(config: PipelineConfig, wanted: Wanted, resources: Resources, name: str) -> Mapping[str, Evidence]:
    read = read_for(config, wanted, resources)
    if read is None:
        place = st.empty()
        try:
            progress = progress_in(place)
            gather_for(
                config,
                wanted,
                resources.store.judgments(),
                resources,
                lambda _, done, total: progress(name, done, total),
            )
        finally:
            place.empty()
        read = read_for(config, wanted, resources)
    if read is None:
        raise InputError(f"{name}: its evidence could not be gathered")
    return read.evidences
