"""Effective weights: what each part of the pipeline did to this ranking, beside the weight it nominally has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.analysis.component_effects import NO_LIMIT_K, Effect, component_effects
from cems_workbench.pipeline.stages.lists import called
from cems_workbench.ui.inspect.catalogue import View
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.charts import draw_chart
from cems_workbench.ui.kit.escape import tick
from cems_workbench.ui.kit.figures import hover
from cems_workbench.ui.kit.tables import draw_table, short_id

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

STILL = 1e-9
HELP = (
    "Each part is switched off alone and the query replayed. Pairs reversed: the share of pairs of results that change their order, "
    "(1 − Kendall’s tau) / 2. A memory that is in one of the two result lists only counts as below all of the other; a pair that "
    "one list has and the other knows nothing of counts half. Lists that agree each look small alone: what one takes away, the "
    "other still gives."
)


def draw(context: InspectContext) -> None:
    """The chart, the sentence, and the numbers."""
    trace, relevant = context.trace, context.relevant
    effects = context.remembered(
        "effective_weights",
        lambda: component_effects(trace.evidence, trace.config, relevant, context.variants_off),
        tuple(sorted(relevant)),
    )
    if not trace.results or not effects:
        st.info(
            "There are no results to weigh: no stage can have moved them. The journey under “What happened” says who lost them."
        )
        return
    k = trace.config.assembly.limit or NO_LIMIT_K
    moving = [effect for effect in effects if effect.turned > STILL]
    st.markdown(_sentence(effects, moving), help=HELP)
    if moving:
        alt = "How much the order changes with each part switched off; the table below has the figures."
        draw_chart(effects_figure(effects), key="inspect:effective:chart", alt=alt, table=None)
    _table(effects)
    st.caption(f"Of the first {k} results, with each part switched off alone.")


def _sentence(effects: Sequence[Effect], moving: Sequence[Effect]) -> str:
    """What moved most, and what is on and moved nothing."""
    if not moving:
        return "No part alone changes these results."
    most = max(moving, key=lambda effect: effect.turned)
    idle = [effect.part.name for effect in effects if effect.turned <= STILL]
    text = f"**{called(most.part.name)}** moved this ranking most: removing it reverses {most.turned:.0%} of pairs."
    if idle:
        text += f" {len(idle)} of {len(effects)} parts that are on change nothing here."
    return text


def effects_figure(effects: Sequence[Effect]) -> Figure:
    """A bar per part: the share of pairs that turn without it."""
    import plotly.graph_objects as go

    names = [tick(called(effect.part.name)) for effect in effects]
    figure = go.Figure()
    figure.add_bar(
        x=[effect.turned for effect in effects],
        y=names,
        orientation="h",
        name="pairs reversed without it",
        marker={"color": ["#0072B2" if effect.part.lists else "#7B848D" for effect in effects]},
        text=[f"{effect.turned:.0%}" if effect.turned > STILL else "" for effect in effects],
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
            "stage": text("stage", width=72, help="The stage it belongs to"),
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
                "tau", format="%.3f", width=60, help="Kendall’s tau with and without it: 1 the same, −1 the reverse"
            ),
            "new": number("new", width=50, help="Results that come in without it"),
            "moved": number("moved", width=58, help="Results that stay with another rank"),
            "relevant": text("relevant", width=76, help="Rank of the first memory judged relevant: now → without it"),
            "without it": text("without it", width=220, help="+ comes in, − goes out"),
        },
    )


def _row(effect: Effect, judged: bool) -> dict[str, Any]:
    changes = [*(f"+ {short_id(key)}" for key in effect.entered), *(f"− {short_id(key)}" for key in effect.left)]
    row: dict[str, Any] = {
        "part": called(effect.part.name),
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
