"""Shared constants and text helpers for Plotly figures.

Plotly interprets some HTML in texts. Intended tags come from here; untrusted text goes through `escape.tick` or `escape.literal`.
"""

from __future__ import annotations

from typing import Any

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
