"""The chart of a sweep: bands of the range, ranks of the memories along it, and a labelled set's metrics below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cems_workbench.analysis.sensitivity import Sweep
from cems_workbench.analysis.sensitivity_choices import HIT_DEPTH, Curve
from cems_workbench.analysis.sensitivity_segments import Segment
from cems_workbench.ui.changed import shown
from cems_workbench.ui.memories_escape import excerpt, tick
from cems_workbench.ui.tables import short_id
from cems_workbench.ui.theme import LIST_COLOURS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

NOW, ORDER, MEMBERS = "as now", "same memories, other order", "other memories"
BANDS = {NOW: ("#0072B2", ""), ORDER: ("#56B4E9", "."), MEMBERS: ("#E69F00", "/")}
"""Colour and pattern of a band by what is different in it."""
DASHES = ("solid", "dash", "dot", "dashdot")
BAND, RANK, SPARK = 44, 26, 110
"""Heights in pixels: of the bands, of one rank, of the metrics."""


def difference(found: Sweep, segment: Segment) -> str:
    """What is different from the present results, in words of the legend."""
    now = found.present.results
    if segment.results == now:
        return NOW
    return ORDER if set(segment.results) == set(now) else MEMBERS


def sweep_figure(
    found: Sweep, memories: Sequence[str], texts: Mapping[str, str], marked: Mapping[str, str], curve: Curve | None
) -> Figure:
    """Bands, then rank lines, then the metrics where there is a curve; one range for all of them.

    `texts` are contents by memory id, `marked` the signs of memories that are drawn bold (followed, judged).
    """
    from plotly.subplots import make_subplots

    heights = [BAND, max(4, found.k) * RANK, *([SPARK] if curve else [])]
    figure = make_subplots(rows=len(heights), cols=1, shared_xaxes=True, row_heights=heights, vertical_spacing=0.05)
    _bands(figure, found)
    for i, memory_id in enumerate(memories):
        _line(figure, found, memory_id, texts.get(memory_id, ""), marked, i)
    if curve:
        _metrics(figure, curve)
    low, high = _edges(found, found.segments[0])[0], _edges(found, found.segments[-1])[1]
    figure.update_xaxes(range=[low, high], showgrid=False, zeroline=False)
    unit = f" ({found.spec.unit})" if found.spec.unit else ""
    figure.update_xaxes(title_text=tick(found.spec.label + unit, 40), row=len(heights))
    figure.update_yaxes(visible=False, range=[0, 1], fixedrange=True, row=1)
    ranks = list(range(1, found.k + 1))
    figure.update_yaxes(
        range=[found.k + 0.6, 0.4], tickvals=ranks, title_text="rank", showgrid=True, zeroline=False, fixedrange=True,
        row=2,
    )  # fmt: skip
    if found.now is not None:
        figure.add_vline(x=found.now, line={"width": 1.5, "dash": "dash", "color": "#7B848D"}, row="all")
        figure.add_annotation(
            x=found.now, y=1.0, xref="x", yref="y domain", yanchor="bottom", text=f"now {shown(found.now)}", showarrow=False,
            font={"size": 12},
        )  # fmt: skip
    longest = max((len(_label(key, marked)) for key in memories), default=0)
    figure.update_layout(
        height=sum(heights) + 160,
        margin={"l": 8, "r": 24 + 8 * longest, "t": 74, "b": 46},
        legend={"orientation": "h", "y": 0.995, "yanchor": "top", "x": 0, "yref": "container", "font": {"size": 12}},
        hovermode="closest",
        bargap=0,
    )
    return figure


def _edges(found: Sweep, segment: Segment) -> tuple[float, float]:
    """Where a band begins and ends; a whole number covers half a step on either side."""
    half = 0.5 if found.spec.type is int else 0.0
    return segment.first - half, segment.last + half


def _bands(figure: Figure, found: Sweep) -> None:
    for name, (colour, pattern) in BANDS.items():
        rows = [one for one in found.segments if difference(found, one) == name]
        edges = [_edges(found, one) for one in rows]
        figure.add_bar(
            x=[(low + high) / 2 for low, high in edges], width=[high - low for low, high in edges], y=[1] * len(rows),
            name=name, hovertext=[_band_text(found, one) for one in rows], hovertemplate="%{hovertext}<extra></extra>",
            marker={
                "color": colour, "opacity": 0.85, "line": {"width": 1, "color": "rgba(128,128,128,0.9)"},
                "pattern": {"shape": pattern, "size": 7, "solidity": 0.16, "fgcolor": "#FFFFFF", "fillmode": "overlay"},
            },
            showlegend=bool(rows), row=1, col=1,
        )  # fmt: skip


def _band_text(found: Sweep, segment: Segment) -> str:
    where = (
        shown(segment.first) if segment.first == segment.last else f"{shown(segment.first)} to {shown(segment.last)}"
    )
    ranking = "<br>".join(f"{rank}  {tick(short_id(key))}" for rank, key in enumerate(segment.results, 1))
    return f"<b>{where}</b>: {difference(found, segment)}<br>{ranking or 'no results'}"


def _label(memory_id: str, marked: Mapping[str, str]) -> str:
    return marked.get(memory_id, "") + short_id(memory_id, 12)


def _line(figure: Figure, found: Sweep, memory_id: str, text: str, marked: Mapping[str, str], i: int) -> None:
    """One memory's rank along the range; a gap where it is not among the first k."""
    xs: list[float | None] = []
    ys: list[int | None] = []
    for one in found.segments:
        rank = one.results.index(memory_id) + 1 if memory_id in one.results else None
        xs += _edges(found, one)
        ys += [rank, rank]
    colour = LIST_COLOURS[i % len(LIST_COLOURS)]
    label, bold = tick(_label(memory_id, marked)), memory_id in marked
    hover = f"<b>{label}</b>, rank %{{y}} at %{{x:.4g}}<br>{tick(excerpt(text, 90), 90)}<extra></extra>"
    figure.add_scatter(
        x=xs, y=ys, mode="lines", name=label, showlegend=False, connectgaps=False, hovertemplate=hover, row=2, col=1,
        line={"color": colour, "width": 3.5 if bold else 2, "dash": DASHES[i // len(LIST_COLOURS) % len(DASHES)]},
    )  # fmt: skip
    if ys and ys[-1] is not None:
        figure.add_annotation(
            x=1, xref="paper", xanchor="left", xshift=6, y=ys[-1], yref="y2", text=label, showarrow=False,
            font={"size": 12, "color": colour if bold else None}, align="left",
        )  # fmt: skip


def _metrics(figure: Figure, curve: Curve) -> None:
    series: tuple[tuple[str, tuple[float, ...], str, str], ...] = (
        (f"hit@{HIT_DEPTH}", curve.hit, "#009E73", "solid"), ("nDCG@10", curve.ndcg, "#CC79A7", "dot")
    )  # fmt: skip
    for name, values, colour, dash in series:
        figure.add_scatter(
            x=list(curve.values), y=list(values), mode="lines+markers", name=f"{name}, {curve.queries} judged queries",
            line={"color": colour, "width": 2, "dash": dash}, marker={"size": 4}, row=3, col=1,
            hovertemplate=f"{name} %{{y:.3f}} at %{{x:.4g}}<extra></extra>",
        )  # fmt: skip
    every = [*curve.hit, *curve.ndcg]
    room = max(0.02, 0.12 * (max(every) - min(every)))
    figure.update_yaxes(range=[min(every) - room, max(every) + room], tickformat=".2f", fixedrange=True, row=3)


def config_of_chart() -> dict[str, Any]:
    """Plotly's own settings: no tool bar over the chart."""
    return {"displayModeBar": False}
