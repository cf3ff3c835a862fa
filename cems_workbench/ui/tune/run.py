"""Starting, watching, stopping and resuming a search."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.jobs.background_search import STABILITY, BackgroundSearch
from cems_workbench.jobs.tuning import MAIN_SEARCH, PlannedSearch
from cems_workbench.settings import settings_for
from cems_workbench.ui.kit.charts import LIST_COLOURS, draw_chart, hover, layout
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.widgets import ESTIMATE_AFTER_S, REDRAW_INTERVAL_S, duration
from cems_workbench.ui.tune.goal import effort
from cems_workbench.ui.tune.state import page, store_result

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


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
