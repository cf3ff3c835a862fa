"""Cache shared by all sessions: the last few evidence sets of query sets, and labelled batches."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import streamlit as st

Value = TypeVar("Value")


def for_all_sessions(key: Hashable, make: Callable[[], Value], /) -> Value:
    """A `Cache` for evidence and batches; `key` is a tuple whose first item is the kind ("evidence" or other)."""
    kind = key[0] if isinstance(key, tuple) else key
    value: Value = (_evidence if kind == "evidence" else _batch)(key, make)
    return value


@st.cache_resource(show_spinner=False, max_entries=8)
def _evidence(key: Hashable, _make: Callable[[], Any]) -> Any:
    return _make()


@st.cache_resource(show_spinner=False, max_entries=8)
def _batch(key: Hashable, _make: Callable[[], Any]) -> Any:
    return _make()
