"""The tools of the Inspect page below the stages: each answers one question about the present query.

A tool is a module here with `draw(look)`. Only the chosen one is imported, computed and drawn, so that what is costly costs
nothing until somebody looks at it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from cems_workbench.ui.inspect.look import Look


@dataclass(frozen=True, slots=True)
class Tool:
    """The module that draws it and one sentence on what it answers."""

    module: str
    question: str

    def draw(self, look: Look) -> None:
        """Import the module and draw."""
        module = import_module(f"cems_workbench.ui.inspect.tools.{self.module}")
        cast(Callable[[Look], None], module.draw)(look)


TOOLS: dict[str, Tool] = {
    "Why is it missing?": Tool(
        "why", "Which stage lost a memory, and what is the smallest change that brings it back?"
    ),
    "What if it were different?": Tool(
        "what_if", "What would another text, date or priority of one memory do, all else being as it is?"
    ),
    "Text evidence": Tool("text_evidence", "Which words met in this memory, and how much of it did the models read?"),
    "Index check": Tool("index_check", "Did the vector index miss a memory that is nearer than those it found?"),
    "Expansion": Tool("expansion", "What did each variant of the query give, and what are the results without it?"),
    "Diversity": Tool("diversity", "How alike are the results, and what would less of the same show instead?"),
    "Sensitivity": Tool("sensitivity", "Where in a parameter's range do the first results change?"),
    "Weight map": Tool("weight_map", "Which memory is first, and does the query succeed, over two parameters at once?"),
    "Effective weights": Tool("effective_weights", "How much did each list, bonus, factor and cut move this ranking?"),
    "Against production": Tool(
        "production", "Where does this trace depart from what the real system returned, and what would explain it?"
    ),
}
"""The tools by the name on their button, in the order of the buttons."""
