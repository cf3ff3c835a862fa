"""A running CEMS for tests of pages: a database with the schema, whose HNSW index is cut short, and its address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from urllib.parse import parse_qs, quote, urlsplit

from tests.integration.postgres_server import LoadedChunk, load, running

CUT = 10
"""Rows that the database's HNSW scan comes back with."""


@contextmanager
def cut_short(name: str, memories: Sequence[tuple[str, str]], vectors: Sequence[Sequence[float]]) -> Iterator[str]:
    """The address of a database with these memories (id, text), a chunk each; its index returns `CUT` rows of a search."""
    with running() as server, server.cems(name, len(vectors[0])) as connection:
        for (key, text), vector in zip(memories, vectors, strict=True):
            load(connection, {"id": key, "content": text}, [LoadedChunk(text, vector)])
        settings: Mapping[str, str] = {"hnsw.ef_search": str(CUT), "enable_seqscan": "off", "enable_sort": "off"}
        for setting, value in settings.items():
            connection.execute(f"ALTER DATABASE {name} SET {setting} = {value}")
        connection.execute("ANALYZE")
        parts = urlsplit(server.uri)
        folder = parse_qs(parts.query)["host"][0]
        yield f"postgresql://{parts.username}@/{name}?host={quote(folder, safe='')}"
