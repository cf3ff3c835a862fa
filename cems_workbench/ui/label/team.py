"""Notice on a team's labels: where they are stored, and what this store cannot show of them."""

from __future__ import annotations

import streamlit as st

from cems_workbench.jobs.team_status import team_status
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.kit.html import plain

CACHE_S = 60
"""Cache time of the lines."""


def draw(resources: Resources) -> None:
    """Draw the notice; nothing for a store with its own labels."""
    where = resources.store.team.place
    if not where:
        return
    st.caption(plain(f"Labels are stored in the team's database {where}"))
    for line in _lines(str(resources.store.path), resources):
        st.caption(plain(line))


@st.cache_data(ttl=CACHE_S, show_spinner=False)
def _lines(store: str, _resources: Resources) -> list[str]:
    return team_status(_resources.store)
