"""What a search found: the verdict, what the proposal is worth on each part of the queries, its Pareto front, and what it changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st
from markupsafe import Markup

from cems_workbench.pipeline.resources import Resources
from cems_workbench.runs.scoring import Lacking, read_again
from cems_workbench.runs.tuning import NONE_HOLDS, SearchResult, guard_lines, looks_at, open_holdout, searched_anew
from cems_workbench.tuning.holdout import Gain, gain
from cems_workbench.tuning.objective import RERANKED, Guard
from cems_workbench.tuning.space import Axis
from cems_workbench.tuning.stability import Region
from cems_workbench.tuning.tune import proposed
from cems_workbench.ui.evaluate import lacking
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.controls import shown
from cems_workbench.ui.kit.charts import draw_chart
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.figures import GRID, hover
from cems_workbench.ui.kit.heard import announce
from cems_workbench.ui.kit.reviewer import may, reviewer
from cems_workbench.ui.kit.tables import pick_row
from cems_workbench.ui.kit.templates import render
from cems_workbench.ui.kit.theme import LIST_COLOURS
from cems_workbench.ui.tune import unlabelled
from cems_workbench.ui.tune.run import start
from cems_workbench.ui.tune.space import label
from cems_workbench.ui.tune.state import page

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LEVEL = 0.05
TRIED = "#7B848D"
"""The colour of configs that are neither on the front nor the proposal."""
COST = "candidates reranked"
CROSS_VALIDATED = "Cross-validated"
"""What the row of the folds is called."""


def draw(result: SearchResult, resources: Resources) -> None:
    """The whole result."""
    st.html(verdict_html(result))
    announce(headline(result))
    if result.tuned.search.cancelled:
        _go_on(result)
    measure = str(result.planned.plan.goal.objectives[0])
    st.html(gains_html(gain_rows(result), measure))
    st.caption(
        gap_line(result),
        help="Train, folds and hold-out far apart are a sign that the search learned its queries by heart.",
    )
    _holdout(result, resources)
    if result.planned.data.stands_in:
        _by_judgments(result, resources)
    for line in guard_lines(result):
        st.caption(f":material/shield: {plain(line)}")
    _lacking(result, resources)
    if len(result.planned.plan.goal.names) > 1:
        _front(result)
    st.markdown("## What the proposal changes")
    space, proposal = result.planned.plan.space, result.tuned.proposal
    names = [label(axis.path, space.baseline) for axis in space.axes]
    own = space.values_of(space.baseline)
    st.html(axes_html(space.axes, names, own, proposal.values, result.regions))


def _by_judgments(result: SearchResult, resources: Resources) -> None:
    """What a proposal that was found without judgments is worth by them, beside a search with them; or the offer to measure that."""
    st.markdown("## By judgments")
    found = result.by_judgments
    if found is None:
        unlabelled.offer_judgments(result, resources)
        return
    rows = [
        GainRow("Without judgments", "this proposal, as it is fused", found.proposal),
        GainRow("With judgments", "cross-validated, as it is fused", found.labelled),
        GainRow("With, in hindsight", "flatters: on the queries that chose it", found.hindsight, fair=False),
        GainRow("Without, as ranked", "this proposal, with all that follows the fusion", found.as_ranked),
    ]
    st.html(gains_html(rows, str(result.planned.plan.goal.objectives[0])))
    chosen = ", ".join(f"{path} {shown(value)}" for path, value in found.labelled_values.items())
    st.caption(plain(f"Without judgments: {found.share_words}. With judgments: {chosen}."))
    for line in found.lacking:
        st.caption(plain(f"Not complete as ranked: {line}."))


def _lacking(result: SearchResult, resources: Resources) -> None:
    """What the evidence lacks of what baseline and proposal ask for; once it is scored the same search is run again."""
    planned = result.planned
    evidence, qids = planned.data.evidence, planned.data.batch.qids
    rows = [Lacking(config.name, config, evidence, needs, qids) for config, needs in result.needs]
    if lacking.draw("tune", rows, resources, label="Score and search again"):
        start(searched_anew(planned, read_again(evidence)))
        st.rerun()


def headline(result: SearchResult) -> str:
    """The verdict in one line, and nothing better than it is."""
    tuned, plan = result.tuned, result.planned.plan
    gained = tuned.holdout or tuned.validation
    sealed = tuned.holdout is not None
    held = () if tuned.proposal.broken else tuned.search.baseline.broken
    return headline_of(result.planned.measure, plan.space.baseline.name, result.better, gained, sealed, held)


def headline_of(
    measure: str, base: str, better: bool, gained: Gain | None, sealed: bool = False, held: Sequence[Guard] = ()
) -> str:
    """The verdict on a proposal, `better` where it is not the baseline, with its gain on the sealed queries or the folds.

    `held` are the guards that it holds and the baseline does not, which may cost what is optimised.
    """
    if not better:
        return f"Nothing significantly better than {base}: the baseline is proposed"
    if gained is None:
        return f"{measure}: a candidate better than {base}, not yet cross-validated"
    where = "the sealed queries" if sealed else "queries that the search did not see"
    if held:
        change = f"{measure} {gained.baseline:.3f} → {gained.tuned:.3f} on {where}"
        return f"With {' and '.join(map(str, held))}, which {base} does not hold: {change}"
    if gained.improvement <= 0:
        return f"No gain over {base} on queries that the search did not see"
    sure = "" if gained.p < LEVEL else ", which may be chance"
    return f"{measure} {gained.baseline:.3f} → {gained.tuned:.3f} on {where}{sure}"


def verdict_html(result: SearchResult) -> Markup:
    """The verdict, and under it what was searched."""
    planned, trials = result.planned, result.tuned.search.trials
    given_up = sum(trial.pruned for trial in trials)
    broken = sum(bool(trial.broken) for trial in trials)
    parts = [
        f"“{planned.data.query_set}”, baseline {planned.plan.space.baseline.name}",
        f"{len(trials) - 1} configs of {len(planned.plan.space.axes)} parameters",
        planned.relevance,
        *([f"{given_up} given up early"] if given_up else []),
        *([f"{broken} broke a guard"] if broken else []),
        f"seed {planned.plan.seed}",
    ]
    doubt = ""
    if not result.better:
        goal, searched = planned.plan.goal, result.tuned.search
        best, base = (goal.as_measured(trial.reached)[0] for trial in (searched.best, searched.baseline))
        doubt = (
            f"The best reached {best:.4f} where the baseline has {base:.4f}: within what chance gives the best of many."
            if searched.best.usable
            else NONE_HOLDS
        )
    return render("tune/verdict.html", headline=headline(result), about=" · ".join(parts), doubt=doubt)


def _go_on(result: SearchResult) -> None:
    left, right = st.columns([4, 1], vertical_alignment="center")
    left.info("Stopped early. Configs already tried are kept; resuming skips them.", icon=":material/pause:")
    right.button("Resume", key="tune:go_on", icon=":material/play_arrow:", type="primary", width="stretch",
                 on_click=start, args=(result.planned,))  # fmt: skip


# What the proposal is worth on each part of the queries


@dataclass(frozen=True, slots=True)
class GainRow:
    """One part of the queries: its name, what it is, and the gain there; None while it is sealed or was not reached."""

    name: str
    about: str
    gain: Gain | None
    absent: str = ""
    fair: bool = True
    """Were these queries kept from the choice? Of the best of many, p says nothing."""


def gain_rows(result: SearchResult) -> list[GainRow]:
    """Where the search looked, the folds, and the hold-out."""
    tuned, planned = result.tuned, result.planned
    folds = len(planned.plan.split.folds)
    sealed = len(planned.plan.split.holdout)
    stopped = "stopped before" if tuned.search.cancelled else ""
    unseen = f"{sealed} queries, sealed" if sealed else "no query was sealed"
    return [
        GainRow("Searched on", "flatters: the best of many", searched_gain(result), fair=False),
        GainRow(CROSS_VALIDATED, f"chosen on {folds - 1} folds, scored on the other", tuned.validation, stopped),
        GainRow("Hold-out", "seen by no search", tuned.holdout, unseen),
    ]


def searched_gain(result: SearchResult) -> Gain:
    """The proposal against the baseline on the queries that were searched on."""
    base, best = result.tuned.search.baseline.scores[:, 0], result.tuned.proposal.scores[:, 0]
    return gain(base, best, result.planned.plan.seed, result.planned.plan.goal.objectives[0].direction)


def verdict(gain: Gain) -> str:
    """In a word what a gain says, with its sign."""
    if abs(gain.difference) < 1e-9 and gain.low == gain.high:
        return "= same"
    if gain.p >= LEVEL:
        return "not certain"
    return "▲ better" if gain.improvement > 0 else "▼ worse"


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    help: str = ""
    numeric: bool = True


@dataclass(frozen=True, slots=True)
class _GainCells:
    """A gain as it stands in the table; `left`, `width` and `middle` are its interval and mean on the common scale, in percent."""

    queries: int
    baseline: str
    proposal: str
    difference: str
    interval: str
    left: str
    width: str
    middle: str
    p: str
    verdict: str


def gains_html(rows: Sequence[GainRow], measure: str) -> Markup:
    """A row a part: baseline, proposal, difference, its 95 % interval as text and on one scale for all, p, and what that says."""
    widest = max(
        [abs(edge) for row in rows if row.gain for edge in (row.gain.low, row.gain.high, row.gain.difference)] or [0]
    )
    columns = [
        _Column("queries", "How many queries the means are of"),
        _Column(f"baseline {measure}"),
        _Column("proposal"),
        _Column("difference", "Proposal less baseline, mean over the queries"),
        _Column("95 % interval", "Of the difference, by a paired bootstrap over queries; the line is 0", numeric=False),
        _Column("p", "Two-sided paired randomisation test: how often chance alone would give so large a difference"),
        _Column("", numeric=False),
    ]
    edge = widest * 1.08 or 1.0
    cells = [
        {
            "name": row.name, "about": row.about, "absent": row.absent, "fair": row.fair,
            "cells": None if row.gain is None else _gain_cells(row.gain, edge),
        }
        for row in rows
    ]  # fmt: skip
    return render("tune/gains.html", columns=columns, rows=cells)


def _gain_cells(gain: Gain, edge: float) -> _GainCells:
    """`edge` is the difference at either end of the scale, whose middle is 0."""
    left, right, middle = (50 + 50 * value / edge for value in (gain.low, gain.high, gain.difference))
    return _GainCells(
        gain.queries, f"{gain.baseline:.3f}", f"{gain.tuned:.3f}", f"{gain.difference:+.3f}", f"{gain.low:+.3f} to {gain.high:+.3f}",
        f"{left:.2f}", f"{right - left:.2f}", f"{middle:.2f}", f"{gain.p:.4f}", verdict(gain),
    )  # fmt: skip


def gap_line(result: SearchResult) -> str:
    """How much of what the search saw is left where it did not look."""
    tuned = result.tuned
    parts = [f"searched on {tuned.plan.goal.as_measured(tuned.proposal.reached)[0]:.3f}"]
    if tuned.validation is not None:
        parts = [f"folds: chosen on {tuned.train:.3f}, scored on the other {tuned.validation.tuned:.3f}"]
        parts.append(f"gap {tuned.train - tuned.validation.tuned:+.3f}")
    if tuned.holdout is not None:
        parts.append(f"hold-out {tuned.holdout.tuned:.3f}")
        if tuned.validation is not None:
            parts.append(f"gap to the folds {tuned.validation.tuned - tuned.holdout.tuned:+.3f}")
    return " · ".join(parts)


def _holdout(result: SearchResult, resources: Resources) -> None:
    """The seal: how often it was broken, and the button that breaks it."""
    planned, tuned = result.planned, result.tuned
    if not len(planned.plan.split.holdout) or tuned.search.cancelled:
        return
    if tuned.holdout is not None:
        st.caption(f"Look {tuned.looks} at these sealed queries.")
        return
    counted = looks_at(planned.data, resources.store)
    looks, lookers = counted.count(planned.data.query_set, planned.sealed), counted.lookers(planned.data.query_set)
    by = ", ".join(f"{plain(who)} {count}" for who, count in lookers.items())
    box = st.popover(
        f"Open the sealed hold-out (look {looks + 1})", key=f"tune:seal:{looks}", icon=":material/lock_open:"
    )
    with box:
        times = f"{looks} time{'s' if looks > 1 else ''}"
        before = f"Some of these queries were looked at {times} before. " if looks else ""
        before += f"Looks at sealed queries of the set: {by}. " if by else ""
        st.markdown(
            f"{before}Each look makes it worth less: what is chosen after looking has been fitted to it. Open it once, when you "
            "have decided for this proposal. Looks are counted with the query set and stand on the evidence card."
        )
        st.button(
            "Open it",
            key="tune:open",
            type="primary",
            icon=":material/lock_open:",
            on_click=_open,
            args=(result, resources),
        )


def _open(result: SearchResult, resources: Resources) -> None:
    if not may("reviewer"):
        return
    looks = looks_at(result.planned.data, resources.store, reviewer() or "")
    page.update(result=open_holdout(result, looks))


# The Pareto front: what each further bit of one objective costs in another


def _front(result: SearchResult) -> None:
    """The chart of two objectives, and the table of the front, from which any config can be set on the sliders."""
    names = _objective_names(result)
    st.markdown("## The Pareto front")
    second = 1
    if len(names) > 2:
        second = names.index(
            st.segmented_control("Against", names[1:], default=names[1], required=True, key="tune:against") or names[1]
        )
    draw_chart(
        front_figure(result, second), key="tune:pareto", table=lambda: _tried(result, names),
        alt=f"Every config tried, {names[0]} against {names[second]}; those of the front joined by a line.",
    )  # fmt: skip
    _front_table(result, names)


def _tried(result: SearchResult, names: list[str]) -> list[dict[str, Any]]:
    """A row for each config that was tried: what it reached, and whether it is on the front."""
    return [
        {name: float(value) for name, value in zip(names, reached, strict=True)}
        | {"": "on the front" if i in result.tuned.search.front else ""}
        for i, reached in enumerate(_reached(result))
    ]


def _objective_names(result: SearchResult) -> list[str]:
    """The objectives in their order; the cost, which is small where it is good, last."""
    return [COST if name == RERANKED else name for name in result.planned.plan.goal.names]


def _reached(result: SearchResult) -> Any:
    """(T, M) what every trial reached, the cost as a count."""
    return result.planned.plan.goal.as_measured(np.stack([trial.reached for trial in result.tuned.search.trials]))


def _front_table(result: SearchResult, names: list[str]) -> None:
    reached, trials = _reached(result), result.tuned.search.trials
    front = sorted(result.tuned.search.front, key=lambda i: -float(trials[i].reached[0]))
    paths = [axis.path for axis in result.planned.plan.space.axes]
    rows = [
        {name: float(value) for name, value in zip(names, reached[i], strict=True)}
        | {path: shown(value) for path, value in zip(paths, trials[i].values, strict=True)}
        for i in front
    ]
    picked = pick_row(rows, key="tune:front", most=8, columns={name: _objective_column(name) for name in names})
    if picked is None:
        st.caption(
            "On the queries searched on. Select a row to set that config on the sliders instead of the proposal."
        )
        return
    trial = trials[front[picked]]
    space = result.planned.plan.space
    config = proposed(space, trial, f"{space.baseline.name}-front")
    left, right = st.columns([4, 1], vertical_alignment="center")
    left.caption(plain(", ".join(f"{path} {shown(value)}" for path, value in zip(paths, trial.values, strict=True))))
    if right.button("To the sliders", key="tune:front_take", icon=":material/tune:", width="stretch"):
        state.use_config(config)
        st.toast("Set on the sliders of Inspect.", icon=":material/check:")


def _objective_column(name: str) -> Any:
    return st.column_config.NumberColumn(
        name, format="%.0f" if name == COST else "%.3f", width=135 if name == COST else 80
    )


def front_figure(result: SearchResult, second: int) -> Figure:
    """The trials as dots, the front as a line, the baseline as a diamond, the proposal as a ring."""
    import plotly.graph_objects as go

    names, reached, search = _objective_names(result), _reached(result), result.tuned.search
    x, y = reached[:, second], reached[:, 0]
    made = go.Figure()

    def dots(rows: list[int], name: str, marker: dict[str, Any], mode: str = "markers", **more: Any) -> None:
        made.add_scatter(
            x=x[rows], y=y[rows], mode=mode, name=name, marker=marker,
            hovertemplate=hover(name, f"{names[second]} %{{x:.4g}}", f"{names[0]} %{{y:.4f}}"), **more,
        )  # fmt: skip

    usable = [i for i, trial in enumerate(search.trials) if trial.usable]
    dots(usable, "tried", {"color": TRIED, "size": 5, "opacity": 0.55})
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
    dots([0], "baseline", {"color": TRIED, "size": 13, "symbol": "diamond-open", "line": {"width": 2.5}})
    proposal = next(i for i, trial in enumerate(search.trials) if trial is result.tuned.proposal)
    dots([proposal], "proposal", {"color": LIST_COLOURS[1], "size": 17, "symbol": "circle-open", "line": {"width": 3}})
    made.update_layout(
        height=360, margin={"l": 8, "r": 16, "t": 8, "b": 8}, hovermode="closest",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "font": {"size": 12}},
        xaxis={"title": {"text": names[second]}, "gridcolor": GRID, "zeroline": False, "fixedrange": True, "automargin": True},
        yaxis={"title": {"text": names[0]}, "gridcolor": GRID, "zeroline": False, "fixedrange": True, "automargin": True},
    )  # fmt: skip
    return made


# What the proposal changes


@dataclass(frozen=True, slots=True)
class _AxisRow:
    """A searched parameter as it stands in the table; places in the range are in percent of it, None where there is none."""

    name: str
    path: str
    baseline: str
    proposal: str
    same: bool
    stable: str
    range: str = ""
    choices: str = ""
    baseline_at: str | None = None
    proposal_at: str | None = None
    stable_at: tuple[str, str] | None = None
    """Left end and width."""


def axes_html(
    axes: Sequence[Axis], names: Sequence[str], before: Sequence[Any], after: Sequence[Any], regions: Sequence[Region]
) -> Markup:
    """A row a searched parameter: baseline, proposal, and both in the range with how far the value can move."""
    by_path = {region.path: region for region in regions}
    rows = [
        _axis_row(axis, name, was, now, by_path.get(axis.path))
        for axis, name, was, now in zip(axes, names, before, after, strict=True)
    ]
    return render("tune/axes.html", rows=rows)


def _axis_row(axis: Axis, name: str, was: Any, now: Any, region: Region | None) -> _AxisRow:
    row = _AxisRow(name, axis.path, shown(was), shown(now), was == now, stable_words(region))
    if axis.choices:
        return replace(row, choices=" · ".join(shown(choice) for choice in axis.choices))

    def at(value: Any) -> float:
        share = (float(value) - axis.low) / ((axis.high - axis.low) or 1.0)
        return 100 * min(1.0, max(0.0, share))

    stable_at = None
    if region is not None and region.low is not None:
        left, right = at(region.low), at(region.high)
        stable_at = (f"{left:.2f}", f"{max(right - left, 0.8):.2f}")
    return replace(
        row, range=f"{axis.low:g} to {axis.high:g} in steps of {axis.step:g}", stable_at=stable_at,
        baseline_at=None if was is None else f"{at(was):.2f}", proposal_at=None if now is None else f"{at(now):.2f}",
    )  # fmt: skip


def stable_words(region: Region | None) -> str:
    """The region in words: `0.4 to 1.2`; “up to” or “from … on” where it ends only because the range does."""
    if region is None:
        return "–"
    if region.choices:
        return ", ".join(shown(value) for value in region.choices)
    if region.low is None:
        return "–"
    if region.at_low_edge and region.at_high_edge:
        return "any value"
    if region.at_low_edge:
        return f"up to {shown(region.high)}"
    if region.at_high_edge:
        return f"from {shown(region.low)} on"
    return f"{shown(region.low)} to {shown(region.high)}"
