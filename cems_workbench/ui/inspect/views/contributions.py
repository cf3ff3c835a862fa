"""Charts, each a function from a trace to a Plotly figure.

Several queries at once: what each of them gave each of the first candidates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.analysis.expansion import query_shares
from cems_workbench.analysis.ranks import Against
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.stages.fusion import FUSION, Contribution, FusionRow
from cems_workbench.ui.inspect.baseline import sign
from cems_workbench.ui.kit.tables import ROW, short_id
from cems_workbench.ui.kit.theme import list_colour

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

ROW_HEIGHT = 30


def contributions_figure(trace: Trace, top: int = 12, against: Against | None = None) -> Figure:
    """Stacked bars of each candidate's fused raw score: per list its base (solid) and its bonus (hatched) apart.

    The bars of a row add up to raw / boost_factor. With score_max only the largest base counts, which the title says. A label
    names the delta of the rank after fusion when there is a baseline.
    """
    import plotly.graph_objects as go

    rows = trace.stage(FUSION).kept[:top]
    names = [_label(trace, row, against) for row in rows]
    figure = go.Figure()
    for ranked in trace.evidence.lists:
        entries = [_entry(row, ranked.name) for row in rows]
        colour = list_colour(ranked.source, ranked.variant)
        if any(entries):
            bases = [entry.base if entry else 0 for entry in entries]
            hovers = [_base_hover(trace, row, entry) for row, entry in zip(rows, entries, strict=True)]
            figure.add_bar(**_series(_literal(ranked.name), names, bases, hovers, colour), legendgroup=ranked.name)
        if any(entry and entry.bonus for entry in entries):
            bonuses = [entry.bonus if entry else 0 for entry in entries]
            hovers = [
                f"{_literal(ranked.name)}: bonus for rank {entry.rank} = {entry.bonus:.4f}" if entry else ""
                for entry in entries
            ]
            series = _series(f"{_literal(ranked.name)} bonus", names, bonuses, hovers, colour, hatched=True)
            figure.add_bar(**series, legendgroup=ranked.name, showlegend=False)  # the caption says what is hatched
    for values, title, colour in (
        ([row.best_rank_bonus for row in rows], "bonus of the best rank", "#7B848D"),
        ([row.importance_bonus for row in rows], "bonus for importance", "#8C6D31"),
    ):
        if any(values):
            hovers = [f"{title}: {value:.4f}" for value in values]
            figure.add_bar(**_series(title, names, values, hovers, colour, hatched=True))
    figure.update_layout(
        barmode="stack",
        height=110 + ROW_HEIGHT * max(len(rows), 3),
        margin={"l": 10, "r": 16, "t": 8, "b": 40},
        legend={
            "orientation": "h",
            "y": 1.02,
            "yanchor": "bottom",
            "x": 0,
            "font": {"size": 12},
            "traceorder": "normal",
        },
        xaxis={"title": {"text": _axis(trace)}, "zeroline": True},
        yaxis={"autorange": "reversed", "automargin": True, "tickfont": {"size": 12}},
        bargap=0.32,
        hovermode="closest",
    )
    return figure


def _series(
    name: str, y: list[str], x: list[float], hover: list[str], colour: str, hatched: bool = False
) -> dict[str, Any]:
    marker: dict[str, Any] = {"color": colour, "line": {"width": 0.5, "color": colour}}
    if hatched:
        marker["pattern"] = {
            "shape": "/",
            "fgcolor": colour,
            "bgcolor": "rgba(128,128,128,0.12)",
            "size": 6,
            "solidity": 0.45,
        }
    return {
        "name": name, "y": y, "x": x, "orientation": "h", "marker": marker, "hovertext": hover,
        "hovertemplate": "%{hovertext}<extra></extra>",
    }  # fmt: skip


def _entry(row: FusionRow, name: str) -> Contribution | None:
    return next((entry for entry in row.contributions if entry.list == name), None)


def _base_hover(trace: Trace, row: FusionRow, entry: Contribution | None) -> str:
    if entry is None:
        return ""
    weight, rank, base = entry.weight, entry.rank, entry.base
    if trace.stage(FUSION).fields.bypassed:
        how = f"the list's own score = {base:.4f}"
    elif trace.config.fusion.method == "rrf":
        how = f"{weight:g} / ({trace.config.fusion.k} + {rank}) = {base:.4f}"
    else:
        how = f"{weight:g} × list score {base / weight if weight else 0:.4f} = {base:.4f}"
    return f"{_literal(entry.list)}, rank {rank}: {how}<br>raw {row.raw:.4f}, boost ×{row.boost_factor:g}"


def _axis(trace: Trace) -> str:
    if trace.stage(FUSION).fields.combine == "max":
        return "weight × score per list; the largest one is the raw score"
    return "share of the fused raw score"


def _label(trace: Trace, row: FusionRow, against: Against | None) -> str:
    text = " ".join(trace.evidence.memories[row.memory_id].content.split())
    start = text if len(text) <= 28 else text[:27] + "…"
    delta = "" if against is None else f"  {sign(against.delta(row.memory_id, 'fusion'))}"
    return f"{row.rank_out}{delta}  {_literal(short_id(row.memory_id))}  {_literal(start)}"


def _literal(text: str) -> str:
    """Plotly reads a little HTML in names, labels and hovers; what comes from outside must not be read."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


TOP = 10
HELP = (
    "A row per query, a column per candidate in the order of fusion. A cell is the sum of base and bonus over the query's lists; "
    "empty: this query did not find it. rrf and score_sum add the rows of a column up, score_max takes the largest term (◆); either "
    "is then multiplied by the boost, 1 + multi-list boost × (lists that hold it − 1)."
)


def draw_queries(trace: Trace) -> None:
    """The table, when more than one query was searched."""
    if len(trace.evidence.variants) < 2:
        return
    st.markdown(f"###### What each of the {len(trace.evidence.variants)} queries gave", help=HELP)
    frame = queries_table(trace)
    text = st.column_config.TextColumn
    candidates = {name: text(name, width=84) for name in frame.columns[2:]}
    st.dataframe(
        frame,
        hide_index=True,
        height=ROW * (len(frame) + 1) + 4,
        row_height=ROW,
        placeholder="",
        key="queries",
        column_config={
            "query": text("query", width=210, pinned=True, help="Its number is that in the names of its lists"),
            "found": st.column_config.NumberColumn("found", width=56, help="Candidates that its lists still hold after the threshold"),
            **candidates,
        },
    )  # fmt: skip


def queries_table(trace: Trace) -> pd.DataFrame:
    """A row per query and, below, what no query gave, the boost and the raw score; a column per candidate."""
    import pandas as pd

    every = query_shares(trace)
    shown = every[:TOP]
    names = [f"{rank}  {short_id(shares.memory_id)}" for rank, shares in enumerate(shown, 1)]
    rows = []
    for i, variant in enumerate(trace.evidence.variants):
        cells = [
            "" if i not in shares.by_variant
            else f"{'◆ ' if shares.decisive == i else ''}{shares.by_variant[i]:.4f}"
            for shares in shown
        ]  # fmt: skip
        found = sum(i in shares.by_variant for shares in every)
        rows.append([f"{i}  {' '.join(variant.text.split())}", found, *cells])
    if any(shares.other for shares in shown):
        rows.append(["other lists and bonuses", None, *(f"{shares.other:.4f}" for shares in shown)])
    if any(shares.boost != 1 for shares in shown):
        rows.append(["× boost", None, *(f"× {shares.boost:g}" for shares in shown)])
    rows.append(["= raw score", None, *(f"{shares.raw:.4f}" for shares in shown)])
    return pd.DataFrame(rows, columns=["query", "found", *names]).astype({"found": "Int64"})
