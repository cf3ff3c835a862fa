"""Servers of these tests are on this machine: no proxy of the environment stands before them."""

import pytest


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
