"""A chart requires its table to be named."""

from __future__ import annotations

from pathlib import Path

import cems_workbench.ui


def test_every_chart_names_the_table_of_its_figures() -> None:
    """`kit/charts.py:draw_chart` cannot be called without one, and nothing else draws a chart."""
    folder = Path(cems_workbench.ui.__file__).parent
    drawing = [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if "plotly_chart(" in path.read_text("utf-8")
    ]
    assert drawing == ["kit/charts.py"]
