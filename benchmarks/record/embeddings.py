"""Serve the workbench's embedder on this machine in the form of OpenAI (`POST /v1/embeddings`), for systems that are recorded.

    python -m benchmarks.record.embeddings --port 8766

It listens on 127.0.0.1 alone. A text is embedded as it is, so that system and workbench have the same vectors.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

from cems_workbench.models.minilm_embedder import local_embedder
from cems_workbench.models.protocol import QueryEmbedder
from cems_workbench.settings import Settings


class EmbeddingsHandler(BaseHTTPRequestHandler):
    """Answers one request: {"input": text or texts} -> {"data": [{"index", "embedding"}]}."""

    def __init__(self, embedder: QueryEmbedder, one_at_a_time: Lock, *rest: Any) -> None:
        self.embedder, self.one_at_a_time = embedder, one_at_a_time
        super().__init__(*rest)

    def do_POST(self) -> None:
        """Embed the texts of the body."""
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        said = body.get("input", [])
        texts = [said] if isinstance(said, str) else list(said)
        with self.one_at_a_time:
            vectors = self.embedder.encode(texts).tolist() if texts else []
        data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(vectors)]
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        answer = json.dumps({"object": "list", "data": data, "model": body.get("model", ""), "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a line a text says nothing."""


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8766)
    port = parser.parse_args().port
    handler = partial(EmbeddingsHandler, local_embedder(Settings().embedder), Lock())
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    print(f"http://127.0.0.1:{port}/v1", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
