"""Effective weights: the effect of each pipeline component on this ranking, by ablation, compared with its nominal weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.analysis.component_effects import NO_LIMIT_K, Effect, component_effects
from cems_workbench.pipeline.wording import list_label
from cems_workbench.ui.inspect.catalogue import View
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.charts import draw_chart, hover
from cems_workbench.ui.kit.html import tick
from cems_workbench.ui.kit.tables import draw_table, short_id

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
    """Draw the chart, the summary, and the numbers."""
    trace, relevant = context.trace, context.relevant
    effects = context.remembered(
        "effective_weights",
        lambda: component_effects(trace.evidence, trace.config, relevant, context.variants_off),
        tuple(sorted(relevant)),
    )
    if not trace.results or not effects:
        st.info(
            "There are no results, so no component has an effect. Journey under “What happened” shows where candidates were lost."
        )
        return
    k = trace.config.assembly.limit or NO_LIMIT_K
    moving = [effect for effect in effects if effect.turned > MIN_EFFECT]
    st.markdown(_sentence(effects, moving), help=HELP)
    if moving:
        alt = "Bar chart: share of pairs reversed with each component disabled; the table below has the numbers."
        draw_chart(effects_figure(effects), key="inspect:effective:chart", alt=alt, table=None)
    _table(effects)
    st.caption(f"For the first {k} results, with each component disabled alone.")


def _sentence(effects: Sequence[Effect], moving: Sequence[Effect]) -> str:
    """The component with the largest effect, and the number without any."""
    if not moving:
        return "No single component changes these results."
    most = max(moving, key=lambda effect: effect.turned)
    idle = [effect.part.name for effect in effects if effect.turned <= MIN_EFFECT]
    text = f"**{list_label(most.part.name)}** has the largest effect on this ranking: removing it reverses {most.turned:.0%} of pairs."
    if idle:
        text += f" {len(idle)} of {len(effects)} enabled components have no effect here."
    return text


def effects_figure(effects: Sequence[Effect]) -> Figure:
    """One bar per component: the share of pairs reversed without it."""
    import plotly.graph_objects as go

    names = [tick(list_label(effect.part.name)) for effect in effects]
    figure = go.Figure()
    figure.add_bar(
        x=[effect.turned for effect in effects],
        y=names,
        orientation="h",
        name="pairs reversed without it",
        marker={"color": ["#0072B2" if effect.part.lists else "#7B848D" for effect in effects]},
        text=[f"{effect.turned:.0%}" if effect.turned > MIN_EFFECT else "" for effect in effects],
        textposition="outside",
        cliponaxis=False,
        hovertemplate=hover("%{y}: removing it reverses %{x:.1%} of pairs"),
        showlegend=False,
    )
    figure.update_layout(
        height=70 + 24 * len(effects),
        margin={"l": 8, "r": 40, "t": 8, "b": 40},
        xaxis={"title": {"text": "pairs reversed without it"}, "tickformat": ".0%", "rangemode": "tozero"},
        yaxis={"autorange": "reversed", "automargin": True, "tickfont": {"size": 12}},
        bargap=0.4,
        hovermode="closest",
    )
    return figure


def _table(effects: Sequence[Effect]) -> None:
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    progress = st.column_config.ProgressColumn
    judged = any(effect.rank_now is not None or effect.rank_without is not None for effect in effects)
    draw_table(
        [_row(effect, judged) for effect in effects],
        most=len(effects),
        columns={
            "part": text("part", width=116),
            "stage": text("stage", width=72, help="Stage of the component"),
            "nominal": progress(
                "nominal",
                format="percent",
                min_value=0,
                max_value=1,
                width=96,
                color="#7B848D",
                help="A list's weight × its variant's weight, as a share of all lists",
            ),
            "effective": progress(
                "effective",
                format="percent",
                min_value=0,
                max_value=1,
                width=96,
                color="#0072B2",
                help="A list's pairs reversed, as a share of all lists",
            ),
            "tau": number(
                "tau", format="%.3f", width=60, help="Kendall’s tau with and without it: 1 identical, −1 reversed"
            ),
            "new": number("new", width=50, help="Results added without it"),
            "moved": number("moved", width=58, help="Results with another rank without it"),
            "relevant": text("relevant", width=76, help="Rank of the first memory judged relevant: now → without it"),
            "without it": text("without it", width=220, help="+ added, − removed"),
        },
    )


def _row(effect: Effect, judged: bool) -> dict[str, Any]:
    changes = [*(f"+ {short_id(key)}" for key in effect.entered), *(f"− {short_id(key)}" for key in effect.left)]
    row: dict[str, Any] = {
        "part": list_label(effect.part.name),
        "stage": effect.part.stage,
        "nominal": None if effect.nominal is None else round(effect.nominal, 2),
        "effective": None if effect.share is None else round(effect.share, 2),
        "tau": effect.tau,
        "new": len(effect.entered),
        "moved": effect.moved,
    }
    if judged:
        now, without = (str(rank) if rank else "–" for rank in (effect.rank_now, effect.rank_without))
        row["relevant"] = now if now == without else f"{now} → {without}"
    return row | {"without it": ", ".join(changes)}


VIEW = View("Effective weights", 90, draw, "How much did each list, bonus, factor and cut move this ranking?")
