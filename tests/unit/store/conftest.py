"""The store itself, without an index over vectors and without another process."""

from tests.small_store import embedder, empty_store, other_embedder, rows, store, store_of_schema

__all__ = ["embedder", "empty_store", "other_embedder", "rows", "store", "store_of_schema"]
