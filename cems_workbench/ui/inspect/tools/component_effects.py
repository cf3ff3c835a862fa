"""Effective weights: the effect of each pipeline component on this ranking, by ablation, compared with its nominal weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.analysis.component_effects import Effect, component_effects
from cems_workbench.analysis.ranks import target_rank
from cems_workbench.pipeline.list_sources import list_label
from cems_workbench.ui.inspect.context import InspectContext, View
from cems_workbench.ui.kit.charts import bar_chart, draw_chart, hover
from cems_workbench.ui.kit.html import tick
from cems_workbench.ui.kit.tables import Column, draw_table, short_id

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MIN_EFFECT = 1e-9
HELP = (
    "Each component is disabled alone and the query is replayed. Pairs reversed: the share of result pairs that change their order, "
    "(1 − Kendall’s tau) / 2. A memory in only one of the two result lists counts as below all results of the other; a pair in only "
    "one list counts half. Lists that agree each have a small effect alone, since the other one still contributes the same "
    "memories."
)


def draw(context: InspectContext) -> None:
    """Draw a summary, the chart, and the numbers."""
    trace, relevant = context.trace, context.relevant
    effects = context.remembered(
        "effective_weights",
        lambda _: component_effects(trace.evidence, trace.config, relevant, context.variants_off),
        tuple(sorted(relevant)),
    )
    if not trace.results or not effects:
        st.info(
            "There are no results, so no component has an effect. Rank flow under “What happened” shows where candidates were lost."
        )
        return
    idle = sum(effect.turned <= MIN_EFFECT for effect in effects)
    if idle == len(effects):
        st.markdown("No single component changes these results.", help=HELP)
    else:
        most = max(effects, key=lambda effect: effect.turned)
        text = f"**{list_label(most.part.name)}** has the largest effect on this ranking: removing it reverses {most.turned:.0%} of pairs."
        none = f" {idle} of {len(effects)} enabled components have no effect here." if idle else ""
        st.markdown(text + none, help=HELP)
        alt = "Bar chart: share of pairs reversed with each component disabled; the table below has the numbers."
        draw_chart(effects_figure(effects), key="inspect:effective:chart", alt=alt, table=None)
    judged = any(effect.rank_now is not None or effect.rank_without is not None for effect in effects)
    draw_table(effects, [column for column in COLUMNS if judged or column.name != "relevant"], most=len(effects))
    st.caption(f"For the first {target_rank(trace.config)} results, with each component disabled alone.")


def effects_figure(effects: Sequence[Effect]) -> Figure:
    """One bar per component: the share of pairs reversed without it."""
    return bar_chart(
        [list_label(effect.part.name) for effect in effects],
        [effect.turned for effect in effects],
        [f"{effect.turned:.0%}" if effect.turned > MIN_EFFECT else "" for effect in effects],
        {"title": "pairs reversed without it", "tickformat": ".0%", "rangemode": "tozero"},
        row=24,
        marker={"color": ["#0072B2" if effect.part.lists else "#7B848D" for effect in effects]},
        customdata=[tick(list_label(effect.part.name)) for effect in effects],
        hovertemplate=hover("%{customdata}: removing it reverses %{x:.1%} of pairs"),
    )


def _relevant(effect: Effect) -> str:
    now, without = (str(rank) if rank else "–" for rank in (effect.rank_now, effect.rank_without))
    return now if now == without else f"{now} → {without}"


COLUMNS: list[Column[Effect]] = [
    Column("part", lambda effect: list_label(effect.part.name), 116),
    Column("stage", lambda effect: effect.part.stage, 72, help="Stage of the component"),
    Column(
        "nominal",
        lambda effect: None if effect.nominal is None else round(effect.nominal, 2),
        96,
        "percent",
        "A list's weight × its variant's weight, as a share of all lists",
        bar=1,
        colour="#7B848D",
    ),
    Column(
        "effective",
        lambda effect: None if effect.share is None else round(effect.share, 2),
        96,
        "percent",
        "A list's pairs reversed, as a share of all lists",
        bar=1,
    ),
    Column("tau", lambda effect: effect.tau, 60, "%.3f", "Kendall’s tau with and without it: 1 identical, −1 reversed"),
    Column("new", lambda effect: len(effect.entered), 50, help="Results added without it"),
    Column("moved", lambda effect: effect.moved, 58, help="Results with another rank without it"),
    Column("relevant", _relevant, 76, help="Rank of the first memory judged relevant: now → without it"),
    Column(
        "without it",
        lambda effect: ", ".join(
            [*(f"+ {short_id(key)}" for key in effect.entered), *(f"− {short_id(key)}" for key in effect.left)]
        ),
        220,
        help="+ added, − removed",
    ),
]
VIEW = View("Effective weights", 90, draw, "How much did each list, bonus, factor and cut move this ranking?")
