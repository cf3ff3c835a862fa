"""Record mem0: `Memory.add` of every memory, `Memory.search(explain=True)` of every query.

    python -m benchmarks.record.mem0 --data FOLDER --out mem0.json --embeddings http://127.0.0.1:8766/v1
    python -m benchmarks.record.mem0 --data FOLDER --out mem0.json --config mine.json

Run with the Python that has mem0 (seen with mem0ai 1.0.11, 2.0.4, 2.0.6 and 2.2.1). `--config` is a file for `Memory.from_config`; without
one it is the plain install: Qdrant embedded in a temporary folder, or `--store chroma`, and vectors from an address. Without
`--top-k` and `--threshold` the version's own defaults hold. With `--infer` memories go through the configured language
model, which may rewrite them: then nothing can be matched by id but by text. The rows of the store's own searches are written as the lists
`semantic` and `keyword`; entity boosts are parts of the results (`score_details`).
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.record.recording import Row, arguments, asked, embedded, memories_of, queries_of, result, with_vectors
from benchmarks.record.recording import written as write_recording

USER = "recorder"
OWN_ID = "record_id"
"""The field of a memory's metadata that keeps its id: mem0 gives it another."""


class WatchedStore:
    """A vector store whose searches are kept: the rows that each returned last."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.semantic: list[Row] = []
        self.keyword: list[Row] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def search(self, *args: Any, **named: Any) -> Any:
        """The store's search by vector."""
        found = self.store.search(*args, **named)
        self.semantic = _rows(found)
        return found

    def keyword_search(self, *args: Any, **named: Any) -> Any:
        """The store's search by words, None where it has none."""
        found = self.store.keyword_search(*args, **named)
        self.keyword = None if found is None else _rows(found)
        return found


def _rows(found: Any) -> list[Row]:
    rows = ((one.payload or {}, one) for one in found)
    return [result(str(payload.get(OWN_ID, one.id)), one.score) for payload, one in rows]


def plain_config(folder: str, store: str, address: str, model: str) -> Row:
    """The configuration of a plain install with a store, with vectors from an address."""
    width = len(embedded(["width"], address, model)[0])
    embedder = {"model": model, "openai_base_url": address, "api_key": "none", "embedding_dims": width}
    where = {"path": str(Path(folder) / store)} | ({"embedding_model_dims": width} if store == "qdrant" else {})
    return {
        "vector_store": {"provider": store, "config": where},
        "embedder": {"provider": "openai", "config": embedder},
        # Never asked with infer=False; its client wants a key all the same.
        "llm": {"provider": "openai", "config": {"api_key": "none"}},
        "history_db_path": str(Path(folder) / "history.db"),
    }


def settings(memory: Any, top_k: int | None, threshold: float | None) -> Row:
    """The arguments of a search: what is given, else the version's own defaults, which go by other names in 1.0."""
    known = inspect.signature(memory.search).parameters
    chosen = {"top_k": top_k, "limit": top_k, "threshold": threshold, "explain": True, "user_id": USER}
    own = {name: known[name].default for name in chosen if name in known}
    return own | {name: value for name, value in chosen.items() if name in known and value is not None}


def answers(memory: Any, queries: list[Row], given: Row) -> Iterator[Row]:
    """What mem0 answers to each query, with the lists of its store."""
    watched = memory.vector_store = WatchedStore(memory.vector_store)
    scope = {} if "user_id" in given else {"filters": {"user_id": USER}}
    for query in queries:
        watched.semantic, watched.keyword = [], None
        found = memory.search(query["query"], **scope, **given)["results"]
        results = [
            result(str((row.get("metadata") or {}).get(OWN_ID, row["id"])), row["score"])
            | {"content": row["memory"], "score_details": row.get("score_details")}
            for row in found
        ]
        lists = {"semantic": watched.semantic} | ({} if watched.keyword is None else {"keyword": watched.keyword})
        divisor = next((row["score_details"]["max_possible_score"] for row in results if row["score_details"]), None)
        yield asked(query, results=results, lists=lists, divisor=divisor)


def main() -> None:
    """Fill a mem0 store, ask it, and write the recording."""
    parser = with_vectors(arguments("Record the answers of mem0."))
    parser.add_argument(
        "--config", type=Path, default=None, help="a file for Memory.from_config (default: plain install)"
    )
    parser.add_argument("--store", choices=("qdrant", "chroma"), default="qdrant", help="of the plain install")
    parser.add_argument("--top-k", type=int, default=None)
    parser.add_argument("--threshold", type=float, default=None)
    parser.add_argument("--infer", action="store_true", help="let the language model extract facts and link entities")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="record-mem0-") as folder:
        os.environ.setdefault("MEM0_DIR", folder)  # read when mem0 is imported
        os.environ.setdefault("MEM0_TELEMETRY", "False")
        config = (
            json.loads(given.config.read_text())
            if given.config
            else plain_config(folder, given.store, given.embeddings, given.model)
        )
        memory = importlib.import_module("mem0").Memory.from_config(config)
        for row in memories_of(given.data):
            memory.add(row["content"], user_id=USER, infer=given.infer, metadata={OWN_ID: row["id"]})
        asked_with = settings(memory, given.top_k, given.threshold)
        said = {
            "store": config["vector_store"]["provider"],
            "top_k": asked_with.get("top_k", asked_with.get("limit")),
            "threshold": asked_with["threshold"],
            "infer": given.infer,
        }
        found = answers(memory, queries_of(given.data, given.first), asked_with)
        count = write_recording(given.out, f"mem0ai {version('mem0ai')}", said, found, given.model)
    print(f"{count} answers in {given.out}")


if __name__ == "__main__":
    main()
