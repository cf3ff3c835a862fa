"""The operations on an answered query (`analysis.of_query`), a tool each."""

from __future__ import annotations

from functools import partial

from cems_workbench.analysis.of_query import OPERATIONS, Operation
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.views import View
from cems_workbench.ui.kit.widgets import show


def draw(operation: Operation, context: InspectContext) -> None:
    """Draw what the operation says of the answer."""
    found = operation.run(context.trace)
    show(found.lines, found.tables, found.notes)


VIEW = tuple(
    View(one.name.capitalize(), 1000 + i, partial(draw, one), one.question) for i, one in enumerate(OPERATIONS.values())
)
