"""The tools as an MCP server: results as compact JSON, errors as one line that says what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import ValidationError

from cems_workbench import __version__
from cems_workbench.errors import nearest, one_line, short, user_message
from cems_workbench.jobs.access import may
from cems_workbench.mcp.responses import UNTRUSTED
from cems_workbench.mcp.served_store import ServedStore
from cems_workbench.mcp.tools import ALL_TOOLS

INSTRUCTIONS = f"""\
Why was a memory not returned, and what would return it? This server searches a store of memories as the
retrieval pipeline does, and explains it.
1. search(query): the results, and the candidates that were lost. A memory that is not among them: find_memories(words) has its id.
2. why(query, memory_id): the stage that lost it, and the smallest changes that bring it in.
3. what_if(query, changes): such a change on this query; what_if_memory: other words of the memory.
4. blame(text, query): from a wrong answer back to the memories that say so: which is stale, and which says otherwise.
5. compare(changes): the change on all judged queries. One that helps a query and harms others is none.
If there are more rows, a page has next_offset. {UNTRUSTED}"""
READ_ONLY = ToolAnnotations(read_only_hint=True, open_world_hint=False)
WRITES_LABELS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
MAX_ERROR_CHARS = 600


class WorkbenchServer(MCPServer):
    """The MCP server of a served store."""

    def __init__(self, served: ServedStore) -> None:
        super().__init__(
            "cems-workbench",
            title="CEMS Workbench",
            version=__version__,
            instructions=INSTRUCTIONS,
            log_level="WARNING",
        )
        self.served = served
        self._arguments: dict[str, list[str]] = {}
        for entry in ALL_TOOLS:
            if entry.writes and not may(served.role, "reviewer"):
                continue
            self.add_tool(
                entry.of(served),
                name=entry.name,
                title=entry.title,
                annotations=WRITES_LABELS if entry.writes else READ_ONLY,
                structured_output=True,
            )
            tool = self._tool_manager.get_tool(entry.name)
            assert tool is not None
            # The schema tells clients what `_check` refuses: an unknown argument.
            tool.parameters["additionalProperties"] = False
            self._arguments[entry.name] = list(tool.parameters["properties"])

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. Raises ToolError with one line for the client."""
        self._check(name, arguments)
        try:
            found = await super().call_tool(name, arguments, context)
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, ValidationError):
                raise ToolError(f"{name}: {_invalid(cause)}") from cause
            line = user_message(cause) if cause is not None else None
            if line is not None:
                raise ToolError(f"{name}: {one_line(line, MAX_ERROR_CHARS)}") from None
            raise UnexpectedToolError(
                f"{name}: unexpected error ({type(cause).__name__}); the server's log has the traceback"
            ) from cause
        if isinstance(found, CallToolResult) and found.structured_content is not None:
            text = json.dumps(found.structured_content, ensure_ascii=False, separators=(",", ":"))
            return CallToolResult(
                content=[TextContent(type="text", text=text)], structured_content=found.structured_content
            )
        return found

    def _check(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Raise ToolError for an unknown tool or argument; neither is ignored."""
        if name not in self._arguments:
            if name in {entry.name for entry in ALL_TOOLS}:
                raise ToolError(f"{name}: this server is read-only: restart it with --write to allow labels")
            raise ToolError(f"{short(name)}: no such tool; there are {', '.join(self._arguments)}")
        known = self._arguments[name]
        for argument in arguments:
            if argument not in known:
                close = nearest(argument[:100], known)
                hint = f"; did you mean {close}?" if close else "."
                raise ToolError(f"{name}: there is no argument {short(argument)}{hint} It takes {', '.join(known)}")


def _invalid(error: ValidationError) -> str:
    """The error in the arguments, in one line that does not repeat a long value."""
    lines = []
    for found in error.errors(include_url=False)[:3]:
        place = ".".join(str(part) for part in found["loc"])
        given = "" if found["type"] == "missing" else f" (found {short(found['input'])})"
        lines.append(f"{one_line(place, 80)}: {found['msg']}{given}")
    return one_line("; ".join(lines), MAX_ERROR_CHARS)
