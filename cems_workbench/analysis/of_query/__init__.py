"""Operations on an answered query: a module each with its `OPERATION`, or an entry point of another package.

Every surface takes them from here: a command, which also writes the report with --html, a tool for agents, a tool of the Inspect page,
and `Answer.ask` in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cems_workbench import extensions

if TYPE_CHECKING:
    from cems_workbench.pipeline import Trace
    from cems_workbench.results import Result


@dataclass(frozen=True, slots=True)
class Operation:
    """The name, the question that it answers, which is its help, and what answers it; `place` orders commands and tools."""

    name: str
    question: str
    run: Callable[[Trace], Result]
    place: int = 1000


OPERATIONS = extensions.Registry(extensions.OPERATIONS, Operation, "cems_workbench.analysis.of_query", "OPERATION")
