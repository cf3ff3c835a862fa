"""A small HTTP server on an ephemeral port that answers as a test tells it to, badly too; it remembers what it was asked."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DRIPS = 300
"""Bytes of a slow reply: enough for every deadline in these tests, few enough that a missing one fails soon."""


@dataclass(frozen=True)
class Reply:
    """What goes over the wire. `promised` bytes more are announced than sent; `drip`: byte by byte, without coming to an end."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    promised: int = 0
    hang: bool = False
    drip: bool = False
    slam: bool = False


def sent(value: Any, status: int = 200, **headers: str) -> Reply:
    """JSON, NaN and all."""
    return Reply(json.dumps(value).encode(), status, {name.replace("_", "-"): text for name, text in headers.items()})


HTML = Reply(b"<!DOCTYPE html><html><body>nginx</body></html>")
HANG, DRIP, SLAM = Reply(hang=True), Reply(drip=True), Reply(slam=True)
CUT = Reply(b'{"response": "7", "message"', promised=40)
TRUNCATED = Reply(b'{"response": "7", "mess')

Answer = Callable[[str, dict[str, Any], int], Reply]
"""Called with path, body and how often this very body was asked before."""


class ModelServer:
    """Its address, and per request the path, the body and the headers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[tuple[str, dict[str, Any], dict[str, str]]] = []

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [body for there, body, _ in self.asked if there == path]


@contextmanager
def serving(answer: Answer) -> Iterator[ModelServer]:
    """The server, until the block ends; what still hangs is let go then."""
    over, lock, before = threading.Event(), threading.Lock(), Counter[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.handle_asked(b"")

        def do_POST(self) -> None:
            self.handle_asked(self.rfile.read(int(self.headers.get("content-length") or 0)))

        def handle_asked(self, raw: bytes) -> None:
            body = json.loads(raw) if raw else {}
            with lock:
                earlier = before[f"{self.path} {raw!r}"]
                before[f"{self.path} {raw!r}"] += 1
                server.asked.append((self.path, body, {key.lower(): text for key, text in self.headers.items()}))
            with contextlib.suppress(OSError):
                self.reply(answer(self.path, body, earlier))

        def reply(self, reply: Reply) -> None:
            if reply.slam:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if reply.hang:
                over.wait(20)
                return
            self.send_response(reply.status)
            for name, text in reply.headers.items():
                self.send_header(name, text)
            length = len(reply.body) + (2 * DRIPS if reply.drip else reply.promised)
            self.send_header("content-length", str(length))
            self.end_headers()
            self.wfile.write(reply.body)
            for _ in range(DRIPS if reply.drip else 0):
                if over.wait(0.01):
                    break
                self.wfile.write(b" ")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads, http.block_on_close = True, False
    server = ModelServer(f"http://127.0.0.1:{http.server_address[1]}")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        over.set()
        http.shutdown()
        http.server_close()
        thread.join()


def nobody() -> str:
    """A URL at which nothing listens: the port is taken, so that nobody else can, and refuses connections."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    _TAKEN.append(taken)
    return f"http://127.0.0.1:{taken.getsockname()[1]}"


_TAKEN: list[socket.socket] = []


def no_sleep(seconds: float) -> None:
    """Waits between tries, not waited."""
