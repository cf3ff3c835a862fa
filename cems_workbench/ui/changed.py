"""The parameters that differ from the preset: what they were, what they are, and a reset for each."""

from __future__ import annotations

from typing import Any

import streamlit as st

from cems_workbench.config import KIND_HELP, field_spec
from cems_workbench.ui import state
from cems_workbench.ui.history import draw_buttons

SHOWN = 12


def draw_changed() -> None:
    """Reset everything, undo and redo, then a reset per changed parameter. The first are always there, so that nothing moves."""
    changed = state.changed()
    count = (
        f"{len(changed)} parameter{'s' if len(changed) != 1 else ''} changed · reset" if changed else "As in the preset"
    )
    st.button(
        count, key="reset", on_click=state.reset, disabled=not changed, icon=":material/restart_alt:", width="stretch",
        help="Back to the preset’s values." if changed else None,
    )  # fmt: skip
    draw_buttons(state.history(), state.undo, state.redo)
    with st.container(gap="xsmall"):
        for path, was, now in changed[:SHOWN]:
            spec = field_spec(path)
            instant = "" if spec.kind == "replay" else " · gathers"
            st.button(
                f"{spec.label}: {shown(was)} → {shown(now)}{instant}",
                key=f"reset:{path}",
                on_click=state.reset_one,
                args=(path,),
                type="tertiary",
                icon=":material/restart_alt:",
                help=f"`{path}`: back to {shown(was)}. {KIND_HELP[spec.kind]}",
            )
        if len(changed) > SHOWN:
            st.caption(f"and {len(changed) - SHOWN} more")


def shown(value: Any) -> str:
    """A value of the config in a few characters."""
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return " ".join(_part(item) for item in value) or "none"
    text = str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _part(item: Any) -> str:
    if isinstance(item, tuple):
        return f"{item[0]} {item[1]:g}"
    retrieval = getattr(item, "retrieval", None)
    return str(item) if retrieval is None else f"{retrieval:g}"
