"""Packages whose names are imported when they are asked for (PEP 562), so that a command does not load what it does not use.

if TYPE_CHECKING:
    from package.module import another, name
else:
    __getattr__ = lazy_names(__name__, {"module": "another name"})

__all__ = ["another", "name"]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package that exports names, separated by spaces, each from a module below it."""
    home = {name: module for module, names in homes.items() for name in names.split()}

    def __getattr__(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
