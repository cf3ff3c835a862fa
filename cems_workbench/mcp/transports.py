"""Transports of the server: stdin and stdout for the client that started it, or HTTP for programs on this machine.

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
from collections.abc import Callable

import anyio
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Receive, Scope, Send

from cems_workbench.errors import InputError
from cems_workbench.mcp.server import WorkbenchServer

HOST, PATH = "127.0.0.1", "/mcp"
INTERRUPTED = 130
"""Exit code after an interrupt."""
MAX_BODY_BYTES = 4_000_000
"""Bytes of a request: room for the text of any memory."""


def serve_stdio(server: WorkbenchServer) -> None:
    """Serve the client on stdin and stdout until it closes them. Nothing else is written there."""
    # A thread that waits for input cannot be woken to end cleanly; the store survives any end of the process.
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    anyio.run(server.run_stdio_async)


def serve_http(server: WorkbenchServer, port: int, token: str | None, say: Callable[[str], None]) -> None:
    """Serve programs on this machine until the process ends; port 0 picks a free one. Raises InputError if the port is in use.

    `say` is called with the address once the server listens.
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
    said = {
        "error": "this server takes a token: Authorization: Bearer, and what CEMS_WORKBENCH_MCP_TOKEN is where it runs"
    }
    headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(said).encode()})


def quiet_logs() -> None:
    """Log only failures, one line each on stderr; warnings of the workbench are printed there already."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr, force=True)
    logging.getLogger("cems_workbench").propagate = False
