"""Charts of the pages: colours, texts for Plotly, and a chart with a table of the same numbers in an expander.

Colours are the Okabe-Ito palette, safe for colour vision deficiencies; colour is never the only cue. Plotly interprets some HTML in texts:
intended tags come from here, untrusted text goes through `html.tick` or `html.literal`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.ui.kit.html import full_label, tick
from cems_workbench.ui.kit.tables import draw_table

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


LIST_COLOURS = ("#0072B2", "#E69F00", "#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#8C6D31", "#7B848D")
"""One per list, in the order of the evidence; repeats from the ninth list on."""

SOURCE_COLOURS = {
    **dict.fromkeys(("vector", "hybrid"), ("#0072B2", "#56B4E9", "#2A4D8F", "#8EC7E8")),
    **dict.fromkeys(
        ("lexical", "ts_rank", "ts_rank_cd", "fts5", "sparse", "lucene"), ("#E69F00", "#D55E00", "#B8860B", "#F2C14E")
    ),
    "source_hybrid": ("#6A5A8C", "#9C8CC0", "#4B3F66", "#BDB2D6"),
    "recency": ("#009E73",),
    "access": ("#CC79A7",),
    "relations": ("#7B848D",),
    "entities": ("#8C6D31",),
}
"""Shades per source; the n-th variant takes the n-th shade. Semantic sources are blue, lexical ones orange."""
DEFAULT_COLOURS = ("#8C6D31",)
"""For every other retriever, such as a plugin's."""

PART_COLOURS = {"importance bonus": "#8C6D31", "importance floor": "#A6611A", "score blend": "#6A5A8C"}
"""Parts of the score after fusion that belong to no single list, by kind."""
OTHER_PART = "#7B848D"


def list_colour(source: str, variant: int | None) -> str:
    """The colour of a list: its source's colour, in the shade of its query variant."""
    shades = SOURCE_COLOURS.get(source, DEFAULT_COLOURS)
    return shades[(variant or 0) % len(shades)]


def part_colour(kind: str, name: str | None) -> str:
    """The colour of a part of the score after fusion: that of the list of this name, if it belongs to one."""
    if name is None:
        return PART_COLOURS.get(kind, OTHER_PART)
    source, _, number = name.partition(":")
    return list_colour(source, int(number) if number.isdecimal() else None)


NO_TOOLBAR: dict[str, Any] = {"displayModeBar": False}
"""The `config` of a chart without interaction tools."""

GRID = "rgba(128,128,128,0.16)"
"""Grid lines, faint on light and dark themes."""

GREY = "rgba(128,128,128,0.9)"
"""Lines and marks that are not data."""

BREAK = "<br>"
_NO_BOX = "<extra></extra>"


def bold(text: str) -> str:
    """An escaped text in bold."""
    return f"<b>{text}</b>"


def lines(*texts: str) -> str:
    """Texts joined by line breaks, for a hover text or an annotation."""
    return BREAK.join(texts)


def hover(*texts: str) -> str:
    """A `hovertemplate` of these lines, without Plotly's trace name box."""
    return lines(*texts) + _NO_BOX


HOVERTEXT = hover("%{hovertext}")
"""The `hovertemplate` of a trace that has its own hover texts."""


LEGEND: dict[str, Any] = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "font": {"size": 12}}
"""A legend in one line above the chart."""
NO_GRID: dict[str, Any] = {"showgrid": False, "tickfont": {"size": 12}}


def layout(
    height: float, x: Mapping[str, Any] | None = None, y: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """The layout of a chart of so many pixels: narrow margins, faint grid, no zoom. `x` and `y` say what their axes have else."""
    if "pandas" in sys.modules:  # Plotly takes it from there, also half imported: this waits while another session imports it
        import pandas  # noqa: F401
    axis = {"gridcolor": GRID, "zeroline": False, "fixedrange": True, "automargin": True}
    return {
        "height": height,
        "margin": {"l": 8, "r": 16, "t": 12, "b": 8} | more.pop("margin", {}),
        "showlegend": False,
        "hovermode": "closest",
        "xaxis": {**axis, **(x or {})},
        "yaxis": {**axis, **(y or {})},
        **more,
    }


def bar_chart(
    names: Sequence[str],
    values: Sequence[float],
    texts: Sequence[str],
    x: Mapping[str, Any],
    row: int = 27,
    **more: Any,
) -> Figure:
    """Horizontal bars of `row` pixels from the top, with a text at the end of each; `more` goes to the bars."""
    import plotly.graph_objects as go

    places = list(range(len(names)))
    bars = {"x": values, "y": places, "orientation": "h", "text": texts, "textposition": "outside", "cliponaxis": False}
    labels = {
        "autorange": "reversed",
        "tickvals": places,
        "ticktext": [f"{tick(name, 44)}  " for name in names],
    } | NO_GRID
    height = row * max(len(names), 2) + (58 if "title" in x else 16)
    return go.Figure(
        {
            "data": [{"type": "bar", **bars, **more}],
            "layout": layout(height, x, labels, bargap=0.36, margin={"r": 44, "t": 4}),
        }
    )


def intervals(means: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str) -> dict[str, Any]:
    """Error bars from `low` to `high`."""
    over, under = ([abs(end - mean) for mean, end in zip(means, ends, strict=True)] for ends in (high, low))
    return {"type": "data", "symmetric": False, "color": colour, "thickness": 1.5, "array": over, "arrayminus": under}


def heatmap(counts: Sequence[Sequence[int]], down: Sequence[str], across: Sequence[str], y: str, x: str) -> Figure:
    """Counts as cells with their numbers, tinted by their size; `y` and `x` are the titles of rows and columns."""
    import plotly.graph_objects as go

    shares = [[100 * count / (sum(row) or 1) for count in row] for row in counts]
    names, columns = [f"{tick(name)} " for name in down], [f"{tick(name)} " for name in across]
    scale = [(0, "rgba(0,114,178,0)"), (1, "rgba(0,114,178,0.4)")]  # on the page's own ground, in both schemes
    most = max((count for row in counts for count in row), default=0) or 1
    shown = {"colorscale": scale, "zmin": 0, "zmax": most, "showscale": False, "xgap": 2, "ygap": 2, "text": shares}
    figure = go.Figure(
        go.Heatmap(z=counts, x=columns, y=names, **shown, hovertemplate=hover("%{z}", "%{text:.0f} % of the row"))
    )
    cells = [
        (column, name, count)
        for name, row in zip(names, counts, strict=True)
        for column, count in zip(columns, row, strict=True)
    ]
    xs, ys, texts = zip(*cells, strict=True)
    figure.add_scatter(x=xs, y=ys, text=texts, mode="text", hoverinfo="skip")  # a heatmap's own text is dark on dark
    rows = {"title": y, "autorange": "reversed", "type": "category", **NO_GRID}
    top = {"title": x, "side": "top", "type": "category", **NO_GRID}
    figure.update_layout(layout(64 + 38 * len(down), top, rows, margin={"t": 56}))
    return figure


def reliability_chart(
    points: Sequence[tuple[float, float, float, float]],
    hovertext: Sequence[str],
    across: str,
    up: str,
    size: Any = 9,
    height: int = 340,
) -> Figure:
    """Observed shares by probability: (probability, share, ends of its interval); the dashed diagonal is perfect calibration."""
    import plotly.graph_objects as go

    x, y, low, high = zip(*points, strict=True) if points else ((), (), (), ())
    figure = go.Figure()
    diagonal = {"color": GREY, "dash": "dash", "width": 1}
    figure.add_scatter(x=[0, 1], y=[0, 1], mode="lines", line=diagonal, hoverinfo="skip")
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines+markers",
        line={"color": LIST_COLOURS[0], "width": 1},
        marker={"color": LIST_COLOURS[0], "size": size},
        error_y=intervals(y, low, high, GREY),
        hovertext=hovertext,
        hovertemplate=HOVERTEXT,
    )
    shares = {"title": up, "range": [-0.03, 1.04], "tickformat": ".0%"}
    figure.update_layout(layout(height, {"title": across, "range": [-0.03, 1.03]}, shares))
    return figure


MAX_ROWS = 12
"""Rows shown before the table scrolls."""


def draw_chart(
    figure: Figure, *, key: str, alt: str, table: Callable[[], Sequence[Mapping[str, Any]]] | None, **options: Any
) -> Any:
    """Draw a chart without its toolbar and return the value of `st.plotly_chart`, which receives `options`. `alt` is
    the alternative text. `table` returns the rows of the charted numbers, called when the expander is opened; None if
    the page already has such a table, which `alt` then names."""
    drawn = st.plotly_chart(figure, key=key, config=NO_TOOLBAR, alt=alt, **options)
    if table is not None:
        opened = st.expander(full_label("As a table", alt), key=f"{key}:table", type="compact", on_change="rerun")
        if opened.open:
            with opened:
                draw_table(table(), key=f"{key}:rows", most=MAX_ROWS)
    return drawn
