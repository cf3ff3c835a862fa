"""What every Plotly figure of the app has in common.

Plotly reads a little HTML in the texts of a figure. The few tags that are wanted come from here; whatever was typed by anybody goes
through `escape.tick` before it becomes part of a text.
"""

from __future__ import annotations

from typing import Any

NO_TOOLBAR: dict[str, Any] = {"displayModeBar": False}
"""The `config` of a chart that is only looked at."""

GRID = "rgba(128,128,128,0.16)"
"""Lines of a grid, faint on light and on dark."""

GREY = "rgba(128,128,128,0.9)"
"""Lines and marks that are not data."""

BREAK = "<br>"
_NO_BOX = "<extra></extra>"


def bold(text: str) -> str:
    """An escaped text in bold."""
    return f"<b>{text}</b>"


def lines(*texts: str) -> str:
    """Texts under one another, for a hover or an annotation."""
    return BREAK.join(texts)


def hover(*texts: str) -> str:
    """A `hovertemplate` of these lines, without the box that names the trace."""
    return lines(*texts) + _NO_BOX


HOVERTEXT = hover("%{hovertext}")
"""The `hovertemplate` of a trace that brings its hover texts along."""
