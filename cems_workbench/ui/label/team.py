"""Whose labels the page shows: a line where they are a team's, and what of them this store cannot show."""

from __future__ import annotations

import streamlit as st

from cems_workbench.jobs.team_status import team_status
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.kit.escape import plain

LOOK_AGAIN = 60
"""Seconds for which the lines are kept."""


def draw(resources: Resources) -> None:
    """Nothing where the labels are the store's own."""
    where = resources.store.team.place
    if not where:
        return
    st.caption(plain(f"Labels are kept in the team's database {where}"))
    for line in _lines(str(resources.store.path), resources):
        st.caption(plain(line))


@st.cache_data(ttl=LOOK_AGAIN, show_spinner=False)
def _lines(store: str, _resources: Resources) -> list[str]:
    return team_status(_resources.store)
