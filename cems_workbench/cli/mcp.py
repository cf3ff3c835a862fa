"""`mcp`: serve a coding agent that asks why its memory failed."""

from __future__ import annotations

from typing import Annotated

import typer

from cems_workbench.cli.options import StoreOption
from cems_workbench.cli.terminal import say
from cems_workbench.errors import InputError

PORT = 8765


def mcp_command(
    http: Annotated[
        bool, typer.Option("--http", help="Listen on 127.0.0.1 instead of standard input and output.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help=f"Port of --http; 0 takes a free one (default: {PORT})."),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Let the agent give labels, and nothing else.")] = False,
    judge: Annotated[str, typer.Option("--judge", help="Name that its labels are kept under.")] = "agent",
    store: StoreOption = None,
) -> None:
    """Serve the Model Context Protocol: search, why, what-if, compare and evaluate for a coding agent. See docs/use/mcp.md."""
    if port is not None and not http:
        raise InputError("--port needs --http")
    from cems_workbench.mcp.served_store import ServedStore
    from cems_workbench.mcp.server import WorkbenchServer
    from cems_workbench.mcp.transports import quiet_logs, serve_http, serve_stdio

    quiet_logs()
    served = ServedStore(store, write=write, judge=judge)
    try:
        server = WorkbenchServer(served)
        if http:
            serve_http(
                server,
                PORT if port is None else port,
                served.settings.mcp_token or None,
                lambda line: say(line, err=True),
            )
        else:
            serve_stdio(server)
    finally:
        served.close()
