"""The tools of the server, a module for each kind of question. `ALL_TOOLS` is the only list of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cems_workbench.mcp.served_store import ServedStore
from cems_workbench.mcp.tools.blaming import BlamingTools
from cems_workbench.mcp.tools.labelling import LabellingTools
from cems_workbench.mcp.tools.losses import LossTools
from cems_workbench.mcp.tools.measuring import MeasuringTools
from cems_workbench.mcp.tools.memories import MemoryTools
from cems_workbench.mcp.tools.overview import OverviewTools
from cems_workbench.mcp.tools.queries import QueryTools


@dataclass(frozen=True, slots=True)
class ToolEntry:
    """A tool: its title for people, its factory for a store, and whether it writes to the store."""

    name: str
    title: str
    of: Callable[[ServedStore], Callable[..., Any]]
    writes: bool = False


ALL_TOOLS: tuple[ToolEntry, ...] = (
    ToolEntry("overview", "What the store holds", lambda served: OverviewTools(served).overview),
    ToolEntry("find_memories", "Memories by their words", lambda served: MemoryTools(served).find_memories),
    ToolEntry("read_memory", "The text of a memory", lambda served: MemoryTools(served).read_memory),
    ToolEntry("search", "Search as the pipeline does", lambda served: QueryTools(served).search),
    ToolEntry("why", "Why a memory is missing", lambda served: QueryTools(served).why),
    ToolEntry("blame", "The memories behind an answer", lambda served: BlamingTools(served).blame),
    ToolEntry("what_if", "A query under other parameters", lambda served: QueryTools(served).what_if),
    ToolEntry(
        "what_if_memory", "A memory in other words, absent or new", lambda served: QueryTools(served).what_if_memory
    ),
    ToolEntry("parameters", "What can be changed", lambda served: OverviewTools(served).parameters),
    ToolEntry("evaluate", "A config on judged queries", lambda served: MeasuringTools(served).evaluate),
    ToolEntry("compare", "A change on judged queries", lambda served: MeasuringTools(served).compare),
    ToolEntry("memory", "One memory across all queries", lambda served: LossTools(served).memory),
    ToolEntry("losses", "Where relevant memories are lost", lambda served: LossTools(served).losses),
    ToolEntry("label", "Grade a memory", lambda served: LabellingTools(served).label, writes=True),
    ToolEntry("undo_label", "Take a grade back", lambda served: LabellingTools(served).undo_label, writes=True),
)
