"""The views of "What happened" and the tools of "Why, and what if": whatever modules of their folders say what they are.

A view or a tool is one file in `views/` or `tools/` with a record `VIEW` of what is written on its button, where the button stands and
the function that draws it. Nothing else has to be told of it. A folder is imported when its section is opened for the first time; of
its views only the chosen one is computed and drawn. A module without a record is a part that others use.
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
    """What is written on its button, the place of the button among the others, and the function that draws it."""

    title: str
    place: int
    draw: Callable[[InspectContext], None]
    question: str = ""
    """What it answers, in one sentence above it; empty for none."""


@cache
def views_in(package: str) -> Mapping[str, View]:
    """The views of the modules of a package, by title, in the order of their places.

    Raises ValueError when two of them have the same title or the same place.
    """
    folder = import_module(package)
    modules = [import_module(f"{package}.{module.name}") for module in iter_modules(folder.__path__)]
    found: list[View] = sorted(
        (module.VIEW for module in modules if hasattr(module, "VIEW")), key=lambda view: view.place
    )
    for of in ("title", "place"):
        if len({getattr(view, of) for view in found}) < len(found):
            raise ValueError(f"{package}: two views have the same {of}")
    return {view.title: view for view in found}
