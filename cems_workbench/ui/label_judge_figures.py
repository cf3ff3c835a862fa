"""Charts of people against the judge: agreement by threshold, and reliability; and the confusion as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from cems_workbench.evaluation.judge_calibration import Bin, Calibration
from cems_workbench.pipeline.stages.judge import BANDS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BLUE, ORANGE = "#0072B2", "#D55E00"
GREY, GRID = "rgba(128,128,128,0.9)", "rgba(128,128,128,0.16)"
HEIGHT = 300


def agreement_figure(found: Calibration, present: float) -> Figure:
    """Kappa over the threshold; the best one solid with its interval shaded, the present one dotted."""
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.add_scatter(
        x=found.thresholds, y=found.kappas, mode="lines", line={"color": BLUE, "width": 2, "shape": "hv"}, name="kappa",
        hovertemplate="above %{x:.4g} is relevant<br>kappa %{y:.3f}<extra></extra>",
    )  # fmt: skip
    low, high = _span(found, present)
    if found.threshold is not None and found.low is not None and found.high is not None:
        figure.add_vrect(x0=found.low, x1=found.high, fillcolor=BLUE, opacity=0.13, line_width=0)
        figure.add_vline(x=found.threshold, line={"color": BLUE, "width": 2})
        figure.add_annotation(_note(f"best {found.threshold:.3g}", found.threshold, low, high, row=0))
    figure.add_vline(x=present, line={"color": ORANGE, "width": 2, "dash": "dot"})
    figure.add_annotation(_note(f"now {present:.3g}", present, low, high, row=1))
    figure.update_layout(
        **_layout("threshold of the judge’s score", "Cohen’s kappa"), xaxis_range=[low, high],
    )  # fmt: skip
    figure.update_yaxes(rangemode="tozero")
    return figure


def _span(found: Calibration, present: float) -> tuple[float, float]:
    """What the axis shows: all thresholds and the present one, with a little room."""
    values = [*map(float, found.thresholds), present]
    room = 0.04 * (max(values) - min(values) or 1.0)
    return min(values) - room, max(values) + room


def _note(text: str, x: float, low: float, high: float, row: int) -> dict[str, Any]:
    """A name over its line, turned inwards near an edge; two rows, so that neighbours do not meet."""
    side = "left" if x < low + 0.15 * (high - low) else "right" if x > high - 0.15 * (high - low) else "center"
    return {
        "text": text, "x": x, "xanchor": side, "yref": "paper", "y": 1.0, "yanchor": "bottom", "yshift": 15 * row,
        "showarrow": False, "font": {"size": 12},
    }  # fmt: skip


def reliability_figure(bins: Sequence[Bin], own: bool) -> Figure:
    """Share relevant over the judge's probability, with intervals; on the dashed line the two are the same."""
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.add_scatter(
        x=[0, 1], y=[0, 1], mode="lines", line={"color": GREY, "width": 1, "dash": "dash"}, hoverinfo="skip"
    )
    shares = [one.share for one in bins]
    figure.add_scatter(
        x=[one.probability for one in bins], y=shares, mode="lines+markers",
        line={"color": BLUE, "width": 1}, marker={"color": BLUE, "size": 9},
        error_y={
            "type": "data", "array": [one.high - one.share for one in bins], "arrayminus": [one.share - one.low for one in bins],
            "color": BLUE, "thickness": 1.2, "width": 4,
        },
        customdata=[[one.low, one.high, one.pairs] for one in bins],
        hovertemplate="judge %{x:.2f}, people %{y:.2f} (%{customdata[0]:.2f} to %{customdata[1]:.2f})"
        "<br>%{customdata[2]} pairs<extra></extra>",
    )  # fmt: skip
    figure.update_layout(
        **_layout(f"probability by the judge ({'its score' if own else 'sigmoid of its score'})", "share relevant")
    )
    figure.update_xaxes(range=[-0.03, 1.03])
    figure.update_yaxes(range=[-0.03, 1.03])
    return figure


def _layout(across: str, up: str) -> dict[str, Any]:
    return {
        "height": HEIGHT, "margin": {"l": 8, "r": 16, "t": 40, "b": 40}, "showlegend": False, "hovermode": "closest",
        "xaxis": {"title": {"text": across}, "gridcolor": GRID, "zeroline": False, "fixedrange": True},
        "yaxis": {
            "title": {"text": up}, "gridcolor": GRID, "zeroline": False, "fixedrange": True, "automargin": True,
        },
    }  # fmt: skip


def confusion_html(confusion: Mapping[int, Sequence[int]], meanings: Mapping[int, str]) -> str:
    """Grades down, bands across; each cell tinted by its share of the row, which it also says."""
    heads = "".join(f"<th>{band}</th>" for band in BANDS)
    rows = []
    for grade, counts in confusion.items():
        total = sum(counts) or 1
        cells = "".join(
            f'<td style="--share:{100 * count / total:.0f}%"><b>{count}</b><small>{100 * count / total:.0f} %</small></td>'
            for count in counts
        )
        rows.append(f"<tr><th><b>{grade}</b> {escape(meanings.get(grade, ''))}</th>{cells}<td>{sum(counts)}</td></tr>")
    return (
        '<div class="wb-confusion"><table><thead><tr><th>people ↓ · judge →</th>'
        f"{heads}<th>pairs</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
