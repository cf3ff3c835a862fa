"""Serve the workbench's embedder and packaged cross-encoder on this machine, for systems that are recorded.

    python -m benchmarks.record.embeddings --port 8766

`POST /v1/embeddings` has the form of OpenAI, `POST /rerank` that of Text Embeddings Inference, with scores from 0 to 1 (the sigmoid of the
logit). It listens on 127.0.0.1 alone. A text is read as it is, so that system and workbench have the same vectors and scores.
"""

from __future__ import annotations

import argparse
import json
import math
from base64 import b64encode
from functools import lru_cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

from cems_workbench.models.minilm_embedder import local_embedder
from cems_workbench.models.minilm_judge import MiniLMJudge
from cems_workbench.models.protocol import QueryEmbedder
from cems_workbench.settings import Settings

JUDGE = MiniLMJudge()


@lru_cache(maxsize=200_000)
def unit_score(query: str, text: str) -> float:
    """The cross-encoder's score of a pair, 0 to 1; 0 where it has none."""
    (score,) = JUDGE.score(query, [text])
    return 0.0 if score.raw is None else 1 / (1 + math.exp(-score.raw))


class EmbeddingsHandler(BaseHTTPRequestHandler):
    """Answers one request: {"input": text or texts} -> {"data": [{"index", "embedding"}]}, {"query", "texts"} -> [{"index", "score"}]."""

    protocol_version = "HTTP/1.1"

    def __init__(self, embedder: QueryEmbedder, one_at_a_time: Lock, *rest: Any) -> None:
        self.embedder, self.one_at_a_time = embedder, one_at_a_time
        super().__init__(*rest)

    def do_GET(self) -> None:
        """What Text Embeddings Inference says of its model."""
        self.answer(
            {"model_id": "minilm", "model_type": {"reranker": {}}, "max_client_batch_size": 512, "version": "1"}
        )

    def do_POST(self) -> None:
        """Embed the texts of the body, or score each for its query."""
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self.path.endswith("/rerank"):
            with self.one_at_a_time:
                scores = [unit_score(body["query"], text) for text in body["texts"]]
            ranked = sorted(enumerate(scores), key=lambda pair: -pair[1])
            return self.answer([{"index": i, "score": score} for i, score in ranked])
        said = body.get("input", [])
        texts = [said] if isinstance(said, str) else list(said)
        with self.one_at_a_time:
            vectors = list(self.embedder.encode(texts)) if texts else []
        coded = body.get("encoding_format") == "base64"  # the client of Node's default
        rows = [b64encode(one.astype("<f4").tobytes()).decode() if coded else one.tolist() for one in vectors]
        data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return self.answer({"object": "list", "data": data, "model": body.get("model", ""), "usage": usage})

    def answer(self, document: Any) -> None:
        """Write a document as the reply."""
        raw = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

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
