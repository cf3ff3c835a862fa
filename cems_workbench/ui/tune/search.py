"""The search: its goal and measurement (objectives, guards, groups, folds, the sealed share), and starting, watching and stopping it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.metrics import measures_help, offered_measures
from cems_workbench.jobs.background import STABILITY, BackgroundSearch
from cems_workbench.jobs.tuning import MAIN_SEARCH, PlannedSearch, SearchSettings, TuningData, plan_search
from cems_workbench.settings import settings_for
from cems_workbench.tuning.holdout import GROUP_WORDS, GROUPINGS, groups_of, natural_grouping
from cems_workbench.tuning.objective import RERANKED, Goal, Guard, parse_goal, parse_guard
from cems_workbench.tuning.space import SearchSpace
from cems_workbench.ui.kit.charts import LIST_COLOURS, draw_chart, hover, layout
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.widgets import ESTIMATE_AFTER_S, REDRAW_INTERVAL_S, duration
from cems_workbench.ui.tune.state import page, scorer_for, store_result

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


GUARDS = ("hit@5", "hit@1", "recall@10", "nDCG@10", "MRR")
NO_ANSWER_GUARDS = ("noise@5", "answered", "refused", "noise@5<=0.5", "refused<=0.05")
"""Guards offered if there are queries without an answer."""
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def draw_goal(data: TuningData, space: SearchSpace) -> Goal | None:
    """Draw objectives and guards; None if one is invalid, with the error drawn in place."""
    left, right = st.columns(2, vertical_alignment="bottom")
    wanted = left.multiselect(
        "Optimise",
        offered_measures(per_query=True),
        default=["nDCG@10"],
        key="tune:objectives",
        accept_new_options=True,
        persist_state="session",
        max_selections=3,
        help="The first decides. With a second one the search maps the Pareto front: configs that cannot improve in one "
        "without losing in another. Measures of harm, such as noise, are minimised. " + measures_help(),
    )
    types = sorted({kind for kind in data.batch.types if kind})
    noise = NO_ANSWER_GUARDS if data.batch.without_answer(data.relevant_from).any() else ()
    offered = [*GUARDS, *noise, *(f"{kind}:{measure}" for measure in GUARDS[:1] for kind in types)]
    labels = {text: _guard_text(text) for text in offered}
    texts = right.multiselect(
        "Must not get worse",
        offered,
        key="tune:guards",
        accept_new_options=True,
        persist_state="session",
        format_func=lambda text: labels.get(text, text),  # a typed option comes back as its formatted text
        placeholder="no guard",
        help="A config that is worse than the baseline in a guard is never proposed. For one query type: `temporal:hit@5`; with a "
        "tolerance: `temporal:hit@5-0.01`; with a fixed bound instead of the baseline: `noise@5<=0.2`, `nDCG@10>=0.5`.",
    )
    fewer = _fewer_reranked(space)
    if not wanted:
        st.info("Choose a measure to maximise.")
        return None
    try:
        goal = parse_goal([*wanted, *([RERANKED] if fewer else [])], texts, data.relevant_from)
    except InputError as error:
        st.error(plain(str(error).removeprefix("--guard ").removeprefix("--metric ")))
        return None
    unknown = sorted({guard.query_type for guard in goal.guards if guard.query_type and guard.query_type not in types})
    if unknown:
        st.warning(f"No query of this set is of type {plain(', '.join(unknown))}: that guard has no effect.")
    return goal


def _guard_text(text: str) -> str:
    guard: Guard = parse_guard(text)
    if guard.bound is not None:
        return str(guard)
    less = f", less {guard.tolerance:g}" if guard.tolerance else ""
    return f"{guard.measure} of {guard.query_type}{less}" if guard.query_type else f"{guard.measure}{less}"


def _fewer_reranked(space: SearchSpace) -> bool:
    """Draw the toggle for the reranker's cost as an objective, if the space varies it."""
    if not any(axis.path in ("rerank.depth", "rerank.score_window") for axis in space.axes):
        return False
    return st.toggle(
        "Fewer candidates to the reranker",
        key="tune:fewer",
        persist_state="session",
        help="An additional objective: each candidate sent to the reranker costs a model call.",
    )


def draw_plan(data: TuningData, space: SearchSpace, goal: Goal) -> PlannedSearch | None:
    """The planned search; None if the queries cannot be split as set, with the error drawn in place."""
    batch = scorer_for(data, goal.measures, int(st.session_state.get("tune:seed", 0))).batch
    if not batch.queries:
        st.info(
            "None of the judged queries has a relevant memory under these measures, so all configs score the same. "
            "Label some relevant memories on the Label page."
        )
        return None
    settings = _settings(batch, can_seal=not data.stands_in)
    try:
        planned = plan_search(data, scorer_for(data, goal.measures, settings.seed), space, goal, settings)
    except InputError as error:
        st.warning(plain(str(error)), icon=":material/call_split:")
        return None
    st.caption(f"{planned.relevance}. {split_text(planned, settings.folds)}")
    return planned


def _settings(batch: LabelledBatch, can_seal: bool) -> SearchSettings:
    counts = {by: len(set(groups_of(batch, by))) for by in GROUPINGS}
    natural = GROUPINGS.index(natural_grouping(batch))
    widths = [3, 1.5, *([1.7] if can_seal else []), 1.7, 1.5]
    boxes = iter(st.columns(widths, vertical_alignment="bottom"))
    by = next(boxes).selectbox(
        "Never split",
        GROUPINGS,
        natural,
        key="tune:group_by",
        persist_state="session",
        format_func=lambda grouping: f"{GROUP_WORDS[grouping]} · {counts[grouping]}",
        help="Queries of one group stay together: in the tuning set, in a fold, or sealed. Splitting them would leak information.",
    )
    folds = next(boxes).number_input(
        "Folds",
        2,
        20,
        5,
        key="tune:folds",
        persist_state="session",
        help="Queries are split into this many parts; each is scored with the config chosen on the others.",
    )
    sealed = 0.0
    if can_seal:
        sealed = next(boxes).number_input(
            "Sealed share",
            0.0,
            0.8,
            0.2,
            0.05,
            key="tune:sealed",
            persist_state="session",
            format="%.2f",
            help="Share of queries that no search sees. It is scored only when you open it.",
        )
    trials = next(boxes).number_input(
        "Configs",
        10,
        20_000,
        200,
        50,
        key="tune:trials",
        persist_state="session",
        help="Maximum number of configs to try.",
    )
    seed = next(boxes).number_input(
        "Seed",
        0,
        2**31 - 1,
        0,
        key="tune:seed",
        persist_state="session",
        help="The same seed gives the same result.",
    )
    return SearchSettings(by, int(folds), float(sealed), int(trials), int(seed))


def split_text(planned: PlannedSearch, wanted_folds: int) -> str:
    """One line: number of tuning queries, folds, and sealed queries."""
    parts = planned.plan.split
    open_, sealed = len(parts.open), len(parts.holdout)
    folds = f"{open_} queries in {len(parts.folds)} folds"
    unsealed = "the proposal cannot be measured on unseen queries"
    if planned.data.stands_in:
        unsealed = "there are no judgments to seal"
    held = f"{sealed} sealed" if sealed else f"none sealed: {unsealed}"
    few = ""
    if len(parts.folds) < wanted_folds:
        few = f" There are only enough groups for {len(parts.folds)} folds; choose finer groups under “Never split” for more."
    return f"{folds}, {held}.{few}"


def effort(planned: PlannedSearch) -> str:
    """How the space is searched, as a sentence."""
    space, plan = planned.plan.space, planned.plan
    if space.is_grid:
        points = min(space.size, sum(1 for _ in space.grid(plan.trials)))
        every = "all of them" if points == space.size else "spread evenly"
        return f"Grid: {points:,} of {space.size:,} combinations, {every}; the folds reuse them."
    folds = len(plan.split.folds)
    return (
        f"{len(space.axes)} parameters, {_large(space.size)} combinations: TPE tries {plan.trials:,} configs, the last quarter near the "
        f"best; then as many for each of the {folds} folds."
    )


def _large(size: int) -> str:
    return f"{size:,}" if size < 1_000_000 else f"some 10{str(len(str(size)) - 1).translate(SUPERSCRIPTS)}"


def start(planned: PlannedSearch) -> None:
    """Start a search, or resume an identical one."""
    page.update(running=BackgroundSearch(planned, settings_for().dask).start())


def draw_start(planned: PlannedSearch) -> None:
    """Draw the planned effort and the start button."""
    left, right = st.columns([1, 3], vertical_alignment="center")
    left.button(
        "Start the search",
        key="tune:start",
        type="primary",
        icon=":material/play_arrow:",
        width="stretch",
        on_click=start,
        args=(planned,),
        help="Runs in the background. You can stop and resume it; tried configs are kept.",
    )
    right.caption(effort(planned))
    problem = page.get().problem
    if problem:
        st.error(plain(problem))
        page.update(problem="")


def draw_running() -> bool:
    """Draw the running search, if any; True while it runs."""
    at_work = page.get().running
    if at_work is None:
        return False
    if at_work.over:
        _finish(at_work)
        return False
    _panel()
    return True


@st.fragment(run_every=REDRAW_INTERVAL_S)
def _panel() -> None:
    """Draw progress, the best value so far, and Stop; a fragment that reruns without the rest of the page."""
    at_work = page.get().running
    if at_work is None or at_work.over:
        st.rerun()
    with st.container(key="tune-panel"):
        _watched(at_work)


def _watched(at_work: BackgroundSearch) -> None:
    now = at_work.progress
    left, right = st.columns([5, 1], vertical_alignment="center")
    left.progress(min(1.0, now.done / max(1, now.total)), text=_progress_text(at_work))
    right.button(
        "Stopping…" if at_work.stopping else "Stop",
        key="tune:stop",
        icon=":material/stop:",
        width="stretch",
        on_click=at_work.stop,
        disabled=at_work.stopping,
        help="Tried configs are kept.",
    )
    if len(at_work.best) > 1:
        measure = str(at_work.planned.plan.goal.objectives[0])
        best = list(at_work.best)
        draw_chart(
            curve_figure(best, measure, at_work.planned.plan.trials + 1),
            key="tune:curve",
            alt=f"Line chart: best {measure} so far, by configs tried.",
            table=lambda: [{"configs tried": tried, f"best {measure}": value} for tried, value in enumerate(best)],
        )
        gained = at_work.best[-1] - at_work.best[0]
        st.caption(
            f"Best {measure} so far {at_work.best[-1]:.4f}, {gained:+.4f} relative to the baseline, on the tuning queries. "
            "The best of many is partly luck: only the folds and the sealed queries give an unbiased estimate."
        )


def _progress_text(at_work: BackgroundSearch) -> str:
    now = at_work.progress
    part = {MAIN_SEARCH: "Searching", STABILITY: "Measuring the stability of each value"}.get(now.part, "")
    part = part or f"Cross-validating, {now.part} of {len(at_work.planned.plan.split.folds)}"
    return f"{part}: {now.done} of {now.total}{_left(at_work)}"


def _left(at_work: BackgroundSearch) -> str:
    """Estimated time for the remaining configs at the current pace; repeated configs are free, so it may be shorter."""
    seconds, rest = time.monotonic() - at_work.started, at_work.planned.most_configs - at_work.tried
    if seconds < ESTIMATE_AFTER_S or rest <= 0 or not at_work.tried:
        return ""
    return f" · about {duration(seconds * rest / at_work.tried)} left in all"


def _finish(at_work: BackgroundSearch) -> None:
    """Store the result of a finished search, and show it."""
    page.update(running=None, problem=at_work.problem or page.get().problem)
    if at_work.result is not None:
        store_result(at_work.result)
    st.rerun()


def curve_figure(curve: list[float], measure: str, total: int) -> Figure:
    """Best value so far as a step line by configs tried, with the baseline."""
    import plotly.graph_objects as go

    chart = go.Figure()
    chart.add_scatter(
        x=list(range(len(curve))),
        y=curve,
        mode="lines",
        line={"color": LIST_COLOURS[0], "width": 2.5, "shape": "hv"},
        hovertemplate=hover("after %{x} configs", f"{measure} %{{y:.4f}}"),
    )
    chart.add_hline(
        y=curve[0],
        line={"color": "#7B848D", "width": 1, "dash": "dash"},
        annotation_text="baseline",
        annotation_position="bottom right",
        annotation_font_size=12,
    )
    x = {"title": "configs tried", "range": [0, max(total - 1, len(curve))], "showgrid": False}
    chart.update_layout(layout(230, x, {"title": measure, "tickformat": ".3f"}, uirevision="curve"))
    return chart
