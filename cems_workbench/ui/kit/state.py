"""Page state: one frozen dataclass per page in the session, under the page's name.

It holds what the page remembers between reruns; widget values stay under widget keys, `<page>:<name>`. Other modules never access
either directly, only through functions of the page's `state` module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar

import streamlit as st

State = TypeVar("State")


class PageState(Generic[State]):
    """The state of one page in the current session; a frozen dataclass, replaced as a whole."""

    def __init__(self, page: str, first: Callable[[], State]) -> None:
        """`page` is the key in the session; `first` creates the initial value."""
        self._key = f"{page}:state"
        self._first = first

    def get(self) -> State:
        """The current value."""
        if self._key not in st.session_state:
            st.session_state[self._key] = self._first()
        value: State = st.session_state[self._key]
        return value

    def update(self, **changes: Any) -> State:
        """Replace some fields and return the new value. Raises TypeError for an unknown field."""
        value: Any = replace(self.get(), **changes)  # type: ignore[type-var]
        st.session_state[self._key] = value
        state: State = value
        return state
