"""The Pareto front: what each further bit of one objective costs in another; any config on it can be set on the sliders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from cems_workbench.tuning.objective import RERANKED
from cems_workbench.tuning.tune import proposed
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.controls import shown
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.tables import ROW
from cems_workbench.ui.kit.theme import LIST_COLOURS
from cems_workbench.ui.tune.state import Found

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

GREY = "#7B848D"
COST = "candidates reranked"


def names_of(found: Found) -> list[str]:
    """The objectives in their order; the cost, which is small where it is good, last."""
    return [COST if name == RERANKED else name for name in found.order.plan.goal.names]


def reached_of(found: Found) -> Any:
    """(T, M) what every trial reached, the cost as a count."""
    reached = np.stack([trial.reached for trial in found.tuned.found.trials])
    if found.order.plan.goal.fewer_reranked:
        reached[:, -1] *= -1
    return reached


def draw(found: Found) -> None:
    """The chart of two objectives, and the table of the front."""
    names = names_of(found)
    st.markdown("###### The Pareto front")
    second = 1
    if len(names) > 2:
        second = names.index(
            st.segmented_control("Against", names[1:], default=names[1], required=True, key="tn:against") or names[1]
        )
    st.plotly_chart(
        figure(found, second), key="tn:pareto", config={"displayModeBar": False},
        alt=f"Every config tried, {names[0]} against {names[second]}; those of the front joined by a line.",
    )  # fmt: skip
    _table(found, names)


def _table(found: Found, names: list[str]) -> None:
    reached, trials = reached_of(found), found.tuned.found.trials
    front = sorted(found.tuned.found.front, key=lambda i: -float(reached[i, 0]))
    paths = [axis.path for axis in found.order.plan.space.axes]
    rows = [
        {name: float(value) for name, value in zip(names, reached[i], strict=True)}
        | {path: shown(value) for path, value in zip(paths, trials[i].values, strict=True)}
        for i in front
    ]
    event = st.dataframe(
        rows, hide_index=True, key="tn:front", row_height=ROW, height=ROW * (min(len(rows), 8) + 1) + 4, on_select="rerun",
        selection_mode="single-row",
        column_config={name: _column(name) for name in names},
    )  # fmt: skip
    picked = event["selection"]["rows"]
    if not picked:
        st.caption(
            "On the queries searched on. Select a row to set that config on the sliders instead of the proposal."
        )
        return
    trial = trials[front[picked[0]]]
    space = found.order.plan.space
    config = proposed(space, trial, f"{space.baseline.name}-front")
    left, right = st.columns([4, 1], vertical_alignment="center")
    left.caption(
        f"{plain(', '.join(f'{path} {shown(value)}' for path, value in zip(paths, trial.values, strict=True)))}"
    )
    if right.button("To the sliders", key="tn:front_take", icon=":material/tune:", width="stretch"):
        state.take(config)
        st.toast("Set on the sliders of Inspect.", icon=":material/check:")


def _column(name: str) -> Any:
    return st.column_config.NumberColumn(
        name, format="%.0f" if name == COST else "%.3f", width=135 if name == COST else 80
    )


def figure(found: Found, second: int) -> Figure:
    """The trials as dots, the front as a line, the baseline as a diamond, the proposal as a ring."""
    import plotly.graph_objects as go

    names, reached, search = names_of(found), reached_of(found), found.tuned.found
    x, y = reached[:, second], reached[:, 0]
    made = go.Figure()

    def dots(rows: list[int], name: str, marker: dict[str, Any], mode: str = "markers", **more: Any) -> None:
        made.add_scatter(
            x=x[rows], y=y[rows], mode=mode, name=name, marker=marker,
            hovertemplate=f"{name}<br>{names[second]} %{{x:.4g}}<br>{names[0]} %{{y:.4f}}<extra></extra>", **more,
        )  # fmt: skip

    usable = [i for i, trial in enumerate(search.trials) if trial.usable]
    dots(usable, "tried", {"color": GREY, "size": 5, "opacity": 0.55})
    broken = [i for i, trial in enumerate(search.trials) if trial.broken]
    if broken:
        dots(broken, "breaks a guard", {"color": LIST_COLOURS[3], "size": 6, "symbol": "x-thin-open"})
    front = sorted(search.front, key=lambda i: (float(x[i]), float(y[i])))
    dots(
        front,
        "front",
        {"color": LIST_COLOURS[0], "size": 8},
        "lines+markers",
        line={"color": LIST_COLOURS[0], "width": 2},
    )
    dots([0], "baseline", {"color": GREY, "size": 13, "symbol": "diamond-open", "line": {"width": 2.5}})
    proposal = next(i for i, trial in enumerate(search.trials) if trial is found.tuned.proposal)
    dots([proposal], "proposal", {"color": LIST_COLOURS[1], "size": 17, "symbol": "circle-open", "line": {"width": 3}})
    grid = "rgba(128,128,128,0.16)"
    made.update_layout(
        height=360, margin={"l": 8, "r": 16, "t": 8, "b": 8}, hovermode="closest",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "font": {"size": 12}},
        xaxis={"title": {"text": names[second]}, "gridcolor": grid, "zeroline": False, "fixedrange": True, "automargin": True},
        yaxis={"title": {"text": names[0]}, "gridcolor": grid, "zeroline": False, "fixedrange": True, "automargin": True},
    )  # fmt: skip
    return made
