"""The head of the Tune page: the query set, the baseline, whose judgments count, and the gathering of what is missing."""

from __future__ import annotations

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import WorkbenchError
from cems_workbench.pipeline.resources import Resources
from cems_workbench.runs.gathering import Wanted, begun_for, gather_for
from cems_workbench.ui.evaluate.state import JUDGES, NOW, config_options, named
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.progress import progress_in
from cems_workbench.ui.tune.state import Ground, ground_for


def choose(resources: Resources) -> Ground | None:
    """What is tuned on; None while there is nothing to tune on yet, which is said in place."""
    sets = {one.name: one for one in resources.store.query_sets()}
    judged = {judgment.qid for judgment in resources.store.judgments()}
    if not sets or not judged:
        _nothing(bool(sets))
        return None
    options = config_options(resources)
    boxes = st.columns([3, 3, 2, 2], vertical_alignment="bottom")
    name = boxes[0].selectbox(
        "Query set", sorted(sets), key="tn:set", persist_state="session",
        format_func=lambda one: f"{one} · {sets[one].size} queries · version {sets[one].version}",
        help="The judged queries of this set decide which config is better.",
    )  # fmt: skip
    if st.session_state.get("tn:baseline") not in options:
        st.session_state["tn:baseline"] = NOW if state.changed() else st.session_state["preset"]
    base = boxes[1].selectbox(
        "Baseline", list(options), key="tn:baseline", persist_state="session",
        help="Where the search starts, and what a proposal has to beat. “As set in Inspect” is what the sliders say now.",
    )  # fmt: skip
    kind = boxes[2].selectbox(
        "Judgments", list(JUDGES), key="tn:judges", persist_state="session",
        help="Whose grades count. “People, else models” takes a model’s grade only where no person gave one.",
    )  # fmt: skip
    within = boxes[3].toggle(
        "Within the project", key="tn:project_only", persist_state="session",
        help="Search each query’s own project only, where it has one.",
    )  # fmt: skip
    queries = tuple(query for query in resources.store.queries(name) if query.qid in judged)
    if not queries:
        st.info("No query of this set is judged yet. Label some on the Label page, or import judgments.")
        return None
    config = options[base] if base == NOW else named(base, options[base])
    return _ground(config, Wanted(name, queries, bool(within)), JUDGES[kind], resources)


def _ground(config: PipelineConfig, wanted: Wanted, kind: str | None, resources: Resources) -> Ground | None:
    ground = ground_for(config, wanted, kind, resources)
    if ground is None and _gathered(config, wanted, resources):
        st.rerun()
    return ground


def _gathered(config: PipelineConfig, wanted: Wanted, resources: Resources) -> bool:
    """Say what is missing and gather it on request; True when it is there now."""
    total = len(wanted.queries)
    done, seconds = begun_for(config, wanted, resources)
    there = f" ({done} of {total} queries are there)" if done else ""
    left, right = st.columns([5, 1], vertical_alignment="center")
    left.info(
        f"Not gathered yet for {plain(config.name)}{there}. Each of {total} queries is searched once{_about(done, seconds, total)}; "
        "after that a config takes milliseconds to try.",
        icon=":material/pause_circle:" if done else ":material/hourglass_empty:",
    )
    label = "Go on" if done else "Gather"
    if not right.button(label, key="tn:gather", type="primary", icon=":material/play_arrow:", width="stretch"):
        return False
    return _gather(config, wanted, resources)


def _about(done: int, seconds: float, total: int) -> str:
    """About how long the rest takes at the pace so far."""
    if not done:
        return ""
    left = seconds / done * (total - done)
    return f", about {max(1, round(left))} s more" if left < 90 else f", about {left / 60:.0f} min more"


def _gather(config: PipelineConfig, wanted: Wanted, resources: Resources) -> bool:
    place = st.empty()
    try:
        with place.container():
            bar, button = st.columns([6, 1], vertical_alignment="center")
            button.button(
                "Cancel", key="tn:cancel", width="stretch", help="What was gathered is kept, and can be gone on with."
            )
            done = gather_for(config, wanted, resources.store.judgments(), resources, progress_in(bar.empty()))
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return False
    finally:
        place.empty()
    for row in done.left_out:
        st.toast(plain(f"{row} (left out)"), icon=":material/warning:")
    return True


def _nothing(has_queries: bool) -> None:
    what = "None of its queries is judged yet." if has_queries else "This store has no queries yet."
    st.html(
        f'<div class="wb-empty"><h3>Find better weights on judged queries</h3><p>{what} Import queries and judgments on the '
        "<b>Memories</b> page, or label the results of some queries on the <b>Label</b> page. Some twenty judged queries are a "
        "beginning; a hundred tell small gains from luck.</p></div>"
    )
