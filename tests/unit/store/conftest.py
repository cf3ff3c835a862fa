"""The store itself, without an index over vectors and without another process."""

from tests.small_store import embedder, empty_store, other_embedder, rows, store

__all__ = ["embedder", "empty_store", "other_embedder", "rows", "store"]
