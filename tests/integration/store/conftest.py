"""The store with Chroma, and with processes that are killed while they hold it."""

from tests.small_store import embedder, empty_store, other_embedder, rows, store

__all__ = ["embedder", "empty_store", "other_embedder", "rows", "store"]
