"""A llama.cpp server that misbehaves as the document asks: its replies, its faults, and how to run it."""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GOOD = 1 / (1 + math.exp(-2.4))
"""What `said(("yes", -0.1), ("no", -2.5))` is worth: 0.9168."""


def said(*top: tuple[str, Any], token: str | None = None) -> dict[str, Any]:
    """A reply whose one token has these likeliest alternatives; the first was generated, unless `token` was."""
    generated = token if token is not None else top[0][0]
    entries = [{"token": name, "logprob": logprob} for name, logprob in top]
    first = {"token": generated, "logprob": -0.1, "top_logprobs": entries}
    return {"choices": [{"message": {"content": generated}, "logprobs": {"content": [first]}}]}


def written(text: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": text}, "logprobs": None}]}


class Handler(BaseHTTPRequestHandler):
    """Answers as the text after `<Document>: ` says: the behaviour is its first word."""

    server: FaultyServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        document = request["messages"][1]["content"].split("<Document>: ")[1]
        with self.server.lock:
            self.server.requests.append(request)
            self.server.asked[document] += 1
            tries = self.server.asked[document]
        BEHAVIOURS[document.split()[0]](self, tries)

    def do_GET(self) -> None:
        self.server.get(self)

    def send(self, status: int, body: bytes, content_type: str = "application/json", **headers: object) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        for name, value in {"Content_Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def send_json(self, reply: Any, status: int = 200, **headers: object) -> None:
        self.send(status, json.dumps(reply).encode(), **headers)

    def drip(self, head: bytes) -> None:
        """One byte every hundredth of a second, for longer than any test waits."""
        try:
            self.wfile.write(head)
            while not self.server.closing.wait(0.01):
                self.wfile.write(b"x")
        except OSError:
            pass

    def log_message(self, *arguments: object) -> None:
        pass


class FaultyServer(ThreadingHTTPServer):
    """Counts how often each document was asked and how many requests were open at once."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 50

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.requests: list[dict[str, Any]] = []
        self.asked: Counter[str] = Counter()
        self.closing = threading.Event()
        self.crowd = threading.Barrier(3)
        self.open_now = 0
        self.open_most = 0
        self.get: Callable[[Handler], None] = lambda handler: handler.send_json({"error": "no such page"}, 404)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up is what some tests want."""


def good(handler: Handler, tries: int) -> None:
    handler.send_json(said(("yes", -0.1), ("no", -2.5)))


def together(handler: Handler, tries: int) -> None:
    """Answers only once three requests are open."""
    server = handler.server
    with server.lock:
        server.open_now += 1
        server.open_most = max(server.open_most, server.open_now)
    server.crowd.wait(timeout=20)
    with server.lock:
        server.open_now -= 1
    good(handler, tries)


def hangs(handler: Handler) -> None:
    handler.server.closing.wait()


def dies(handler: Handler, tries: int) -> None:
    """The whole server, without a reply."""
    handler.server.shutdown()
    handler.server.server_close()


BROKEN = {"error": {"code": 500, "message": "out of\nslots", "type": "server_error"}}
FULL = json.dumps(said(("yes", -0.1), ("no", -2.5))).encode()
HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n"

BEHAVIOURS: dict[str, Callable[[Handler, int], None]] = {
    "good": good,
    "unsure": lambda handler, tries: handler.send_json(said(("maybe", -0.1))),
    "together": together,
    "dies": dies,
    "500": lambda handler, tries: handler.send_json(BROKEN, 500),
    "500-html": lambda handler, tries: handler.send(502, b"<h1>Bad Gateway</h1>", "text/html"),
    "500-twice": lambda handler, tries: handler.send_json(BROKEN, 500) if tries < 3 else good(handler, tries),
    "400": lambda handler, tries: handler.send_json({"error": {"message": "exceeds the context size"}}, 400),
    "429": lambda handler, tries: handler.send_json({}, 429),
    "429-once": lambda handler, tries: handler.send_json({}, 429, Retry_After=7) if tries < 2 else good(handler, tries),
    "429-hour": lambda handler, tries: handler.send_json({}, 429, Retry_After=3600),
    "cut-json": lambda handler, tries: handler.send(200, FULL[:40]),
    "cut-connection": lambda handler, tries: handler.send(200, FULL, Content_Length=len(FULL) + 9),
    "no-reply": lambda handler, tries: None,
    "html": lambda handler, tries: handler.send(200, b"<html>\n<title>Login</title></html>", "text/html"),
    "not-text": lambda handler, tries: handler.send(200, b"\xff\xfe\x00"),
    "bad-gzip": lambda handler, tries: handler.send(200, b"plain", Content_Encoding="gzip"),
    "deep": lambda handler, tries: handler.send(200, b"[" * 100_000),
    "long": lambda handler, tries: handler.send(200, b" " * 2_000_000),
    "blank": lambda handler, tries: handler.send(200, b""),
    "nan": lambda handler, tries: handler.send_json(said(("yes", math.nan), ("no", -1.0))),
    "words": lambda handler, tries: handler.send_json(said(("yes", "high"), ("no", -1.0))),
    "no-choices": lambda handler, tries: handler.send_json({"choices": []}),
    "shape": lambda handler, tries: handler.send_json({"results": [{"relevance_score": 0.7}]}),
    "moved": lambda handler, tries: handler.send(302, b"", Location="http://127.0.0.1:9/"),
    "hang": lambda handler, tries: hangs(handler),
    "drip": lambda handler, tries: handler.drip(HEAD + b"\r\n{"),
    "drip-head": lambda handler, tries: handler.drip(HEAD + b"X-Slow: "),
}
