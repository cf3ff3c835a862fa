"""`mcp`: the Model Context Protocol server for coding agents."""

from __future__ import annotations

from typing import Annotated

import typer

from cems_workbench.cli.options import StoreOption
from cems_workbench.cli.terminal import say
from cems_workbench.errors import InputError

DEFAULT_PORT = 8765


def mcp_command(
    http: Annotated[bool, typer.Option("--http", help="Listen on 127.0.0.1 instead of stdin and stdout.")] = False,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=0, max=65535, help=f"Port for --http; 0 picks a free one (default: {DEFAULT_PORT})."
        ),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Let the agent write labels; it can change nothing else.")
    ] = False,
    judge: Annotated[str, typer.Option("--judge", metavar="NAME", help="Judge name of the agent's labels.")] = "agent",
    store: StoreOption = None,
) -> None:
    """Serve the Model Context Protocol to a coding agent.

    Tools: search, why, what-if, compare, evaluate and others; see docs/use/mcp.md.
    """
    if port is not None and not http:
        raise InputError("--port needs --http")
    from cems_workbench.mcp.served_store import ServedStore
    from cems_workbench.mcp.server import WorkbenchServer, quiet_logs, serve_http, serve_stdio

    quiet_logs()
    served = ServedStore(store, write=write, judge=judge)
    try:
        server = WorkbenchServer(served)
        if http:
            serve_http(
                server,
                DEFAULT_PORT if port is None else port,
                served.settings.mcp_token or None,
                lambda line: say(line, err=True),
            )
        else:
            serve_stdio(server)
    finally:
        served.close()
