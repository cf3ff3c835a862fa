"""Qdrant's REST interface over its client's local mode: what the client sends and reads over the wire, without Qdrant's server.

Local mode has no index, so what the server says of its index is `indexed`; the parameters of a search are kept as they came.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qdrant_client import QdrantClient



@dataclass
class Rest:
    """A server; `asked` are method and path of every request, `searches` the bodies of queries."""

    client: QdrantClient
    key: str
    indexed: int = 0
    port: int = 0
    asked: set[tuple[str, str]] = field(default_factory=set)
    searches: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        """What the route gives, as JSON values. Raises KeyError for a route that reading does not need."""
        if path == "/":
            return {"title": "qdrant", "version": "1.16.0"}
        if path == "/collections":
            return self.client.get_collections().model_dump(mode="json")
        name, route = re.fullmatch(r"/collections/([^/]+)(.*)", path).groups()  # type: ignore[union-attr]
        if route == "":
            found = self.client.get_collection(name).model_copy(update={"indexed_vectors_count": self.indexed})
            return found.model_dump(mode="json")
        if route == "/points/count":
            return self.client.count(name, exact=body["exact"]).model_dump(mode="json")
        shown = {"with_payload": body.get("with_payload"), "with_vectors": body.get("with_vector", False)}
        if route == "/points":
            return [point.model_dump(mode="json") for point in self.client.retrieve(name, body["ids"], **shown)]
        if route == "/points/scroll":
            points, offset = self.client.scroll(name, limit=body["limit"], offset=body.get("offset"), **shown)
            return {"points": [point.model_dump(mode="json") for point in points], "next_page_offset": offset}
        if route == "/points/query":
            self.searches.append(body)
            from qdrant_client.models import QueryRequest

            query = QueryRequest.model_validate(body)
            found = self.client.query_points(
                name,
                query=query.query,
                prefetch=query.prefetch,
                using=query.using,
                limit=query.limit,
                query_filter=query.filter,
                **shown,
            )
            return found.model_dump(mode="json")
        raise KeyError(path)


@contextmanager
def running(client: QdrantClient, key: str, indexed: int) -> Iterator[Rest]:
    """A server on this machine for the collections of `client`, who wants `key`; it ends with the context."""
    rest = Rest(client, key, indexed)

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            path = self.path.partition("?")[0]
            rest.asked.add((self.command, path))
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else {}
            status, reply = 401, {"status": {"error": "Invalid API key or JWT"}}
            if self.headers.get("api-key") == rest.key:
                result = rest.answer(path, body)
                status, reply = 200, result if path == "/" else {"time": 0.0, "status": "ok", "result": result}
            raw = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    rest.port = server.server_address[1]
    try:
        yield rest
    finally:
        server.shutdown()
        server.server_close()
