"""Catalogue of the views ("What happened") and tools ("Why, and what if") of the Inspect page.

A view or tool is one module in `views/` or `tools/` with a record `VIEW`; no other file lists it. A folder is imported when its section
is first opened, and only the chosen view is computed and drawn. A module without `VIEW` is a helper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from cems_workbench.ui.inspect.context import InspectContext


@dataclass(frozen=True, slots=True)
class View:
    """A view or tool: title, position and drawing function.

    `place` orders the buttons of a section, ascending, and is unique within its folder. Numbers are in steps of 10, to leave gaps: views
    roughly follow the pipeline, from Query (20) to Context (110), after the default view, Contributions (10); tools go from one memory
    (10) to the whole config (100). A new view or tool takes a free number between its neighbours.
    """

    title: str
    place: int
    draw: Callable[[InspectContext], None]
    question: str = ""
    """The question it answers, drawn above it; empty for none."""
    external: bool = False
    """Whether it reads recorded stages too, and so is offered for a query of an external trace."""


@cache
def views_in(package: str) -> Mapping[str, View]:
    """The views of a package's modules by title, ordered by `place`.

    Raises ValueError if two of them share a title or a place.
    """
    folder = import_module(package)
    modules = [import_module(f"{package}.{module.name}") for module in iter_modules(folder.__path__)]
    views: list[View] = sorted(
        (module.VIEW for module in modules if hasattr(module, "VIEW")), key=lambda view: view.place
    )
    for of in ("title", "place"):
        if len({getattr(view, of) for view in views}) < len(views):
            raise ValueError(f"{package}: two views have the same {of}")
    return {view.title: view for view in views}
