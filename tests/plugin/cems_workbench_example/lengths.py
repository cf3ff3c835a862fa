"""Lengths: how much of the context each result takes."""

from __future__ import annotations

from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.tables import draw_table
from cems_workbench.ui.kit.views import View


def draw(context: InspectContext) -> None:
    """A row per result: its tokens and its share of the context."""
    used = context.trace.tokens_used
    rows = [
        {"memory": result.memory_id, "tokens": result.tokens, "share": result.tokens / used}
        for result in context.trace.results
    ]
    draw_table(rows, most=20)


VIEW = View("Lengths", 120, draw)
