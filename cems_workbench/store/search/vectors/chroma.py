"""Chroma access: clients (embedded or server) and one collection per store and embedder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from cems_workbench.errors import ModelError, StoreError
from cems_workbench.models.http import server_name
from cems_workbench.models.protocol import Float32
from cems_workbench.platform.http_limits import ResponseError, connection_reason

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

HNSW: dict[str, Any] = {
    "space": "cosine",
    # Full recall at 150 hits of 100,000 clustered vectors; see benchmarks/bench_store.py.
    "ef_construction": 200,
    "ef_search": 300,
    "max_neighbors": 32,
    # One thread inserts in a fixed order, so that the same content gives the same graph and the same hits.
    "num_threads": 1,
}

BATCH_SIZE = 2_000
READ_FAILED, WRITE_FAILED = "the vectors cannot be read", "the vectors cannot be written"


def load() -> None:
    """Import the library, which takes a second."""
    import chromadb  # noqa: F401


def connect(directory: Path, url: str | None) -> ClientAPI:
    """A client for the embedded database in `directory`, or for the server at `url`.

    Telemetry is off and no embedding function is used. Raises StoreError if the server does not respond or the directory
    cannot be read.
    """
    import chromadb
    from chromadb.api.shared_system_client import SharedSystemClient
    from chromadb.config import Settings

    from cems_workbench.platform.http_limits import chroma_client

    settings = Settings(anonymized_telemetry=False)
    try:
        if url is None:
            with convert_panics():
                return chromadb.PersistentClient(str(directory), settings=settings)
        address = urlsplit(url if "://" in url else f"http://{url}")
        secure = address.scheme == "https"
        port = address.port or (443 if secure else 8000)
        return chroma_client(address.hostname or "", port, secure)
    except Exception as error:  # Chroma raises ValueError, its own errors and its Rust core's, by version.
        if url is None:
            # Chroma keeps what failed to start, and would use it at the next attempt.
            SharedSystemClient._identifier_to_system.pop(str(directory), None)
        problem = "cannot be used" if isinstance(error, ResponseError) else "cannot be reached"
        target = f"server {_redacted_url(url)} {problem}" if url else f"index {directory} cannot be opened"
        raise StoreError(f"Chroma {target}: {connection_reason(error) or _first_line(error)}") from error


@contextmanager
def convert_panics() -> Iterator[None]:
    """Turn a panic of Chroma's Rust core into a RuntimeError: it is a BaseException, which `except Exception` misses."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as panic:
        raise RuntimeError(_first_line(panic)) from panic


@contextmanager
def store_errors(message: str) -> Iterator[None]:
    """Turn errors of Chroma inside the block into a StoreError that starts with `message` and names an unreachable server."""
    from chromadb.errors import ChromaError
    from httpx import TransportError

    try:
        with convert_panics():
            yield
    except TransportError as error:
        raise StoreError(
            f"{message}: Chroma server {error.request.url.netloc.decode()}: {connection_reason(error)}"
        ) from error
    except (ChromaError, ResponseError, ValueError, RuntimeError, OSError, TypeError, KeyError) as error:
        raise StoreError(f"{message}: {_first_line(error)}") from error


def _redacted_url(url: str) -> str:
    """The URL without credentials and query string."""
    try:
        return server_name(url)
    except ModelError:
        return "of the settings"


def find_collection(client: ClientAPI, name: str) -> Collection | None:
    """The collection of that name, or None."""
    from chromadb.errors import NotFoundError

    with store_errors("Chroma cannot list its collections"):
        try:
            return client.get_collection(name, embedding_function=None)
        except NotFoundError:
            return None


def create_collection(client: ClientAPI, name: str, embedder_id: str) -> Collection:
    """Create an empty collection with the HNSW configuration above."""
    configuration: Any = {"hnsw": HNSW}
    with store_errors(WRITE_FAILED):
        return client.create_collection(
            name, embedding_function=None, metadata={"embedder": embedder_id}, configuration=configuration
        )


def dimension(collection: Collection) -> int | None:
    """The dimension of a collection's vectors; None if it is empty."""
    with store_errors(READ_FAILED):
        rows: Any = collection.get(limit=1, include=["embeddings"])["embeddings"]
    return len(rows[0]) if rows is not None and len(rows) else None


def read_vectors(collection: Collection, keys: Sequence[str] | None = None) -> Iterator[tuple[str, Float32]]:
    """(key, vector) of every entry, or of the existing ones among `keys`, read in batches. Raises StoreError."""
    if keys is None:
        # Batches by id: paging by offset scans from the start each time, which takes minutes for a million vectors.
        with store_errors(READ_FAILED):
            keys = collection.get(include=[])["ids"]
    for start in range(0, len(keys), BATCH_SIZE):
        with store_errors(READ_FAILED):
            response: Any = collection.get(ids=list(keys[start : start + BATCH_SIZE]), include=["embeddings"])
            ids = response["ids"]
            vectors = np.asarray(response["embeddings"], np.float32)
            if len(vectors) != len(ids):
                raise StoreError(f"{READ_FAILED}: {len(ids)} ids and {len(vectors)} vectors")
        yield from zip(ids, vectors, strict=True)


def drop_collection(client: ClientAPI, name: str) -> None:
    """Delete a collection with its vectors, if it exists. Raises StoreError when Chroma refuses."""
    from chromadb.errors import NotFoundError

    with store_errors("the vectors cannot be dropped"), suppress(NotFoundError):
        client.delete_collection(name)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
