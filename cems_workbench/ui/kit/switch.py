"""Switch between the views of a page; only the chosen view is computed and drawn."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st


def switch(label: str, views: Sequence[str], key: str, *, remember: bool = True) -> str:
    """The chosen one of `views`, initially the first. With `remember` the choice survives a visit to another page.

    To open a view from code, set `st.session_state[key]` before this is drawn.
    """
    if st.session_state.get(key) not in views:
        st.session_state[key] = views[0]
    chosen = st.segmented_control(
        label,
        views,
        required=True,
        key=key,
        label_visibility="collapsed",
        persist_state="session" if remember else None,
    )
    return chosen or views[0]
