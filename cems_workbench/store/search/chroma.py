"""Reaching Chroma, embedded in the store's directory or as a server, and the collection of a store and an embedder."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cems_workbench.errors import ModelError, StoreError
from cems_workbench.models.http import server_name

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

HNSW: dict[str, Any] = {
    "space": "cosine",
    # At 150 hits of 100,000 clustered vectors these found all the exact ones; see benchmarks/bench_store.py.
    "ef_construction": 200,
    "ef_search": 300,
    "max_neighbors": 32,
    # Insertions in a fixed order on one thread give the same graph, so the same content gives the same hits.
    "num_threads": 1,
}


def connect(directory: Path, url: str | None) -> ClientAPI:
    """A client for the embedded database in `directory`, or for the server at `url`.

    Telemetry is off and no embedding function is ever used. Raises StoreError when the server does not answer or the
    directory cannot be read.
    """
    import chromadb
    from chromadb.config import Settings

    settings = Settings(anonymized_telemetry=False)
    try:
        if url is None:
            return chromadb.PersistentClient(str(directory), settings=settings)
        where = urlsplit(url if "://" in url else f"http://{url}")
        secure = where.scheme == "https"
        port = where.port or (443 if secure else 8000)
        return chromadb.HttpClient(where.hostname or "", port, ssl=secure, settings=settings)
    except Exception as error:  # Chroma raises ValueError, its own errors and its Rust core's, by version.
        place = f"server {_shown(url)} cannot be reached" if url else f"index {directory} cannot be opened"
        raise StoreError(f"Chroma {place}: {_first_line(error)}") from error


def _shown(url: str) -> str:
    """The URL without what stands before an @ and in its query, which may be secrets."""
    try:
        return server_name(url)
    except ModelError:
        return "of the settings"


def collection_name(store_id: str, embedder_id: str) -> str:
    """The collection of one store and one embedder, so that a server can hold many of both."""
    return f"cems-{store_id}-{hashlib.sha256(embedder_id.encode()).hexdigest()[:12]}"


def find_collection(client: ClientAPI, name: str) -> Collection | None:
    """The collection of that name, None when it does not exist."""
    from chromadb.errors import NotFoundError

    try:
        return client.get_collection(name, embedding_function=None)
    except (NotFoundError, ValueError):
        return None


def create_collection(client: ClientAPI, name: str, embedder_id: str) -> Collection:
    """Create the collection, empty, with HNSW as configured above."""
    configuration: Any = {"hnsw": HNSW}
    return client.create_collection(
        name, embedding_function=None, metadata={"embedder": embedder_id}, configuration=configuration
    )


def dimension(collection: Collection) -> int | None:
    """How many values a vector of a collection has; None while it is empty."""
    rows: Any = collection.get(limit=1, include=["embeddings"])["embeddings"]
    return len(rows[0]) if rows is not None and len(rows) else None


def drop_collection(client: ClientAPI, name: str) -> None:
    """Delete a collection with its vectors, if it exists. Raises StoreError when Chroma refuses."""
    from chromadb.errors import ChromaError, NotFoundError

    try:
        client.delete_collection(name)
    except (NotFoundError, ValueError):
        return
    except ChromaError as error:
        raise StoreError(f"the vectors cannot be dropped: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
