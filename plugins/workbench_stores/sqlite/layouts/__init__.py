"""Layouts of SQLite files that are known by their shape: each module here declares `LAYOUT`, a `SqliteLayout`."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from functools import cache
from importlib import import_module

from workbench_stores.sqlite.layout import SqliteLayout


@cache
def layouts() -> Sequence[SqliteLayout]:
    """Every layout, by place and name."""
    found = [
        import_module(f"{__name__}.{module.name}").LAYOUT
        for module in pkgutil.iter_modules(__path__)
        if not module.name.startswith("_")
    ]
    return sorted(found, key=lambda layout: (layout.place, layout.name))
