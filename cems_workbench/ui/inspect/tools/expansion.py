"""Expansion: what each variant of the query gave, the results without it, switches, and a variant of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.expansion import VariantPart, VariantToggle, leave_one_variant_out, variant_parts
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.gather import Request
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.catalogue import View
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.variants import draw_shares, draw_switches
from cems_workbench.ui.kit.assets import write_stylesheet
from cems_workbench.ui.kit.escape import excerpt, plain
from cems_workbench.ui.kit.templates import render

TYPED, MESSAGE = "inspect:expansion:typed", "inspect:expansion:message"
MOST = 20
"""Expansions that the config allows."""
LISTED, TOLD = 4, 40
"""Ids in a cell, and in its tooltip."""
HELP = (
    "Each row is one replay with that variant's lists left out (put back, where it is switched off). The results are compared with those "
    "you see above."
)
COLUMNS = {
    "variant": "Its number, as in the names of its lists",
    "found": "Candidates that its lists hold",
    "only it": "Candidates that no other variant found",
    "share of the results": "Its part of the results' fused scores, before reranking and adjusting; the rest is bonuses and other lists",
    "leave": "Results that are gone when it is switched",
    "enter": "Memories that come into the results when it is switched",
    "tau": "Kendall's tau: 1, the same order; 0, unrelated; −1, reversed",
    "rbo": "Rank-biased overlap, p 0.9: 1, the same; changes at the top weigh more",
}
NUMBERS = ("found", "only it", "tau", "rbo")


def draw(context: InspectContext) -> None:
    """Switches, a row per variant, what each gave each candidate, and a box to type another."""
    write_stylesheet("evidence")
    trace, off = context.trace, context.variants_off
    draw_switches(context)
    _draw_typing(context)
    if len(trace.evidence.variants) < 2:
        return
    st.markdown("## Without each of them", help=HELP)
    parts, switched = variant_parts(trace, off), leave_one_variant_out(trace, off)
    st.html(ablation_html(parts, switched))
    unscored = max((toggled.unscored for toggled in switched), default=0)
    if unscored:
        st.caption(
            f"⚠ Up to {unscored} candidates are not scored by the reranker yet: the rows without them are provisional."
        )
    st.html(render("inspect/expansion/summary.html", summary=_summary(parts, switched)))
    draw_shares(trace)


@dataclass(frozen=True, slots=True)
class VariantRow:
    """A variant as it is drawn; `share` of the results in percent, with the width of its bar."""

    part: VariantPart
    toggled: VariantToggle
    share: str
    width: str

    @property
    def alone(self) -> str:
        """Whom it alone found."""
        return ", ".join(self.part.alone[:TOLD])


def ablation_html(parts: Sequence[VariantPart], switched: Sequence[VariantToggle]) -> Markup:
    """A row per variant: what it gave, and the results without it."""
    rows = [
        VariantRow(part, toggled, f"{100 * part.share:.1f}", f"{100 * max(0.0, min(part.share, 1.0)):.1f}")
        for part, toggled in zip(parts, switched, strict=True)
    ]
    return render("inspect/expansion/ablation.html", columns=COLUMNS, numbers=NUMBERS, rows=rows, listed=LISTED)


def _summary(parts: Sequence[VariantPart], switched: Sequence[VariantToggle]) -> str:
    """In one sentence: which expansions could go, and which changes most."""
    further = [(part, toggled) for part, toggled in zip(parts, switched, strict=True) if part.index and part.on]
    if not further:
        return "Every further variant is switched off."
    idle = [part.index for part, toggled in further if toggled.rbo == 1 and not toggled.left and not toggled.entered]
    if len(idle) == len(further):
        return "None of the further variants changes the results alone."
    most = min(further, key=lambda pair: pair[1].rbo)[0]
    text = (
        f"Variant {most.index} (“{excerpt(most.text, 60)}”) changes the results{' most' if len(further) > 1 else ''}."
    )
    return text + (f" No effect alone: {', '.join(map(str, idle))}." if idle else "")


def _draw_typing(context: InspectContext) -> None:
    """A line of one's own, searched beside the others."""
    with st.form("inspect:expansion:form", border=False, clear_on_submit=True):
        box, button = st.columns([3, 1], vertical_alignment="bottom")
        box.text_input(
            "Another variant of the query",
            key=TYPED,
            placeholder="Type the query in other words",
            help="It is searched as an expansion typed by hand (Expansion → manual). Expansions that were made otherwise become typed "
            "ones, so none is lost.",
        )
        button.form_submit_button(
            "Search this too", width="stretch", on_click=_add, args=(context.trace, context.request)
        )
    message = st.session_state.pop(MESSAGE, None)
    if message:
        st.caption(message)


def _add(trace: Trace, request: Request) -> None:
    """Search the typed line too: the expansions there are now stay, as lines typed by hand."""
    line = " ".join(str(st.session_state[TYPED]).split())
    variants = trace.evidence.variants
    if not line:
        return
    if line.casefold() in {variant.text.casefold() for variant in variants}:
        st.session_state[MESSAGE] = f"“{plain(excerpt(line, 80))}” is searched already."
        return
    section = state.present_config().expansion
    there = [variant.text for variant in variants if variant.kind == "expansion"]
    lines = [*(request.manual if section.backend == "manual" else there), line]
    if len(lines) > MOST:
        st.session_state[MESSAGE] = f"{MOST} expansions are searched already, which is the most."
        return
    most = max(section.max_expansions, len(lines))
    state.apply({"expansion.backend": "manual", "expansion.max_expansions": most})
    if state.present().config_error:
        return
    off, longer = state.variants_off(request), replace(request, manual=tuple(lines))
    state.write_request(longer)
    if all(variant.kind in ("original", "expansion") for variant in variants):  # the others keep their numbers
        state.switch_variants(longer, off)


VIEW = View("Expansion", 50, draw, "What did each variant of the query give, and what are the results without it?")
