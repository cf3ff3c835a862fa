"""Views: what a page shows of a choice of views or tools, those of this package and those that other packages add."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from cems_workbench import extensions
from cems_workbench.errors import InputError


@dataclass(frozen=True, slots=True)
class View:
    """A view or tool: title, position and drawing function, which is given what its page has.

    That is an `InspectContext` on Inspect (`inspect.views`, `inspect.tools`), the evaluated configs, the choice and the open store for a
    view of judged queries on Evaluate (`evaluate`), and the open store (`Resources`) for what configs are compared with there
    (`evaluate.against`), on Label (`label`), and, with a place for progress, on Memories (`memories`), in `memories.import` after the
    files that are chosen. `place` orders a page's views, ascending, and is unique there; ours are in steps of 10.
    """

    title: str
    place: int
    draw: Callable[..., None]
    question: str = ""
    """The question it answers, drawn above it; empty for none."""
    external: bool = False
    """Whether it reads recorded stages too, and so is offered for a query of an external trace."""

    @property
    def name(self) -> str:
        """The name of its entry point: the words of the title in lower case, with dashes."""
        return "-".join(re.findall(r"[a-z0-9]+", self.title.lower()))


@cache
def views_in(where: str, *ours: View) -> Mapping[str, View]:
    """The views of one of `extensions.VIEWS_OF` by title, ordered by `place`; loaded when the page first asks for them.
    `ours` are the page's own; without them each module of its folder has a record `VIEW`, or a tuple of records, or is
    a helper. Raises ValueError if two of ours share a title or a place."""
    package = "" if ours else f"cems_workbench.ui.{where}"
    taken = [view.name for view in ours]
    added = extensions.Registry(f"{extensions.VIEWS}.{where}", View, package, "VIEW", taken)
    mine = [*ours, *(view for view in added.values() if added.origin(view.name) is None)]
    for of in ("title", "place"):
        if len({getattr(view, of) for view in mine}) < len(mine):
            raise ValueError(f"{where}: two views have the same {of}")
    views = [*mine, *(_guarded(added, view) for view in added.values() if added.origin(view.name))]
    return {view.title: view for view in sorted(views, key=lambda view: view.place)}


def _guarded(registry: extensions.Registry[View], view: View) -> View:
    def draw(*given: object) -> None:
        with registry.guarded(view.name, InputError):
            view.draw(*given)

    return replace(view, draw=draw)
