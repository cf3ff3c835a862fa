"""Query variants: a switch for each, and the contribution of each to the top candidates."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import streamlit as st

from cems_workbench.analysis.fusion_shares import variant_contributions
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.stages import FUSION
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.html import plain, render
from cems_workbench.ui.kit.tables import Column, draw_table, short_id

MAX_COLUMNS = 10
SHARES_HELP = (
    "One row per query, one column per candidate in fusion order. A cell is the sum of base and bonus over the query’s lists; "
    "empty: not found by this query. {method} {combines}; the result is multiplied by the boost, 1 + multi-list boost × (lists that "
    "contain it − 1). The normalised raw score × (1 − score blend) plus the score blend is the score after fusion."
)
COMBINES = {"sum": "adds up the rows of a column", "max": "takes the largest term of a column (◆)"}


def draw_switches(context: InspectContext) -> None:
    """Draw a switch per variant; the query itself is always searched."""
    variants, request = context.trace.evidence.variants, context.request
    if len(variants) < 2:
        evidence = context.trace.evidence
        which = "the query itself" if evidence.searched == evidence.corrected else "another text instead of the query"
        st.caption(f"One variant was searched: {which}.", help="Choose an expansion under Expansion in the sidebar.")
        return
    st.caption("Variants searched; disabling one is instant.")
    for i, variant in enumerate(variants):
        switch, text = st.columns([1, 9], vertical_alignment="center")
        switch.toggle(
            f"variant {i}",
            i not in context.variants_off,
            key=f"inspect:variant:{hash(request)}:{i}",
            label_visibility="collapsed",
            disabled=i == 0,
            on_change=_switch,
            args=(request, i, len(variants)),
        )
        text.html(render("inspect/variant.html", variant=variant))


def _switch(request: Request, which: int, count: int) -> None:
    """Apply the switch of a variant; disabled variants beyond `count` are dropped."""
    on = st.session_state[f"inspect:variant:{hash(request)}:{which}"]
    off = state.variants_off(request)
    off = off - {which} if on else off | {which}
    state.switch_variants(request, frozenset(i for i in off if i < count))


def draw_shares(trace: Trace) -> None:
    """Draw the table of contributions if more than one query was searched."""
    if len(trace.evidence.variants) < 2:
        return
    fields = trace.stage(FUSION).fields
    explanation = SHARES_HELP.format(method=plain(fields.method), combines=COMBINES[fields.combine])
    st.markdown(f"## Contributions of the {len(trace.evidence.variants)} queries", help=explanation)
    names, rows = shares_table(trace)
    columns: list[Column[Sequence[Any]]] = [
        Column("query", itemgetter(0), 210, help="Its number is part of its lists’ names", pinned=True),
        Column("found", itemgetter(1), 56, help="Candidates left in its lists after the threshold"),
        *(Column(name, itemgetter(i), 84) for i, name in enumerate(names, 2)),
    ]
    draw_table(rows, columns, most=len(rows), key="inspect:queries")


def shares_table(trace: Trace) -> tuple[list[str], list[list[Any]]]:
    """The candidates, and a row per query, then of other contributions, the boost and the raw score. A row: its name,
    the candidates it found, and a text per candidate."""
    every = variant_contributions(trace)
    shown = every[:MAX_COLUMNS]
    names = [f"{rank}  {short_id(shares.memory_id)}" for rank, shares in enumerate(shown, 1)]
    rows: list[list[Any]] = []
    for i, variant in enumerate(trace.evidence.variants):
        cells = [
            "" if i not in shares.by_variant else f"{'◆ ' if shares.decisive == i else ''}{shares.by_variant[i]:.4f}"
            for shares in shown
        ]
        holding = sum(i in shares.by_variant for shares in every)
        rows.append([f"{i}  {' '.join(variant.text.split())}", holding, *cells])
    if any(shares.other for shares in shown):
        rows.append(["other lists and bonuses", None, *(f"{shares.other:.4f}" for shares in shown)])
    if any(shares.boost != 1 for shares in shown):
        rows.append(["× boost", None, *(f"× {shares.boost:g}" for shares in shown)])
    stage = trace.stage(FUSION)
    if stage.fields.divisor != 1:
        rows.append(["÷ weights of the lists with a hit", None, *(f"÷ {stage.fields.divisor:g}" for _ in shown)])
    capped = "" if stage.fields.cap is None else f", at most {stage.fields.cap:g}"
    rows.append([f"= raw score{capped}", None, *(f"{shares.raw:.4f}" for shares in shown)])
    fused = [stage.by_id[shares.memory_id] for shares in shown]
    if any(row.raw != row.score for row in fused):  # normalised or blended
        share = 1 - stage.fields.score_blend
        blended = [stage.fields.score_blend * row.best_list_score for row in fused]
        rows.append(["of it, normalised", None, *(f"{share * row.normalized:.4f}" for row in fused)])
        if any(blended):
            rows.append(["+ score blend", None, *(f"{value:.4f}" for value in blended)])
        rows.append(["= score", None, *(f"{row.score:.4f}" for row in fused)])
    return names, rows
