"""Expansion: the contribution of each query variant, the results without it, switches, and a typed variant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from cems_workbench.analysis.component_effects import VariantPart, VariantToggle, leave_one_variant_out, variant_parts
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.gather import Request
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext, View
from cems_workbench.ui.inspect.variants import draw_shares, draw_switches
from cems_workbench.ui.kit.html import draw as draw_template
from cems_workbench.ui.kit.html import excerpt, plain, write_stylesheet

TYPED, MESSAGE = "inspect:expansion:typed", "inspect:expansion:message"
MAX_EXPANSIONS = 20
"""Maximum number of expansions."""
HELP = "Each row is one replay without that variant’s lists (with them, if it is disabled), compared with the results above."
COLUMNS = {
    "variant": "Number of the variant, as in the names of its lists",
    "found": "Candidates in its lists",
    "only it": "Candidates found by no other variant",
    "share of the results": "Its part of the results’ fused scores, before rerank and adjust; the rest is bonuses and other lists",
    "leave": "Results removed when it is switched",
    "enter": "Results added when it is switched",
    "tau": "Kendall’s tau: 1 same order, 0 unrelated, −1 reversed",
    "rbo": "Rank-biased overlap, p 0.9: 1 identical; changes at the top weigh more",
}


def draw(context: InspectContext) -> None:
    """Draw switches, one row per variant, its contributions, and a box to type another variant."""
    write_stylesheet("evidence")
    trace, off = context.trace, context.variants_off
    draw_switches(context)
    _draw_typing(context)
    if len(trace.evidence.variants) < 2:
        return
    st.markdown("## Without each of them", help=HELP)
    parts, switched = variant_parts(trace, off), leave_one_variant_out(trace, off)
    rows, numbers = list(zip(parts, switched, strict=True)), ("found", "only it", "tau", "rbo")
    draw_template("inspect/expansion/ablation.html", columns=COLUMNS, numbers=numbers, rows=rows)
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
    """Draw a box for a further variant."""
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


VIEW = View("Expansion", 50, draw, "What did each query variant contribute, and what are the results without it?")
