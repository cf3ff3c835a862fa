"""The bars of the Statistics view: quiet axes, counts where they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cems_workbench.ui.memories_escape import tick
from cems_workbench.ui.theme import LIST_COLOURS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BAR = 27
COLUMN_HEIGHT = 230
BARS = 12
COLOUR = LIST_COLOURS[0]
FAINT = "rgba(128,128,128,0.22)"


def first_and_rest(counts: Sequence[tuple[str | None, int]], none: str, most: int = BARS) -> list[tuple[str, int]]:
    """The `most` largest as (label, count), and the others as one more; `none` names what has no value."""
    shown = [(none if name is None else name, count) for name, count in counts[:most]]
    rest = counts[most:]
    return [*shown, (f"{len(rest)} others", sum(count for _, count in rest))] if rest else shown


def bars(counts: Sequence[tuple[str, int]]) -> Figure:
    """Horizontal bars, in the given order from the top, each with its count."""
    import plotly.graph_objects as go

    places = list(range(len(counts)))
    values = [count for _, count in counts]
    figure = go.Figure()
    figure.add_bar(
        y=places, x=values, orientation="h", marker={"color": COLOUR}, text=[f"{value:,}" for value in values],
        textposition="outside", cliponaxis=False, **_hover(counts),
    )  # fmt: skip
    figure.update_layout(
        height=BAR * max(len(counts), 2) + 16, margin={"l": 8, "r": 44, "t": 4, "b": 4}, bargap=0.34, showlegend=False,
        xaxis={"visible": False, "range": [0, max([*values, 1]) * 1.04], "fixedrange": True},
        yaxis={
            "autorange": "reversed", "automargin": True, "tickvals": places, "showgrid": False, "fixedrange": True,
            "ticktext": [f"{tick(name)}  " for name, _ in counts], "tickfont": {"size": 12},
        },
    )  # fmt: skip
    return figure


def columns(counts: Sequence[tuple[str, int]], ticks: int = 8) -> Figure:
    """Vertical bars in the given order; at most about `ticks` of the labels are written."""
    import plotly.graph_objects as go

    places = list(range(len(counts)))
    every = max(1, -(-len(counts) // ticks))
    figure = go.Figure()
    figure.add_bar(x=places, y=[count for _, count in counts], marker={"color": COLOUR}, **_hover(counts))
    figure.update_layout(
        height=COLUMN_HEIGHT, margin={"l": 8, "r": 8, "t": 8, "b": 8}, bargap=0.18, showlegend=False,
        xaxis={
            "tickvals": places[::every], "ticktext": [tick(name) for name, _ in counts][::every], "automargin": True,
            "tickfont": {"size": 11}, "showgrid": False, "fixedrange": True,
        },
        yaxis={
            "nticks": 4, "tickformat": ",d", "rangemode": "tozero", "gridcolor": FAINT, "automargin": True,
            "tickfont": {"size": 11}, "fixedrange": True, "zeroline": False,
        },
    )  # fmt: skip
    return figure


def _hover(counts: Sequence[tuple[str, int]]) -> dict[str, Any]:
    total = sum(count for _, count in counts) or 1
    texts = [f"{tick(name, 80)}: {count:,} memories ({count / total:.1%})" for name, count in counts]
    return {"hovertext": texts, "hovertemplate": "%{hovertext}<extra></extra>"}
