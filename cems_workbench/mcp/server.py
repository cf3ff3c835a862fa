"""The tools as an MCP server: replies as compact JSON, errors as one line that says what to do, over stdin and stdout or HTTP.

HTTP listens on 127.0.0.1 and accepts only that name and `localhost` as host, and no other origin: this prevents DNS rebinding. If a token
is set, every request must carry it.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from mcp.types import Tool as ListedTool
from pydantic import ValidationError
from pydantic_core import from_json, to_json
from starlette.types import ASGIApp, Receive, Scope, Send

from cems_workbench import __version__, extensions
from cems_workbench.analysis.of_query import OPERATIONS
from cems_workbench.api.open_store import collect_warnings
from cems_workbench.errors import InputError, nearest, one_line, short, user_message
from cems_workbench.jobs.access import may
from cems_workbench.mcp import memories, queries, query_sets
from cems_workbench.mcp.protocol import UNTRUSTED, Arguments, ServedStore, Tool

TOOLS = (
    Tool(memories.overview, "What the store holds"),
    Tool(memories.find_memories, "Memories by their words", memories.FindMemories),
    Tool(memories.read_memory, "The text of a memory", memories.ReadMemory),
    Tool(queries.search, "Search as the pipeline does", queries.Search),
    Tool(queries.why, "Why a memory is missing", queries.Why),
    Tool(queries.blame, "The memories behind an answer", queries.Blame),
    Tool(queries.what_if, "A query under other parameters", queries.WhatIf),
    Tool(queries.what_if_memory, "A memory in other words, absent or new", queries.WhatIfMemory),
    Tool(memories.parameters, "What can be changed", memories.Parameters),
    Tool(query_sets.evaluate, "A config on judged queries", query_sets.Evaluate),
    Tool(query_sets.compare, "A change on judged queries", query_sets.Compare),
    Tool(query_sets.memory, "One memory across all queries", query_sets.MemoryUse),
    Tool(query_sets.losses, "Where relevant memories are lost", query_sets.Losses),
    Tool(memories.label, "Grade a memory", memories.Label, writes=True),
    Tool(memories.undo_label, "Take a grade back", writes=True),
)
ADDED = extensions.Registry(extensions.TOOLS, Tool, taken=[tool.name for tool in TOOLS])
"""Those of other packages."""
INSTRUCTIONS = f"""\
Why was a memory not returned, and what would return it? This server searches a store of memories as the
retrieval pipeline does, and explains it.
1. search(query): the results, and the candidates that were lost. A memory that is not among them: find_memories(words) has its id.
2. why(query, memory_id): the stage that lost it, and the smallest changes that bring it in.
3. what_if(query, changes): such a change on this query; what_if_memory: other words of the memory.
4. blame(text, query): from a wrong answer back to the memories that say so: which is stale, and which says otherwise.
5. compare(changes): the change on all judged queries. One that helps a query and harms others is none.
If there are more rows, a page has next_offset. Empty fields are left out. {UNTRUSTED}"""
READ_ONLY = ToolAnnotations(read_only_hint=True, open_world_hint=False)
WRITES_LABELS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
MAX_ERROR_CHARS = 600
HOST, PATH = "127.0.0.1", "/mcp"
INTERRUPTED = 130
"""Exit code after an interrupt."""
MAX_BODY_BYTES = 4_000_000
"""Bytes of a request: room for the text of any memory."""


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
        tools = (*TOOLS, *map(queries.operation_tool, OPERATIONS.values()), *ADDED.values())
        self._tools = {one.name: one for one in tools if not one.writes or may(served.role, "reviewer")}

    async def list_tools(self) -> list[ListedTool]:
        """What a client reads before it asks; tests/integration/test_mcp.py limits its bytes."""
        return [
            ListedTool(
                name=name,
                title=tool.title,
                description=tool.description,
                input_schema=tool.arguments.input_schema(),
                annotations=WRITES_LABELS if tool.writes else READ_ONLY,
            )
            for name, tool in self._tools.items()
        ]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. Raises ToolError with one line for the client."""
        tool = self._checked(name, arguments)
        try:
            asked = tool.arguments.model_validate(arguments)
        except ValidationError as error:
            raise ToolError(f"{name}: {_invalid(error)}") from error
        try:
            text = await anyio.to_thread.run_sync(self._answer, tool, asked, context)
        except Exception as error:
            line = user_message(error)
            if line is not None:
                raise ToolError(f"{name}: {one_line(line, MAX_ERROR_CHARS)}") from None
            said = f"unexpected error ({type(error).__name__}); the server's log has the traceback"
            raise UnexpectedToolError(f"{name}: {said}") from error
        return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=from_json(text))

    def _answer(self, tool: Tool, asked: Arguments, context: Context[Any, Any] | None) -> str:
        """The reply of a tool as JSON, with the warnings of this thread."""
        with collect_warnings() as noted:
            searching = (context,) if "context" in signature(tool.answer).parameters else ()
            found = tool.answer(self.served, asked, *searching)
        if noted:
            found["notes"] = list(dict.fromkeys((*noted, *found.get("notes", ()))))
        text = to_json(found).decode()
        if '"untrusted":' in text:
            text = to_json({**found, "untrusted_note": UNTRUSTED}).decode()
        return text

    def _checked(self, name: str, arguments: Mapping[str, Any]) -> Tool:
        """The tool of a name. Raises ToolError for an unknown tool or argument; neither is ignored."""
        if name not in self._tools:
            if name in {one.name for one in TOOLS}:
                raise ToolError(f"{name}: this server is read-only: restart it with --write to allow labels")
            meant = f"no such tool{_meant(name, self._tools)} There are {', '.join(self._tools)}"
            raise ToolError(f"{short(name)}: {meant}")
        tool = self._tools[name]
        known = tool.arguments.names()
        for argument in arguments:
            if argument not in known:
                takes = f"It takes {', '.join(known)}" if known else "It takes none"
                raise ToolError(f"{name}: there is no argument {short(argument)}{_meant(argument, known)} {takes}")
        return tool


def _meant(name: str, known: Iterable[str]) -> str:
    close = nearest(name[:100], known)
    return f"; did you mean {close}?" if close else "."


def _invalid(error: ValidationError) -> str:
    """The error in the arguments, in one line that does not repeat a long value."""
    lines = []
    for found in error.errors(include_url=False)[:3]:
        place = ".".join(str(part) for part in found["loc"])
        given = "" if found["type"] == "missing" else f" (found {short(found['input'])})"
        lines.append(f"{one_line(place, 80)}: {found['msg']}{given}")
    return one_line("; ".join(lines), MAX_ERROR_CHARS)


def serve_stdio(server: WorkbenchServer) -> None:
    """Serve the client on stdin and stdout until it closes them. Nothing else is written there."""
    # A thread that waits for input cannot be woken to end cleanly; the store survives any end of the process.
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    anyio.run(server.run_stdio_async)


def serve_http(server: WorkbenchServer, port: int, token: str | None, say: Callable[[str], None]) -> None:
    """Serve programs on this machine until the process ends; port 0 picks a free one. Raises InputError if the port is
    in use. `say` is called with the address once the server listens."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
    except OSError as error:
        listening.close()
        raise InputError(f"port {port}: {error.strerror}; name another one with --port") from None
    port = listening.getsockname()[1]
    listening.listen(100)
    names = [f"{name}:{port}" for name in (HOST, "localhost")]
    only = TransportSecuritySettings(allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names])
    app: ASGIApp = server.streamable_http_app(
        streamable_http_path=PATH, host=HOST, max_request_body_size=MAX_BODY_BYTES, transport_security=only
    )
    if token is not None:
        app = WithToken(app, token)
    running = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
    say(f"MCP at http://{HOST}:{port}{PATH}{' with a token' if token is not None else ''}; Ctrl-C ends it")
    running.run(sockets=[listening])


class WithToken:
    """An app that requires the token; without it the response is one line that says so."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                return await _refuse(send)
        await self._app(scope, receive, send)


async def _refuse(send: Send) -> None:
    told = "this server takes a token: Authorization: Bearer, and what CEMS_WORKBENCH_MCP_TOKEN is where it runs"
    headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"error": told}).encode()})


def quiet_logs() -> None:
    """Log only failures, one line each on stderr; warnings of the workbench are printed there already."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr, force=True)
    logging.getLogger("cems_workbench").propagate = False
