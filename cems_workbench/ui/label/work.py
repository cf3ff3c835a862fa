"""Long work of the Label page: its progress, and a button that ends it. What was finished by then is kept by whoever works."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from cems_workbench.progress import Progress
from cems_workbench.ui.kit.progress import progress_in


@contextmanager
def working(key: str) -> Iterator[Progress]:
    """A bar with counts and the time left, and Cancel: any click ends the work at its next step."""
    area = st.empty()
    try:
        with area.container():
            bar, button = st.columns([6, 1], vertical_alignment="center")
            button.button(
                "Cancel", key=f"lb:cancel:{key}", help="Stops here; what was finished stays.", width="stretch"
            )
            yield progress_in(bar.empty())
    finally:
        area.empty()
