"""How a server is reached: over standard input and output by the client that started it, or over HTTP by programs of this machine.

HTTP listens on 127.0.0.1 and answers to that name and `localhost` alone, and to no page of another origin: a name that was pointed at this
machine gets nothing (DNS rebinding). With a token every request has to carry it.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable

import anyio
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Receive, Scope, Send

from cems_workbench.errors import InputError
from cems_workbench.mcp.server import WorkbenchServer

HOST, PATH = "127.0.0.1", "/mcp"
INTERRUPTED = 130
"""What a process ends with that was interrupted."""
MAX_BODY_BYTES = 4_000_000
"""Bytes of a request: a memory's text as it might be, and room."""


def serve_stdio(server: WorkbenchServer) -> None:
    """Serve the client at the other end of standard input and output until it closes them. Nothing else is written there."""
    # Who waits for a line of input cannot be woken to end in order; a store is whole however a process ends.
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    anyio.run(server.run_stdio_async)


def serve_http(server: WorkbenchServer, port: int, token: str | None, say: Callable[[str], None]) -> None:
    """Serve programs of this machine until the process is ended; port 0 takes a free one. Raises InputError where it is taken.

    `say` is told the address once the server listens there.
    """
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
    app: ASGIApp = server.streamable_http_app(
        streamable_http_path=PATH,
        host=HOST,
        max_request_body_size=MAX_BODY_BYTES,
        transport_security=TransportSecuritySettings(
            allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names]
        ),
    )
    if token is not None:
        app = WithToken(app, token)
    running = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
    say(f"MCP at http://{HOST}:{port}{PATH}{' with a token' if token is not None else ''}; Ctrl-C ends it")
    running.run(sockets=[listening])


class WithToken:
    """An app that only who has the token reaches; others are told in a line that it takes one."""

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
    said = {
        "error": "this server takes a token: Authorization: Bearer, and what CEMS_WORKBENCH_MCP_TOKEN is where it runs"
    }
    headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(said).encode()})


def quiet_logs() -> None:
    """For the whole process: failures as lines on standard error, once; what the workbench warns of is said there already."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr, force=True)
    logging.getLogger("cems_workbench").propagate = False
