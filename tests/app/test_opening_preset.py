"""The initial preset of the app."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.config import preset

from .inspect_page import config_of, state_of


def test_the_settings_name_the_preset_the_app_opens_with(
    open_page: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEMS_WORKBENCH_PRESET", "ace_b")
    page = open_page()
    assert config_of(page) == preset("ace_b").config
    assert page.sidebar.selectbox[0].value == "ace_b"


def test_an_unknown_preset_is_named_with_the_known_ones_and_workbench_stands_in(
    open_page: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEMS_WORKBENCH_PRESET", "cmes")
    page = open_page()
    assert state_of(page).preset == "workbench"
    assert any("no preset cmes" in error.value and "recollection" in error.value for error in page.error)
