"""The head of the Evaluate page: which queries, which configs, whose judgments, and the gathering of what is missing."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError, WorkbenchError
from cems_workbench.evaluation.metrics import FAMILIES, STANDARD, Measure, parse_measures
from cems_workbench.evaluation.shelf import Wanted, gather_for
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress
from cems_workbench.ui import state
from cems_workbench.ui.evaluate_state import JUDGES, NOW, Choice, config_options
from cems_workbench.ui.gathering import progress_in
from cems_workbench.ui.memories_escape import plain

MEASURES = STANDARD.split()
SHOWN = ("hit@1", "hit@5", "recall@5", "MRR", "nDCG@10", "Judged@10")
CHEAP = "recollection"
"""A preset that asks no model for its ranking, so that a first comparison is there soon."""


def choose(resources: Resources) -> Choice | None:
    """The choice, None while there is nothing to measure; what is wrong with it is said in place."""
    sets = {one.name: one for one in resources.store.query_sets()}
    judged = {judgment.qid for judgment in resources.store.judgments()}
    if not sets or not judged:
        _nothing(bool(sets))
        return None
    options = config_options(resources)
    configs = st.multiselect(
        "Configs", list(options), default=_first(), key="ev:configs", persist_state="session",
        help="The first is the baseline; the others are compared with it. “As set in Inspect” is what the sliders say now.",
    )  # fmt: skip
    boxes = st.columns([3, 2, 2, 2], vertical_alignment="bottom")
    name = boxes[0].selectbox(
        "Query set", sorted(sets), key="ev:set", persist_state="session",
        format_func=lambda one: f"{one} · {sets[one].size} queries · version {sets[one].version}",
        help="A named set of queries; each import with changes makes a new version.",
    )  # fmt: skip
    kind = boxes[1].selectbox(
        "Judgments", list(JUDGES), key="ev:judges", persist_state="session",
        help="Whose grades count. “People, else models” takes a model’s grade only where no person gave one.",
    )  # fmt: skip
    grade = boxes[2].number_input(
        "Relevant from grade", 1, 3, 1, key="ev:grade", persist_state="session",
        help="The lowest grade that counts as relevant in hit, recall, P, MRR and AP. nDCG uses the grades themselves.",
    )  # fmt: skip
    within = boxes[3].toggle(
        "Within the project", key="ev:project_only", persist_state="session",
        help="Search each query’s own project only, where it has one.",
    )  # fmt: skip
    queries = tuple(query for query in resources.store.queries(name) if query.qid in judged)
    if not queries:
        st.info("No query of this set is judged yet. Label some on the Label page, or import judgments.")
        return None
    if not configs:
        st.info("Choose a config above; two or more are compared with the first.")
        return None
    measures = _measures(int(grade))
    if measures is None:
        return None
    chosen = tuple((one, options[one]) for one in configs)
    return Choice(Wanted(name, queries, bool(within)), chosen, JUDGES[kind], measures)


def _first() -> list[str]:
    """The preset and what was made of it; while nothing was changed, another preset."""
    name = st.session_state["preset"]
    return [name, NOW] if state.changed() else [name, CHEAP] if name != CHEAP else [name, "cems"]


def _measures(grade: int) -> tuple[Measure, ...] | None:
    names = st.multiselect(
        "Measures", MEASURES, default=list(SHOWN), key="ev:measures", accept_new_options=True, persist_state="session",
        help="Type others, such as hit@3 or nDCG@5. " + " ".join(f"{one.name}: {one.what}." for one in FAMILIES.values()),
    )  # fmt: skip
    try:
        return parse_measures(" ".join(names), grade)
    except InputError as error:
        st.error(plain(str(error)))
        return None


def offer_gather(missing: Sequence[tuple[str, PipelineConfig]], choice: Choice, resources: Resources) -> bool:
    """A button that gathers what is missing, with progress; True when everything is there now."""
    names = ", ".join(plain(name) for name, _ in missing)
    left, right = st.columns([4, 1], vertical_alignment="center")
    left.info(
        f"Not gathered yet: {names}. Each of {len(choice.wanted.queries)} queries is searched once; after that every change "
        "of a weight or threshold is measured at once.",
        icon=":material/hourglass_empty:",
    )
    pressed = right.button("Gather", key="ev:gather", type="primary", icon=":material/play_arrow:", width="stretch",
        help="Any other control stops it. What was gathered is kept, and the next press goes on after it.")  # fmt: skip
    if not pressed:
        return False
    judgments = resources.store.judgments()
    place = st.empty()
    try:
        for name, config in missing:
            done = gather_for(config, choice.wanted, judgments, resources, _under(name, progress_in(place)))
            for error in done.left_out:
                st.warning(plain(f"{error} (left out)"))
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return False
    finally:
        place.empty()
    return True


def _under(name: str, progress: Progress) -> Progress:
    """The progress of one config, under its name."""
    return lambda _, done, total: progress(name, done, total)


def _nothing(has_queries: bool) -> None:
    what = "None of its queries is judged yet." if has_queries else "This store has no queries yet."
    st.html(
        f'<div class="wb-empty"><h3>Measure configs on judged queries</h3><p>{what} Import queries and judgments on the '
        "<b>Memories</b> page (BEIR, LoCoMo, TREC, Quepid, JSONL, CSV), or label the results of some queries.</p></div>"
    )
