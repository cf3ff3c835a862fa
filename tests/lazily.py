"""Libraries that few tests need. Every worker imports all files of tests, and one of them runs these."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Lazy:
    """A module that is imported when one of its names is used."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks everything in a file for its private names
            raise AttributeError(name)
        return getattr(import_module(self._module), name)
