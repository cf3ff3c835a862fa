"""Effective weights and Expansion: what each pipeline component, and each query variant, does to this ranking, by ablation.

A component is compared with its nominal weight; a variant can be switched, and typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.analysis.component_effects import (
    Effect,
    VariantPart,
    VariantToggle,
    component_effects,
    leave_one_variant_out,
    variant_parts,
)
from cems_workbench.analysis.ranks import target_rank
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.list_sources import list_label
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.variants import draw_shares, draw_switches
from cems_workbench.ui.kit.charts import bar_chart, draw_chart, hover
from cems_workbench.ui.kit.html import draw as draw_template
from cems_workbench.ui.kit.html import excerpt, plain, tick, write_stylesheet
from cems_workbench.ui.kit.tables import Column, draw_table, short_id
from cems_workbench.ui.kit.views import View

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


MIN_EFFECT = 1e-9
HELP = (
    "Each component is disabled alone and the query is replayed. Pairs reversed: the share of result pairs that change their order, "
    "(1 − Kendall’s tau) / 2. A memory in only one of the two result lists counts as below all results of the other; a pair in only "
    "one list counts half. Lists that agree each have a small effect alone, since the other one still contributes the same "
    "memories."
)


def draw_effects(context: InspectContext) -> None:
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


TYPED, MESSAGE = "inspect:expansion:typed", "inspect:expansion:message"
MAX_EXPANSIONS = 20
"""Maximum number of expansions."""
VARIANT_HELP = "Each row is one replay without that variant’s lists (with them, if it is disabled), compared with the results above."
VARIANT_COLUMNS = {
    "variant": "Number of the variant, as in the names of its lists",
    "found": "Candidates in its lists",
    "only it": "Candidates found by no other variant",
    "share of the results": "Its part of the results’ fused scores, before rerank and adjust; the rest is bonuses and other lists",
    "leave": "Results removed when it is switched",
    "enter": "Results added when it is switched",
    "tau": "Kendall’s tau: 1 same order, 0 unrelated, −1 reversed",
    "rbo": "Rank-biased overlap, p 0.9: 1 identical; changes at the top weigh more",
}


def draw_expansion(context: InspectContext) -> None:
    """Draw switches, one row per variant, its contributions, and a box to type another variant."""
    write_stylesheet("evidence")
    trace, off = context.trace, context.variants_off
    draw_switches(context)
    _draw_typing(context)
    if len(trace.evidence.variants) < 2:
        return
    st.markdown("## Without each of them", help=VARIANT_HELP)
    parts, switched = variant_parts(trace, off), leave_one_variant_out(trace, off)
    rows, numbers = list(zip(parts, switched, strict=True)), ("found", "only it", "tau", "rbo")
    draw_template("inspect/expansion/ablation.html", columns=VARIANT_COLUMNS, numbers=numbers, rows=rows)
    unscored = max((toggled.unscored for toggled in switched), default=0)
    if unscored:
        st.caption(
            f"⚠ Up to {unscored} candidates are not scored by the reranker yet: the rows without them are provisional."
        )
    draw_template("inspect/expansion/summary.html", summary=_summary(rows))
    draw_shares(trace)


def _summary(rows: Sequence[tuple[VariantPart, VariantToggle]]) -> str:
    """One sentence: the variant with the largest effect, and those without any."""
    further = [(part, toggled) for part, toggled in rows if part.index and part.on]
    if not further:
        return "All further variants are disabled."
    idle = [part.index for part, toggled in further if toggled.rbo == 1 and not toggled.left and not toggled.entered]
    if len(idle) == len(further):
        return "No single further variant changes the results."
    most = min(further, key=lambda pair: pair[1].rbo)[0]
    text = (
        f"Variant {most.index} (“{excerpt(most.text, 60)}”) changes the results{' most' if len(further) > 1 else ''}."
    )
    return text + (f" No effect alone: {', '.join(map(str, idle))}." if idle else "")


def _draw_typing(context: InspectContext) -> None:
    with st.form("inspect:expansion:form", border=False, clear_on_submit=True):
        box, button = st.columns([3, 1], vertical_alignment="bottom")
        box.text_input(
            "Another variant of the query",
            key=TYPED,
            placeholder="Type the query in other words",
            help="Searched as a typed expansion (Expansion → manual). Generated expansions become typed ones, so none is "
            "lost.",
        )
        button.form_submit_button(
            "Search this too", width="stretch", on_click=_add, args=(context.trace, context.request)
        )
    message = st.session_state.pop(MESSAGE, None)
    if message:
        st.caption(message)


def _add(trace: Trace, request: Request) -> None:
    """Search the typed line too; current expansions are kept as typed ones."""
    line = " ".join(str(st.session_state[TYPED]).split())
    variants = trace.evidence.variants
    if not line:
        return
    if line.casefold() in {variant.text.casefold() for variant in variants}:
        st.session_state[MESSAGE] = f"“{plain(excerpt(line, 80))}” is already searched."
        return
    section = state.present_config().expansion
    there = [variant.text for variant in variants if variant.kind == "expansion"]
    lines = [*(request.variants if section.backend == "manual" else there), line]
    if len(lines) > MAX_EXPANSIONS:
        st.session_state[MESSAGE] = f"{MAX_EXPANSIONS} expansions are already searched, the maximum."
        return
    most = max(section.max_expansions, len(lines))
    state.apply({"expansion.backend": "manual", "expansion.max_expansions": most})
    if state.present().config_error:
        return
    off, longer = state.variants_off(request), replace(request, variants=tuple(lines))
    state.write_request(longer)
    if all(
        variant.kind in ("original", "expansion") for variant in variants
    ):  # then the other variants keep their numbers
        state.switch_variants(longer, off)


VIEW = (
    View("Effective weights", 90, draw_effects, "How much did each list, bonus, factor and cut move this ranking?"),
    View(
        "Expansion", 50, draw_expansion, "What did each query variant contribute, and what are the results without it?"
    ),
)
