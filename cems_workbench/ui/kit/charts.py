"""A chart of any page, with a table of the same figures behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.ui.kit.figures import NO_TOOLBAR
from cems_workbench.ui.kit.screen_reader import named
from cems_workbench.ui.kit.tables import draw_table

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from cems_workbench.ui.kit.tables import Rows

MOST = 12
"""Rows of the table before it scrolls."""


def draw_chart(figure: Figure, *, key: str, alt: str, table: Callable[[], Rows] | None, **options: Any) -> Any:
    """A chart without its toolbar, and what `st.plotly_chart` returns; `options` are further arguments of that.

    `alt` says what is to be seen. `table` makes the rows of the figures that are drawn, once somebody opens them; None where the page
    has a table of them itself, which `alt` then names.
    """
    drawn = st.plotly_chart(figure, key=key, config=NO_TOOLBAR, alt=alt, **options)
    if table is not None:
        opened = st.expander(named("As a table", alt), key=f"{key}:table", type="compact", on_change="rerun")
        if opened.open:
            with opened:
                draw_table(table(), key=f"{key}:rows", most=MOST)
    return drawn
