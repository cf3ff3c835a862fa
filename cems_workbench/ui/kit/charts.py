"""Chart with a table of the same numbers in an expander."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.ui.kit.figures import NO_TOOLBAR
from cems_workbench.ui.kit.screen_reader import full_label
from cems_workbench.ui.kit.tables import draw_table

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from cems_workbench.ui.kit.tables import Rows

MAX_ROWS = 12
"""Rows shown before the table scrolls."""


def draw_chart(figure: Figure, *, key: str, alt: str, table: Callable[[], Rows] | None, **options: Any) -> Any:
    """Draw a chart without its toolbar and return the value of `st.plotly_chart`, which receives `options`.

    `alt` is the alternative text. `table` returns the rows of the charted numbers, called when the expander is opened; None if the
    page already has such a table, which `alt` then names.
    """
    drawn = st.plotly_chart(figure, key=key, config=NO_TOOLBAR, alt=alt, **options)
    if table is not None:
        opened = st.expander(full_label("As a table", alt), key=f"{key}:table", type="compact", on_change="rerun")
        if opened.open:
            with opened:
                draw_table(table(), key=f"{key}:rows", most=MAX_ROWS)
    return drawn
