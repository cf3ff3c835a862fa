"""The store with Chroma, and with processes that are killed while they hold it."""

from tests.small_store import embedder, empty_store, other_embedder, rows, store, store_of_schema

__all__ = ["embedder", "empty_store", "other_embedder", "rows", "store", "store_of_schema"]
