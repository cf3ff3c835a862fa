"""What a search learned: parameter importance, the response of the objective to one parameter, and wins and losses per query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import streamlit as st

from cems_workbench.config import field_specs
from cems_workbench.config.fields import short_value
from cems_workbench.evaluation.evaluate import NO_TYPE
from cems_workbench.jobs.tuning import SearchResult
from cems_workbench.progress import Progress
from cems_workbench.records import Query
from cems_workbench.tuning.learned import Curve, Importance, importance, response_curve
from cems_workbench.ui.evaluate.breakdown import pick_query
from cems_workbench.ui.evaluate.changes import OUTCOMES, QueryChanges, draw_changes
from cems_workbench.ui.evaluate.state import open_gathered
from cems_workbench.ui.kit.charts import LIST_COLOURS, bar_chart, draw_chart, hover, layout
from cems_workbench.ui.kit.html import plain, tick
from cems_workbench.ui.kit.tables import HELP, draw_values
from cems_workbench.ui.kit.widgets import progress_bar, remembered
from cems_workbench.ui.tune.search import label
from cems_workbench.ui.tune.state import learned

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


BLUE, ORANGE, GREY = LIST_COLOURS[0], LIST_COLOURS[1], "#7B848D"
BAND = "rgba(0,114,178,0.2)"

Computed = TypeVar("Computed")


def draw_learned(result: SearchResult) -> None:
    """Draw importance, and the response curve of one parameter."""
    plan = result.planned.plan
    shares = _computed("importance", lambda _: importance(plan.space, result.tuned.search, seed=plan.seed))
    names = {axis.path: label(axis.path, plan.space.baseline) for axis in plan.space.axes}
    measure = str(plan.goal.objectives[0])
    st.markdown(f"## Which parameters matter to {plain(measure)}")
    ranked = list(names)
    if shares is None:
        st.caption("No importance can be computed: too few configs were tried, or all scored the same.")
    else:
        ranked = [path for path, _ in shares.shares]
        draw_chart(
            importance_figure(shares, names),
            key="tune:importance",
            alt="Bar chart: share of the variance explained by each parameter alone.",
            table=lambda: [{"parameter": names[path], "share": f"{share:.1%}"} for path, share in shares.shares],
        )
        how = "exact, over the whole grid" if shares.exact else f"by a random forest over {shares.trials} configs"
        said = f"Share of the variance that each explains alone, {how}. Interactions: {shares.together:.0%}."
        st.caption(said, help=HELP["tune:importance"])
    _curve(result, ranked, names, measure)


def importance_figure(shares: Importance, names: Mapping[str, str]) -> Figure:
    """One bar per parameter, the most important first."""
    values = [share for _, share in shares.shares]
    return bar_chart(
        [names[path] for path, _ in shares.shares],
        values,
        [f"{value:.0%}" for value in values],
        {"range": [0, max([*values, 0.05]) * 1.12], "visible": False},
        row=30,
        marker={"color": BLUE},
        hoverinfo="skip",
    )


def _computed(key: Hashable, compute: Callable[[Progress], Computed]) -> Computed:
    """A value computed from the current search, with progress, and cached for the session."""

    def with_progress() -> Computed:
        with progress_bar() as progress:
            return compute(progress)

    return learned(key, with_progress)


def _curve(result: SearchResult, ranked: list[str], names: Mapping[str, str], measure: str) -> None:
    st.markdown("## Effect of one parameter")
    common: dict[str, Any] = {"format_func": names.__getitem__, "label_visibility": "collapsed"}
    path = st.selectbox("Parameter", ranked, **common, **remembered("tune:curve_path"))
    curve = _computed(
        ("curve", path), lambda progress: response_curve(result.tuned, result.planned.score, path, progress=progress)
    )
    draw_chart(
        curve_figure(curve, result, names[path], measure),
        key="tune:response",
        alt=f"Line chart: {measure} by {path}, other parameters as proposed.",
        table=lambda: [
            {
                names[path]: short_value(value),
                measure: mean,
                "difference from the proposal": by,
                "standard error": error,
            }
            for value, mean, by, error in zip(
                curve.values,
                *(row.tolist() for row in (curve.mean, curve.difference, curve.difference_error)),
                strict=True,
            )
        ],
    )
    st.caption(
        "Other parameters as proposed, on the tuning queries; each point is replayed. The band is one standard error of the "
        "difference from the proposal: values whose band reaches the dotted line cannot be distinguished from it."
    )


def curve_figure(curve: Curve, result: SearchResult, name: str, measure: str) -> Figure:
    """Mean by value with the band of the difference; the proposal as a ring, the baseline as a line."""
    import plotly.graph_objects as go

    space = result.planned.plan.space
    axis, was = next(
        row for row in zip(space.axes, space.values_of(space.baseline), strict=True) if row[0].path == curve.path
    )
    numeric = not axis.choices and None not in curve.values
    x: list[Any] = list(curve.values) if numeric else [short_value(value) for value in curve.values]
    chart = go.Figure()
    low, high = curve.mean - curve.difference_error, curve.mean + curve.difference_error
    if numeric:
        chart.add_scatter(x=x, y=high, mode="lines", line={"width": 0}, hoverinfo="skip")
        chart.add_scatter(x=x, y=low, mode="lines", line={"width": 0}, fill="tonexty", fillcolor=BAND, hoverinfo="skip")
    chart.add_scatter(
        x=x,
        y=curve.mean,
        mode="lines+markers" if numeric else "markers",
        line={"color": BLUE, "width": 2},
        marker={"size": 6 if numeric else 11, "color": BLUE},
        error_y=None if numeric else {"array": curve.difference_error, "color": BLUE, "thickness": 1.5},
        customdata=np.stack([curve.difference, curve.difference_error], axis=1),
        hovertemplate=hover(
            f"{tick(name, 60)} %{{x}}",
            f"{measure} %{{y:.4f}}",
            "difference from the proposal %{customdata[0]:+.4f} ± %{customdata[1]:.4f}",
        ),
    )
    chart.add_hline(y=float(curve.mean[curve.own]), line={"color": GREY, "width": 1, "dash": "dot"})
    ring = {"size": 16, "symbol": "circle-open", "color": ORANGE, "line": {"width": 3}}
    chart.add_scatter(x=[x[curve.own]], y=[curve.mean[curve.own]], mode="markers", marker=ring, hoverinfo="skip")
    if was in curve.values or numeric:
        line = {"color": GREY, "width": 1.5, "dash": "dash"}
        said = {"annotation_text": "baseline", "annotation_position": "top left", "annotation_font_size": 12}
        chart.add_vline(x=was if numeric else x.index(short_value(was)), line=line, **said)
    unit = next((spec.unit for spec in field_specs() if spec.path == axis.path), None)
    across = {"title": tick(name, 60) + (f" ({unit})" if unit else "")} | ({"type": "category"} if axis.choices else {})
    chart.update_layout(layout(300, across, {"title": measure, "tickformat": ".3f"}, margin={"t": 22}))
    return chart


def changes(result: SearchResult) -> QueryChanges:
    """What the proposal changes on each tuning query."""
    planned, tuned, rows = result.planned, result.tuned, result.planned.plan.split.open
    measure = planned.plan.goal.objectives[0]
    before, after = (
        measure.direction * planned.score(trial.config, rows)[:, 0] for trial in (tuned.search.baseline, tuned.proposal)
    )
    return QueryChanges([planned.batch.queries[row] for row in rows.tolist()], measure, before, after)


def open_query(result: SearchResult, picked: Query | None) -> None:
    """Open a chosen query in Inspect under the proposal, the baseline pinned."""
    if picked is not None:
        base = result.planned.plan.space.baseline
        open_gathered(picked, result.planned.data.evidence, result.tuned.config, (base.name, base))


def draw_queries(result: SearchResult) -> None:
    """Draw the counts, a bar for each changed query, the types, and the table."""
    if not result.better:
        st.info("The baseline is proposed: no query changes.", icon=":material/drag_handle:")
        return
    planned, found = result.planned, changes(result)
    change = found.after - found.before
    st.markdown(f"## {found.counts}, {planned.measure} {np.nanmean(change):+.3f}")
    st.caption("Tuning queries only; the hold-out stays sealed.")
    open_query(result, draw_changes(found, result.tuned.config.name, "tune:wins"))
    kinds = sorted({query.type or NO_TYPE for query in found.queries})
    if len(kinds) > 1:
        of = {kind: [q for q, query in enumerate(found.queries) if (query.type or NO_TYPE) == kind] for kind in kinds}
        counts = {kind: Counter(found.outcomes[q] for q in of[kind]) for kind in kinds}
        cells = [
            (kind, len(of[kind]), float(np.nanmean(change[of[kind]])), *(counts[kind][name] for name in OUTCOMES[:2]))
            for kind in kinds
        ]
        names, form = ("type", "queries", "difference", *OUTCOMES[:2]), "%+.3f"
        draw_values(names, cells, key="tune:types", format=form, width="content")
    configs = [planned.plan.space.baseline.name, result.tuned.config.name]
    open_query(result, pick_query(found, configs, "tune", st.columns(2)))
