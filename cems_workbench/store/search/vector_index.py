"""Searching the vectors of one embedder: exact where the candidates are few, Chroma's HNSW where they are many.

HNSW is approximate, and on small or narrowly filtered sets it drops hits that anybody can see are missing. Up to
EXACT_ROWS candidates a matrix product is exact and faster, so it is used there; the matrix is kept per filter.

A filter that many memories pass is applied after a deeper search, because Chroma's own filtering first lists all
ids that pass (50 ms a query for half of 20,000). Only when too few of the deeper hits pass is Chroma asked to filter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cems_workbench.errors import StoreError
from cems_workbench.models.protocol import Float32
from cems_workbench.store.filter import ANY, Filter
from cems_workbench.store.search.hits import Hits, top_k, visible_hits

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

EXACT_ROWS = 10_000
"""Candidates up to which the search is exact."""
CACHED_FILTERS = 4
DEEPER = 1.5
"""How many times deeper than the share of passing memories demands the graph is searched before the hits are filtered."""


class VectorIndex:
    """The vectors as they were at the last refresh; open a new one after the next."""

    def __init__(
        self,
        collection: Collection | None,
        passing: Callable[[Filter], frozenset[str]],
        hidden: Set[str] = frozenset(),
    ) -> None:
        """`collection` is None when nothing was embedded yet; `passing` lists its ids that pass a filter.

        `hidden` ids are never returned.
        """
        self._collection = collection
        self._list_passing = passing
        self._hidden = hidden
        self._size = 0 if collection is None else collection.count()
        self._passing: dict[Filter, frozenset[str]] = {}
        self._matrices: dict[Filter, tuple[list[str], Float32]] = {}

    def __len__(self) -> int:
        """Number of vectors."""
        return self._size

    def search(self, embedding: ArrayLike, k: int, where: Filter = ANY) -> Hits:
        """(memory id, cosine similarity) of the k nearest to `embedding` (shape (dimension,)), best first, ties by id.

        Raises StoreError when the vector has another length than the indexed ones or is not finite.
        """
        query = np.asarray(embedding, np.float32).reshape(-1)
        if self._collection is None or k <= 0 or not self._size:
            return []
        if not np.isfinite(query).all():
            raise StoreError("the query's embedding has values that are not finite")
        # All filters that let everything pass are one, and share its matrix.
        where = ANY if where.trivial else where
        search = self._search_exact if self._count(where) <= EXACT_ROWS else self._search_graph
        return visible_hits(lambda depth: search(query, depth, where), k, self._hidden)

    def embeddings(self, ids: Sequence[str]) -> dict[str, Float32]:
        """The vectors of these memories, each of shape (dimension,); ids without one are absent."""
        wanted = [memory_id for memory_id in dict.fromkeys(ids) if memory_id not in self._hidden]
        if self._collection is None or not wanted:
            return {}
        answer = self._collection.get(ids=wanted, include=["embeddings"])
        rows: Any = answer["embeddings"]
        by_id = dict(zip(answer["ids"], np.asarray(rows, np.float32), strict=True))
        return {memory_id: by_id[memory_id] for memory_id in wanted if memory_id in by_id}

    def ids(self, where: Filter = ANY) -> list[str]:
        """The memories with a vector that pass a filter, sorted."""
        if self._collection is None:
            return []
        ids = self._collection.get(include=[])["ids"] if where.trivial else self._ids_passing(where)
        return sorted(set(ids) - set(self._hidden))

    def approximate(self, embedding: ArrayLike, k: int, where: Filter = ANY) -> Hits:
        """What Chroma's graph alone answers, however few the candidates are; for comparison with the exact answer."""
        query = np.asarray(embedding, np.float32).reshape(-1)
        if self._collection is None or k <= 0 or not self._count(where):
            return []
        where = ANY if where.trivial else where
        return visible_hits(lambda depth: self._search_graph(query, depth, where), k, self._hidden)

    def _count(self, where: Filter) -> int:
        return self._size if where.trivial else len(self._ids_passing(where))

    def _ids_passing(self, where: Filter) -> frozenset[str]:
        if where not in self._passing:
            _make_room(self._passing)
            self._passing[where] = self._list_passing(where)
        return self._passing[where]

    def _search_exact(self, query: NDArray[np.float32], k: int, where: Filter) -> Hits:
        """Cosine with every vector that passes."""
        if where not in self._matrices:
            _make_room(self._matrices)
            self._matrices[where] = self._load(where)
        ids, matrix = self._matrices[where]
        if not ids:
            return []
        if matrix.shape[1] != len(query):
            raise StoreError(f"the query's embedding has {len(query)} values, the index has {matrix.shape[1]}")
        cosines = matrix @ (query / max(float(np.linalg.norm(query)), 1e-12))
        best = top_k(cosines, k)
        return list(zip([ids[position] for position in best.tolist()], cosines[best].tolist(), strict=True))

    def _load(self, where: Filter) -> tuple[list[str], Float32]:
        """Ids in their order, and unit vectors of shape (ids, dimension)."""
        assert self._collection is not None
        wanted = None if where.trivial else sorted(self._ids_passing(where))
        if wanted == []:
            return [], np.empty((0, 0), np.float32)
        rows = self._collection.get(ids=wanted, include=["embeddings"])
        vectors: Any = rows["embeddings"]
        matrix = np.asarray(vectors, np.float32)[np.argsort(rows["ids"])]
        return sorted(rows["ids"]), matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)

    def _search_graph(self, query: NDArray[np.float32], k: int, where: Filter) -> Hits:
        """Approximate search of the whole collection, or of what passes the filter."""
        if where.trivial:
            return self._query(query, k, None)
        passing = self._ids_passing(where)
        depth = math.ceil(DEEPER * k * self._size / len(passing))
        hits = [hit for hit in self._query(query, depth, None) if hit[0] in passing]
        return hits[:k] if len(hits) >= min(k, len(passing)) else self._query(query, k, where)

    def _query(self, query: NDArray[np.float32], k: int, where: Filter | None) -> Hits:
        from chromadb.errors import ChromaError

        assert self._collection is not None
        try:
            answer: Any = self._collection.query(
                query_embeddings=query[None, :],
                n_results=min(k, self._size),
                where=where.chroma() if where else None,
                include=["distances"],
            )
        except ChromaError as error:
            raise StoreError(f"vector search failed: {error}") from error
        rows = zip(answer["ids"][0], answer["distances"][0], strict=True)
        return sorted(((memory_id, 1.0 - distance) for memory_id, distance in rows), key=lambda hit: (-hit[1], hit[0]))


def _make_room(cache: dict[Filter, Any]) -> None:
    """Drop the oldest entry of a full cache."""
    if len(cache) >= CACHED_FILTERS:
        cache.pop(next(iter(cache)), None)
