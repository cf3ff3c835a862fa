"""Contributions: the part of each list, and of each query variant, in the fused scores of the top candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.analysis.ranks import RankComparison
from cems_workbench.analysis.text_evidence import chunk_words
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.fusion_methods import Contribution, fusion_method
from cems_workbench.pipeline.list_sources import VECTOR_SCALES, answered_lists, list_label, provenance_of
from cems_workbench.pipeline.stages.fusion import FUSION, FusionRow, PartKind
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.ui.inspect.baseline import delta_sign
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.variants import draw_shares
from cems_workbench.ui.kit.charts import HOVERTEXT, LEGEND, draw_chart, layout, lines, list_colour, part_colour
from cems_workbench.ui.kit.html import excerpt, literal, plain
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.views import View

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BAR_HEIGHT_PX = 30
"""Height of a candidate's bar including margin, in pixels."""
MAX_CANDIDATES = 12
PATTERNS: dict[PartKind, str] = {
    **dict.fromkeys(("top-rank bonus", "importance bonus", "importance floor"), "/"),
    "score blend": ".",
}
"""Fill pattern by kind of part; others are solid."""


def draw(context: InspectContext) -> None:
    """Draw the chart, and the table if more than one query was searched."""
    trace = context.trace
    if not trace.stage(FUSION).kept:
        st.caption("No candidate reached fusion.")
        return
    st.caption(
        "The parts of the score after fusion, for the top candidates. Solid: base, from weight and rank. Hatched: bonus. "
        "Dotted: score blend.",
        help="vector:0 is the vector list of variant 0, the query itself. "
        "rrf: base = list weight × variant weight / (k + rank). The bonus for ranks 1 to 3 is not weighted. The score blend is "
        "the share of the best score in a searched list; the rest is scaled down accordingly. Hover over a bar for its numbers.",
    )
    figure = contributions_figure(trace, against=context.against)
    draw_chart(
        figure,
        key="inspect:contributions",
        alt="Stacked bar chart: parts of the score of the top candidates by list, bonus and blend.",
        table=lambda: parts_rows(trace),
    )
    answered = answered_lists(trace.evidence.notes, trace.stage(LISTS).fields.in_use)
    if answered:
        st.caption(plain(answered))
    draw_shares(trace)


def contributions_figure(trace: Trace, top: int = MAX_CANDIDATES, against: RankComparison | None = None) -> Figure:
    """Stacked bars of each candidate's score after fusion: per list its base (solid) and bonus (hatched), then parts
    that belong to no single list. The bars of a row add up to the score used for sorting. With a baseline, labels
    include the rank difference after fusion."""
    import plotly.graph_objects as go

    rows = trace.stage(FUSION).kept[:top]
    names = []
    for row in rows:
        delta = "" if against is None else f"  {delta_sign(against.delta(row.memory_id, 'fusion'))}"
        start = excerpt(trace.evidence.memories[row.memory_id].content, 28)
        names.append(f"{row.rank_out}{delta}  {literal(short_id(row.memory_id))}  {literal(start)}")
    figure = go.Figure()
    stage = trace.stage(FUSION)
    fields = stage.fields
    parts = [{(part.kind, part.list): part.value for part in stage.score_parts(row.memory_id)} for row in rows]

    def add(kind: PartKind, name: str | None, title: str, colour: str, hovers: list[str], **more: Any) -> None:
        values = [given.get((kind, name), 0.0) for given in parts]
        if any(values):
            texts = [
                lines(hover, f"{value:.4f} of the score {row.score:.4f}") if value else ""
                for hover, value, row in zip(hovers, values, rows, strict=True)
            ]
            marker: dict[str, Any] = {"color": colour, "line": {"width": 0.5, "color": colour}}
            if kind in PATTERNS:
                ground = {"fgcolor": colour, "bgcolor": "rgba(128,128,128,0.12)", "size": 6, "solidity": 0.45}
                marker["pattern"] = {"shape": PATTERNS[kind], **ground}
            shown = {"name": title, "marker": marker, "hovertext": texts, "hovertemplate": HOVERTEXT}
            figure.add_bar(y=names, x=values, orientation="h", **shown, **more)

    for ranked in trace.stage(LISTS).fields.lists:
        entries = [next((one for one in row.contributions if one.list == ranked.name), None) for row in rows]
        colour, title = list_colour(ranked.source, ranked.variant), literal(list_label(ranked.name))
        hovers = [_base_hover(trace, row, entry) for row, entry in zip(rows, entries, strict=True)]
        add("base", ranked.name, title, colour, hovers, legendgroup=ranked.name)
        hovers = [f"{title}: bonus for rank {entry.rank} = {entry.bonus:.4f}" if entry else "" for entry in entries]
        # explained in the caption, so not in the legend
        add("top-rank bonus", ranked.name, f"{title} bonus", colour, hovers, legendgroup=ranked.name, showlegend=False)
    others: tuple[tuple[PartKind, str, list[str]], ...] = (
        ("top-rank bonus", "bonus of the best rank", [f"{row.best_rank_bonus:.4f}" for row in rows]),
        ("importance bonus", "bonus for importance", [f"{row.importance_bonus:.4f}" for row in rows]),
        ("importance floor", "floor of importance", [f"{row.importance_floor:.4f}" for row in rows]),
        ("score blend", "score blend", [f"{fields.score_blend:g} × {row.best_list_score:.4f}" for row in rows]),
        ("minmax", "minmax of equal scores", ["every raw score is 0; minmax makes it 1" for _ in rows]),
    )
    for kind, title, numbers in others:
        add(kind, None, title, part_colour(kind, None), [f"{title}: {number}" for number in numbers])
    labels = {"autorange": "reversed", "tickfont": {"size": 12}}
    x = {"title": "score after fusion", "zeroline": True}
    height = 110 + BAR_HEIGHT_PX * max(len(rows), 3)
    legend = LEGEND | {"traceorder": "normal"}
    figure.update_layout(layout(height, x, labels, barmode="stack", showlegend=True, legend=legend, bargap=0.32))
    return figure


def parts_rows(trace: Trace, top: int = MAX_CANDIDATES) -> list[dict[str, str | float | None]]:
    """One row per candidate: the parts of its score, and their sum."""
    stage = trace.stage(FUSION)
    rows = stage.kept[:top]
    parts = [
        {
            part.kind if part.list is None else f"{list_label(part.list)} {part.kind}": part.value
            for part in stage.score_parts(row.memory_id)
        }
        for row in rows
    ]
    names = sorted({name for each in parts for name in each})
    return [
        {"rank": row.rank_out, "memory": row.memory_id, **{name: each.get(name) for name in names}, "score": row.score}
        for row, each in zip(rows, parts, strict=True)
    ]


def _base_hover(trace: Trace, row: FusionRow, entry: Contribution | None) -> str:
    if entry is None:
        return ""
    rank, base = entry.rank, entry.base
    if trace.stage(FUSION).fields.bypassed:
        how = f"the list's own score = {base:.4f}"
    else:
        how = fusion_method(trace.config.fusion).explain(entry, trace.config.fusion)
    hit = next((hit for hit in trace.stage(LISTS).by_id[row.memory_id].lists if hit.list == entry.list), None)
    chunk = chunk_words(trace.evidence, row.memory_id, None if hit is None else hit.chunk)
    chunk_line = [f"found by the {chunk}"] if chunk else []
    place = f"{literal(list_label(entry.list))}, rank {rank}: {how}"
    whose = provenance_of(trace.evidence.notes, entry.list)
    chunk_line += [literal(whose)] if whose else []
    scale = trace.config.lists.vector.scale
    if hit is not None and entry.list.partition(":")[0] == "vector" and scale != "cosine":
        chunk_line.append(f"list score: {VECTOR_SCALES[scale].formula} of the cosine {hit.raw:.4f}")
    fields = trace.stage(FUSION).fields
    divided = f", divided by {fields.divisor:g}" if fields.divisor != 1 else ""
    capped = f", at most {fields.cap:g}" if fields.cap is not None else ""
    return lines(place, *chunk_line, f"raw {row.raw:.4f}, boost ×{row.boost_factor:g}{divided}{capped}")


VIEW = View("Contributions", 10, draw)
