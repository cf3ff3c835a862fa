"""The way to the script that retires memories where they are from."""

from __future__ import annotations

import streamlit as st

from cems_workbench.config.forms.targets import SYSTEMS
from cems_workbench.pipeline.resources import Resources
from cems_workbench.settings import saved_target
from cems_workbench.ui.kit.address import go
from cems_workbench.ui.label.state import VIEW


def draw_retire(resources: Resources, key: str, *older: str) -> bool:
    """Draw the button; False, and nothing, if none of these memories is the older one of an accepted pair."""
    runs, store = saved_target(resources.store.path), resources.store
    system = None if runs is None else SYSTEMS.get(runs.target)
    found = any(one.verdict == "accepted" and one.older in older for one in store.supersessions.standing())
    if found:
        label = f"Script that retires it in {system.title}" if system and system.retires else "Retire it at the source"
        help = "Opens Label › Superseded, which writes the script for all accepted pairs."
        if st.button(label, f"inspect:next:{key}:script", help, icon=":material/download:"):
            st.session_state[VIEW] = "Superseded"
            go("pages/label.py")
    return found
