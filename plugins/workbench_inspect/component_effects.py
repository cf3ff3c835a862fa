"""Effective weights and Expansion: what each component of the pipeline, and each variant of the query, does to this ranking.

Both leave one out and replay; a component is next to its nominal weight, and a variant can be typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from cems_workbench.analysis.ranks import target_rank
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.list_sources import list_label
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.variants import draw_switches
from cems_workbench.ui.kit.html import excerpt, plain
from cems_workbench.ui.kit.tables import Column, draw_table, short_id
from cems_workbench.ui.kit.views import View
from workbench_inspect import leave_one_out

HELP = (
    "Each component is disabled alone and the query is replayed. Reversed is the share of result pairs that change their order, "
    "(1 − Kendall’s tau) / 2: a memory in only one of the two result lists counts as below all results of the other, and a pair in only "
    "one of them counts half. Lists that agree each have a small effect alone: the other one still finds the same memories."
)


def changes(entered: Sequence[str], left: Sequence[str]) -> str:
    """Results that come in and go: "+ m1  − m2"."""
    return "  ".join([*(f"+ {short_id(key)}" for key in entered), *(f"− {short_id(key)}" for key in left)])


def draw_effects(context: InspectContext) -> None:
    """Draw a row for each component."""
    trace, relevant = context.trace, context.relevant
    effects = context.remembered(
        "effective_weights",
        lambda _: leave_one_out.component_effects(trace.evidence, trace.config, relevant, context.variants_off),
        tuple(sorted(relevant)),
    )
    if not trace.results or not effects:
        st.info("There are no results, so no component has an effect. Rank flow shows where candidates were lost.")
        return
    most = max(effects, key=lambda effect: effect.turned)
    text = "No single component changes these results."
    if most.turned > 0:
        text = f"**{list_label(most.part.name)}** has the largest effect on this ranking: {most.turned:.0%} of pairs."
    st.markdown(text, help=HELP)
    judged = any(effect.rank_now or effect.rank_without for effect in effects)
    draw_table(effects, [column for column in COLUMNS if judged or column.name != "relevant"], most=len(effects))
    st.caption(f"For the first {target_rank(trace.config)} results, with each component disabled alone.")


def _relevant(effect: leave_one_out.Effect) -> str:
    now, without = (str(rank) if rank else "–" for rank in (effect.rank_now, effect.rank_without))
    return now if now == without else f"{now} → {without}"


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 2)


EFFECTIVE = "A list's pairs reversed, as a share of all lists"
NOMINAL = "A list's weight × its variant's weight, as a share of all lists"
COLUMNS: list[Column[leave_one_out.Effect]] = [
    Column("part", lambda effect: list_label(effect.part.name), 116),
    Column("stage", lambda effect: effect.part.stage, 72, help="Stage of the component"),
    Column("nominal", lambda effect: _rounded(effect.nominal), 96, "percent", NOMINAL, bar=1, colour="#7B848D"),
    Column("effective", lambda effect: _rounded(effect.share), 96, "percent", EFFECTIVE, bar=1),
    Column("reversed", lambda effect: _rounded(effect.turned), 76, "percent", "Pairs of results reversed without it"),
    Column("new", lambda effect: len(effect.entered), 50, help="Results added without it"),
    Column("moved", lambda effect: effect.moved, 58, help="Results with another rank without it"),
    Column("relevant", _relevant, 76, help="Rank of the first memory judged relevant: now → without it"),
    Column("without it", lambda effect: changes(effect.entered, effect.left), 220, help="+ added, − removed"),
]

TYPED, MESSAGE = "inspect:expansion:typed", "inspect:expansion:message"
MAX_EXPANSIONS = 20
"""Maximum number of expansions."""
VARIANT_HELP = (
    "Each row is one replay without that variant’s lists (with them, if it is disabled), compared with the results above. Contributions "
    "has what each gave each candidate."
)
Ablation = tuple[leave_one_out.VariantPart, leave_one_out.VariantToggle]
SHARE = "Its part of the results’ fused scores, before rerank and adjust; the rest is bonuses and other lists"
RBO = "Rank-biased overlap with the present results, p 0.9: 1 identical; changes at the top weigh more"
VARIANTS: list[Column[Ablation]] = [
    Column("variant", lambda row: f"{row[0].index}{'' if row[0].on else ' off'}  {excerpt(row[0].text, 60)}", 240),
    Column("found", lambda row: row[0].found, 56, help="Candidates in its lists"),
    Column("only it", lambda row: len(row[0].alone), 60, help="Candidates found by no other variant"),
    Column("share", lambda row: round(row[0].share, 3), 96, "percent", SHARE, bar=1),
    Column("RBO", lambda row: row[1].rbo, 56, "%.2f", RBO),
    Column("without it", lambda row: changes(row[1].entered, row[1].left), 300, help="+ added, − removed"),
    Column("unscored", lambda row: row[1].unscored, 70, help="Candidates that the reranker would have to score first"),
]


def draw_expansion(context: InspectContext) -> None:
    """Draw the switches, a box to type another variant, and a row for each variant."""
    trace, off = context.trace, context.variants_off
    draw_switches(context)
    _draw_typing(context)
    if len(trace.evidence.variants) < 2:
        return
    st.markdown("## Without each of them", help=VARIANT_HELP)
    rows = list(
        zip(leave_one_out.variant_parts(trace, off), leave_one_out.leave_one_variant_out(trace, off), strict=True)
    )
    draw_table(rows, VARIANTS, most=len(rows), key="inspect:expansion:ablation")


def _draw_typing(context: InspectContext) -> None:
    with st.form("inspect:expansion:form", border=False, clear_on_submit=True):
        box, button = st.columns([3, 1], vertical_alignment="bottom")
        hint = "Type the query in other words"
        help = "Searched as a typed expansion (Expansion → manual). Generated expansions become typed ones, so none is lost."
        box.text_input("Another variant of the query", key=TYPED, placeholder=hint, help=help)
        act: Any = {"on_click": _add, "args": (context.trace, context.request), "width": "stretch"}
        button.form_submit_button("Search this too", **act)
    if message := st.session_state.pop(MESSAGE, None):
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
    if all(variant.kind in ("original", "expansion") for variant in variants):  # the others keep their numbers
        state.switch_variants(longer, off)


_MOVED = "How much did each list, bonus, factor and cut move this ranking?"
WEIGHTS = View("Effective weights", 90, draw_effects, _MOVED)
_WITHOUT = "What did each query variant contribute, and what are the results without it?"
EXPANSION = View("Expansion", 50, draw_expansion, _WITHOUT)
