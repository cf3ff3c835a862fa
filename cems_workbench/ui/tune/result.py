"""Result of a search: verdict, gains on each part of the queries, Pareto front, changed parameters; and the bundled result.

What a search learned: parameter importance, the response of the objective to one parameter, and wins and losses per query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import streamlit as st
from markupsafe import Markup

from cems_workbench.config import field_specs, preset
from cems_workbench.config.fields import short_value
from cems_workbench.evaluation.evaluate import NO_TYPE
from cems_workbench.evaluation.verdict import count_words
from cems_workbench.jobs import tuning_summary as summary
from cems_workbench.jobs.catalogue import named, restored_config, sample_figures
from cems_workbench.jobs.evaluation import agreed, labelled
from cems_workbench.jobs.scoring import Lacking, read_again
from cems_workbench.jobs.tuning import SearchResult, SearchSettings, guard_lines, looks_at, open_holdout, searched_anew
from cems_workbench.jobs.unlabelled import by_judgments
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress
from cems_workbench.records import Query
from cems_workbench.tuning.holdout import MIN_SEALED, Gain, few_sealed
from cems_workbench.tuning.learned import Curve, Importance, Region, importance, response_curve
from cems_workbench.tuning.space import Axis
from cems_workbench.tuning.tune import Watch, proposed
from cems_workbench.ui.evaluate import setup
from cems_workbench.ui.evaluate.breakdown import pick_query
from cems_workbench.ui.evaluate.changes import OUTCOMES, QueryChanges, draw_changes
from cems_workbench.ui.evaluate.state import open_gathered
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.toolbar import diff_table
from cems_workbench.ui.kit.charts import LEGEND, LIST_COLOURS, bar_chart, draw_chart, hover, layout
from cems_workbench.ui.kit.html import announce, plain, render, tick
from cems_workbench.ui.kit.session import for_all_sessions, may, reviewer
from cems_workbench.ui.kit.tables import HELP, Column, draw_values, pick_row
from cems_workbench.ui.kit.widgets import draw_bundled_notice, offer_job, progress_bar, remembered, switch
from cems_workbench.ui.tune.search import label
from cems_workbench.ui.tune.state import VIEW, learned, replace_result, start

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


TRIAL_COLOUR = "#7B848D"
"""Colour of configs that are neither the proposal nor on the front."""


def draw(result: SearchResult, resources: Resources) -> None:
    """Draw the whole result."""
    planned, goal = result.planned, result.planned.plan.goal
    about = " · ".join(summary.about_lines(result))
    st.html(
        render("tune/verdict.html", headline=summary.headline(result), about=about, doubt=summary.doubt_line(result))
    )
    announce(summary.headline(result))
    if result.tuned.search.cancelled:
        left, right = st.columns([4, 1], vertical_alignment="center")
        left.info("Stopped early. Configs already tried are kept; resuming skips them.", icon=":material/pause:")
        common: dict[str, Any] = {"type": "primary", "width": "stretch", "icon": ":material/play_arrow:"}
        right.button("Resume", key="tune:go_on", on_click=start, args=(planned,), **common)
    evidence, qids = planned.data.evidence, planned.data.batch.qids
    rows = [Lacking(config.name, config, evidence, needs, qids) for config, needs in result.needs]
    # Once the missing scores are computed, the same search runs again.
    if setup.draw_missing_scores("tune", rows, resources, label="Score and search again"):
        start(searched_anew(planned, read_again(evidence)))
        st.rerun()
    st.html(gains_html(summary.gain_rows(result), str(goal.objectives[0])))
    st.caption(
        summary.gap_line(result), help="Large differences between training, folds and hold-out suggest overfitting."
    )
    _holdout(result, resources)
    if planned.data.stands_in:
        st.markdown("## By judgments")
        if result.by_judgments is None:
            offer_judgments(result, resources)
        else:
            st.html(gains_html(summary.judged_rows(result.by_judgments), str(goal.objectives[0])))
            for line in summary.judged_lines(result.by_judgments):
                st.caption(plain(line))
    if result.better:
        found = changes(result)
        better, worse = (found.outcomes.count(one) for one in OUTCOMES[:2])
        said = count_words(better, worse, len(found.queries) - better - worse)
        st.markdown(
            f"## {said} on the tuning queries", help="The queries of “Searched on”, which flatter the proposal."
        )
        open_query(result, draw_changes(found, result.tuned.config.name, "tune:changed"))
    for line in guard_lines(result):
        st.caption(f":material/shield: {plain(line)}")
    if len(goal.names) > 1:
        _front(result)
    st.markdown("## Changed parameters")
    space = planned.plan.space
    names = [label(axis.path, space.baseline) for axis in space.axes]
    before, after = space.values_of(space.baseline), result.tuned.proposal.values
    changed = sum(was != now for was, now in zip(before, after, strict=True))
    if changed:
        st.html(axes_html(space.axes, names, before, after, result.regions))
    st.caption(f"{changed} of {len(names)} searched parameters change.")


# Gains on each part of the queries


def gains_html(rows: Sequence[summary.GainRow], measure: str) -> Markup:
    """One row per part: baseline, proposal, difference, its 95 % interval as text and on a common scale, p, and the verdict."""
    edges = [abs(edge) for row in rows if row.gain for edge in (row.gain.low, row.gain.high, row.gain.difference)]
    # Percent per unit: the scale's middle is 0, its ends are a little beyond the widest interval.
    scale = 50 / (max(edges or [0]) * 1.08 or 1.0)
    return render("tune/gains.html", rows=rows, measure=measure, scale=scale, verdict=summary.verdict)


def _holdout(result: SearchResult, resources: Resources) -> None:
    """Draw the hold-out: the number of looks so far, and the button to open it."""
    planned, tuned = result.planned, result.tuned
    if not len(planned.plan.split.holdout) or tuned.search.cancelled:
        return
    if tuned.holdout is not None:
        st.caption(f"Look {tuned.looks} at these sealed queries.")
        return
    counted = looks_at(planned.data, resources.store)
    looks, lookers = counted.count(planned.data.query_set, planned.sealed), counted.lookers(planned.data.query_set)
    by = ", ".join(f"{plain(who)} {count}" for who, count in lookers.items())

    def open_them() -> None:
        if may("reviewer"):
            replace_result(open_holdout(result, looks_at(planned.data, resources.store, reviewer() or "")))

    label, icon = f"Open the sealed hold-out (look {looks + 1})", ":material/lock_open:"
    with st.popover(label, key=f"tune:seal:{looks}", icon=icon):
        times = f"{looks} time{'s' if looks > 1 else ''}"
        before = f"Some of these queries have been opened {times} before. " if looks else ""
        before += f"Looks at sealed queries of the set: {by}. " if by else ""
        if len(planned.sealed) < MIN_SEALED:
            st.warning(few_sealed(len(planned.sealed)), icon=":material/warning:")
        st.markdown(
            f"{before}Each look reduces its value: choices made after a look are fitted to it. Open it once, when you have "
            "decided for this proposal. Looks are counted per query set and recorded on the evidence card."
        )
        st.button("Open it", key="tune:open", type="primary", icon=icon, on_click=open_them)


# The Pareto front: the cost of each gain in one objective in terms of another


def _front(result: SearchResult) -> None:
    """Draw two objectives against each other, and the table of the front, whose configs can be applied to the sliders."""
    names = summary.objective_names(result)
    st.markdown("## The Pareto front")
    second = 1
    if len(names) > 2:
        second = names.index(switch("Against", names[1:], "tune:against", labelled=True))
    reached, trials, front = summary.all_reached(result), result.tuned.search.trials, result.tuned.search.front
    draw_chart(
        front_figure(result, second),
        key="tune:pareto",
        table=lambda: [
            dict(zip([*names, ""], [*map(float, values), "on the front" if i in front else ""], strict=True))
            for i, values in enumerate(reached)
        ],
        alt=f"Scatter chart of all configs tried: {names[0]} by {names[second]}; the front is joined by a line.",
    )
    paths = [axis.path for axis in result.planned.plan.space.axes]
    widths = {summary.COST: (135, "%.0f")}
    columns: list[Column[int]] = [
        Column(name, lambda trial, i=i: float(reached[trial][i]), *widths.get(name, (80, "%.3f")))  # type: ignore[misc]
        for i, name in enumerate(names)
    ]
    columns += [Column(path, lambda trial, i=i: short_value(trials[trial].values[i])) for i, path in enumerate(paths)]  # type: ignore[misc]
    picked = pick_row(summary.front_of(result), columns, key="tune:front", most=8)
    if picked is None:
        st.caption("On the tuning queries. Select a row to apply that config to the sliders instead of the proposal.")
        return
    trial = trials[picked]
    space = result.planned.plan.space
    config = proposed(space, trial, f"{space.baseline.name}-front")
    left, right = st.columns([4, 1], vertical_alignment="center")
    left.caption(
        plain(", ".join(f"{path} {short_value(value)}" for path, value in zip(paths, trial.values, strict=True)))
    )
    if right.button("To the sliders", key="tune:front_take", icon=":material/tune:", width="stretch"):
        state.use_config(config)
        st.toast("Set on the sliders of Inspect.", icon=":material/check:")


def front_figure(result: SearchResult, second: int) -> Figure:
    """Trials as dots, the front as a line, the baseline as a diamond, the proposal as a ring."""
    import plotly.graph_objects as go

    names, reached, search = summary.objective_names(result), summary.all_reached(result), result.tuned.search
    x, y = reached[:, second], reached[:, 0]
    chart = go.Figure()

    def dots(rows: list[int], name: str, marker: dict[str, Any], mode: str = "markers", **more: Any) -> None:
        chart.add_scatter(
            x=x[rows],
            y=y[rows],
            mode=mode,
            name=name,
            marker=marker,
            hovertemplate=hover(name, f"{names[second]} %{{x:.4g}}", f"{names[0]} %{{y:.4f}}"),
            **more,
        )

    usable = [i for i, trial in enumerate(search.trials) if trial.usable]
    dots(usable, "tried", {"color": TRIAL_COLOUR, "size": 5, "opacity": 0.55})
    broken = [i for i, trial in enumerate(search.trials) if trial.broken]
    if broken:
        dots(broken, "violates a guard", {"color": LIST_COLOURS[3], "size": 6, "symbol": "x-thin-open"})
    front = sorted(search.front, key=lambda i: (float(x[i]), float(y[i])))
    dots(
        front,
        "front",
        {"color": LIST_COLOURS[0], "size": 8},
        "lines+markers",
        line={"color": LIST_COLOURS[0], "width": 2},
    )
    dots([0], "baseline", {"color": TRIAL_COLOUR, "size": 13, "symbol": "diamond-open", "line": {"width": 2.5}})
    proposal = next(i for i, trial in enumerate(search.trials) if trial is result.tuned.proposal)
    dots([proposal], "proposal", {"color": LIST_COLOURS[1], "size": 17, "symbol": "circle-open", "line": {"width": 3}})
    chart.update_layout(layout(360, {"title": names[second]}, {"title": names[0]}, showlegend=True, legend=LEGEND))
    return chart


# Changed parameters


def axes_html(
    axes: Sequence[Axis], names: Sequence[str], before: Sequence[Any], after: Sequence[Any], regions: Sequence[Region]
) -> Markup:
    """One row per searched parameter that changed: baseline and proposal, both within the range, and the stable region."""
    by_path = {region.path: region for region in regions}
    rows = [
        (axis, name, was, now, by_path.get(axis.path))
        for axis, name, was, now in zip(axes, names, before, after, strict=True)
        if was != now
    ]
    return render("tune/axes.html", rows=rows, text=short_value, stable=summary.stable_words, at=_at)


def _at(axis: Axis, value: Any) -> float:
    share = (float(value) - axis.low) / ((axis.high - axis.low) or 1.0)
    return 100 * min(1.0, max(0.0, share))


SEALED_SHARE = 0.2
"""The share of judged queries sealed when a proposal is validated on judgments, as in a labelled search."""


def offer_judgments(result: SearchResult, resources: Resources) -> None:
    """Draw the offer to validate the proposal on existing judgments, if there are any."""
    if result.tuned.search.cancelled:
        return
    grades = agreed(resources.store.judgments.read(), None)
    judged = labelled(result.planned.data.evidence, grades, for_all_sessions)
    if not judged.batch.queries:
        st.caption("None of these queries is judged, so the proposal cannot be validated on judgments yet.")
        return
    planned, plan = result.planned, result.planned.plan
    settings = SearchSettings(planned.group_by, len(plan.split.folds), SEALED_SHARE, plan.trials, plan.seed)

    def compare(progress: Progress) -> None:
        def watch(name: str) -> Watch:
            return lambda done, total, best: progress(f"{name}, with judgments", done, total)

        relevant_from = resources.store.query_sets.relevant_from(planned.data.query_set)
        replace_result(by_judgments(result, judged, settings, relevant_from, watch))

    message = (
        f"{len(judged.batch.queries)} of these queries are judged. Validate the proposal on them, and compare it with one tuned "
        "on judgments."
    )
    if offer_job(
        "tune:by_judgments",
        message,
        "Validate on judgments",
        compare,
        icon=":material/balance:",
        kept="Tried configs are kept.",
        help="Also runs the same search with judgments, for comparison. A fifth of the judged queries stays sealed.",
    ):
        st.rerun()


def draw_sample(resources: Resources, query_set: str | None = None) -> bool:
    """Draw the bundled result if the store holds the unmodified sample set; False if nothing was drawn."""
    figures = sample_figures(resources, query_set)
    if figures is None:
        return False
    restored = restored_config(figures.tuned, resources.store)
    card = restored.card
    assert card is not None, "bundled results include a card"
    base, first = preset(card.baseline).config, card.measured[0]
    gained = Gain(first.queries, first.baseline, first.tuned, first.low, first.high, first.p)
    about = [f"Sample set, baseline {card.baseline}", f"{card.trials} configs", card.relevance, f"seed {card.seed}"]
    said = summary.headline_of(first.metric, card.baseline, not card.kept, gained)
    st.html(render("tune/verdict.html", headline=said, about=" · ".join(about), doubt=""))
    draw_bundled_notice(
        "tune",
        figures,
        "A search under Set up measures on this machine.",
        "Choose this baseline",
        lambda: st.session_state.update({"tune:baseline": card.baseline, VIEW: "Set up"}),
    )
    row = summary.GainRow(summary.CROSS_VALIDATED, "chosen on the other folds, scored on each fold", gained)
    st.html(gains_html([row], first.metric))
    st.caption(f"Split: {card.split}; these stay sealed.")
    st.markdown("## Changed parameters")
    diff_table(base, named(base.name, restored.config), "tune:shipped")
    with st.expander("Its evidence card"):
        st.code(card.text, language=None, wrap_lines=True)
    return True
