"""The state of a page: one frozen value in the session, under the page's own name.

A page's dataclass holds what the page remembers between runs. What a widget shows belongs to the widget, under a key that begins with
the page's name and a colon. Nobody else reads or writes either; what another page may do is a function of that page's `state` module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar

import streamlit as st

State = TypeVar("State")


class PageState(Generic[State]):
    """The state of one page in the session that runs; a frozen dataclass, replaced as a whole."""

    def __init__(self, page: str, first: Callable[[], State]) -> None:
        """`page` is the key in the session; `first` makes the value that a new session begins with."""
        self._key = f"{page}:state"
        self._first = first

    def get(self) -> State:
        """The present value."""
        if self._key not in st.session_state:
            st.session_state[self._key] = self._first()
        value: State = st.session_state[self._key]
        return value

    def update(self, **changes: Any) -> State:
        """The value with some of its fields replaced, which is the present one from now on. Raises TypeError for an unknown field."""
        value: Any = replace(self.get(), **changes)  # type: ignore[type-var]
        st.session_state[self._key] = value
        state: State = value
        return state
