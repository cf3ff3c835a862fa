"""`fidelity --ask`: a server with CEMS's REST API is asked a query set, and what it answers is measured."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cems_workbench.config import preset
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.resources import Resources

if TYPE_CHECKING:
    from conftest import Command

pytestmark = pytest.mark.models
ASKED = 4


@pytest.fixture
def answering(resources: Resources) -> Iterator[str]:
    """The address of a server that answers as `cems_head` does here, but the last query of the set by nothing; closes the store."""
    config = preset("cems_head").config
    queries = resources.store.queries.read()[:ASKED]
    replies: dict[str, list[dict[str, Any]]] = {}
    for query in queries:
        found = replay(gather_lists(Request(query.query, query.project), config, resources), config).results
        replies[query.query] = [{"memory_id": row.memory_id, "content": "…", "score": row.score} for row in found]
    replies[queries[-1].query] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            good = self.headers["Authorization"] == "Bearer the-key-4417"
            body = {"results": replies.get(asked["query"], []), "mode": "vector"} if good else {"error": "unauthorized"}
            self.send_response(200 if good else 401)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: Any) -> None: ...

    resources.store.query_sets.put("few", queries, "a test")
    resources.close()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/?per_second=100"
    server.shutdown()
    server.server_close()


def test_a_server_is_asked_and_measured(
    answering: str, store: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("fidelity", "--ask", answering, "--query-set", "few", "--store", store)
    assert "set CEMS_API_KEY" in command(*asked).err
    monkeypatch.setenv("CEMS_API_KEY", "the-key-4418")
    refused = command(*asked)
    assert refused.code == 2 and "the key in CEMS_API_KEY is refused" in refused.err and "4418" not in refused.err
    monkeypatch.setenv("CEMS_API_KEY", "the-key-4417")
    finished = command(*asked, "--json")
    (setting,) = json.loads(finished.out)["settings"]
    assert setting["queries"] == ASKED
    assert setting["measures"]["same_order"]["mean"] == pytest.approx((ASKED - 1) / ASKED)
    assert len(setting["differing"]) == 1 and setting["differing"][0]["recorded"] == []
