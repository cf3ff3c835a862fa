"""Result of a search: verdict, gains on each part of the queries, Pareto front, changed parameters; and the bundled result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st
from markupsafe import Markup

from cems_workbench.config import preset
from cems_workbench.config.fields import short_value
from cems_workbench.evaluation.verdict import count_words
from cems_workbench.jobs import tuning_summary as summary
from cems_workbench.jobs.catalogue import named, restored_config, sample_figures
from cems_workbench.jobs.evaluation import agreed, labelled
from cems_workbench.jobs.scoring import Lacking, read_again
from cems_workbench.jobs.tuning import SearchResult, SearchSettings, guard_lines, looks_at, open_holdout, searched_anew
from cems_workbench.jobs.unlabelled import by_judgments
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress
from cems_workbench.tuning.holdout import MIN_SEALED, Gain, few_sealed
from cems_workbench.tuning.learned import Region
from cems_workbench.tuning.optimizer import Watch
from cems_workbench.tuning.space import Axis
from cems_workbench.tuning.tune import proposed
from cems_workbench.ui.evaluate import setup
from cems_workbench.ui.evaluate.changes import OUTCOMES, draw_changes
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.toolbar import diff_table
from cems_workbench.ui.kit.charts import LEGEND, LIST_COLOURS, draw_chart, hover, layout
from cems_workbench.ui.kit.html import announce, plain, render
from cems_workbench.ui.kit.session import for_all_sessions, may, reviewer
from cems_workbench.ui.kit.tables import Column, pick_row
from cems_workbench.ui.kit.widgets import draw_bundled_notice, offer_job, switch
from cems_workbench.ui.tune.learned import changes, open_query
from cems_workbench.ui.tune.search import label
from cems_workbench.ui.tune.state import VIEW, replace_result, start

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

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
