"""Record LangGraph's SQLite store: `SqliteStore.put` of every memory, `search` of every query.

    python -m benchmarks.record.langgraph --data FOLDER --out langgraph.json [--limit 10] [--distance cosine]

Run with the Python that has langgraph-checkpoint-sqlite (seen with 3.1.2). The store is a new file in a temporary folder, one namespace,
and the field `content` is embedded: this store reads `text_fields`, and not the documented `fields`
(findings/langgraph_sqlite_ignores_fields.sh). A Python whose sqlite3 loads no extensions needs pysqlite3 beside it.
"""

from __future__ import annotations

import importlib
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.record.recording import Row, arguments, embedded, memories_of, queries_of, result, with_vectors
from benchmarks.record.recording import written as write_recording

NAMESPACE = ("memories",)
WIDTH_TEXT = "width"


def answers(store: Any, queries: list[Row], limit: int) -> Iterator[Row]:
    """What the store answers to each query."""
    for query in queries:
        found = store.search(NAMESPACE, query=query["query"], limit=limit)
        yield {"qid": query["qid"], "query": query["query"], "results": [result(one.key, one.score) for one in found]}


def main() -> None:
    parser = with_vectors(arguments(__doc__ or ""))
    parser.add_argument("--limit", type=int, default=10, help="the argument of each search")
    parser.add_argument("--distance", default="cosine", help="distance_type of the index: cosine, l2 or inner_product")
    given = parser.parse_args()
    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        sys.modules["sqlite3"] = sys.modules["sqlite3.dbapi2"] = importlib.import_module("pysqlite3")
    library = importlib.import_module("langgraph.store.sqlite")

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return embedded(texts, given.embeddings, given.model)

    index = {
        "dims": len(embed([WIDTH_TEXT])[0]),
        "embed": embed,
        "text_fields": ["content"],
        "distance_type": given.distance,
    }
    with tempfile.TemporaryDirectory() as folder:
        connection = sys.modules["sqlite3"].connect(str(Path(folder) / "store.db"), isolation_level=None)
        store = library.SqliteStore(connection, index=index)
        store.setup()
        for memory in memories_of(given.data):
            store.put(NAMESPACE, memory["id"], {"content": memory["content"]})
        engine = f"langgraph-checkpoint-sqlite {version('langgraph-checkpoint-sqlite')}"
        config = {"limit": given.limit, "distance_type": given.distance}
        count = write_recording(
            given.out, engine, config, answers(store, queries_of(given.data, given.first), given.limit), given.model
        )
        connection.close()
    print(f"{given.out}: {count} answers")


if __name__ == "__main__":
    main()
