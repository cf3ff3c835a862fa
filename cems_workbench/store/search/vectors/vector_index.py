"""Searching the vectors of one embedder: exact where there are few or a filter restricts them, Chroma's HNSW among all of many.

HNSW is approximate, and on small or filtered sets it drops hits that anybody can see are missing. Up to EXACT_ROWS candidates a matrix
product is exact and faster; the matrix is kept per filter. Where there are more vectors, they stand beside Chroma in 8 bits too
(vector_codes.py): a filter's candidates are all read there, and the nearest of them again in Chroma.

Without those codes (a store of an earlier version before its next refresh) a filter that many memories pass is applied after a deeper
search of the graph, because Chroma's own filtering first lists all ids that pass (50 ms a query for half of 20,000). Only when too few of
the deeper hits pass is Chroma asked to filter.

A memory with chunks has a vector for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cems_workbench.errors import StoreError
from cems_workbench.models.protocol import Float32
from cems_workbench.store.filter import ANY, Filter
from cems_workbench.store.search.entries import EntryId, key_of, parse_key, sort_key
from cems_workbench.store.search.hits import (
    ChunkHits,
    Hits,
    best_per_memory,
    group_starts,
    search_visible,
    top_memories,
    truncate_to_memories,
)
from cems_workbench.store.search.vectors.chroma import READ_FAILED, dimension, read_vectors, store_errors
from cems_workbench.store.search.vectors.quantized_vectors import QuantizedVectors

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

EXACT_ROWS = 10_000
"""Candidates up to which the search is exact."""
MAX_CACHED_FILTERS = 4
OVERSAMPLING = 1.5
"""How many times deeper than the share of passing memories demands the graph is searched before the hits are filtered."""


class VectorIndex:
    """The vectors as they were at the last refresh; open a new one after the next."""

    def __init__(
        self,
        collection: Collection | None,
        passing: Callable[[Filter], frozenset[EntryId]],
        read: Callable[[Collection, Sequence[str] | None], Mapping[str, Float32]],
        chunked: Mapping[str, Sequence[int]] = MappingProxyType({}),
        hidden: Set[str] = frozenset(),
        quantized: QuantizedVectors | None = None,
    ) -> None:
        """`collection` is None when nothing was embedded yet; `passing` lists its entries that pass a filter.

        `chunked` has, by memory id, the numbers of the chunks in it; other memories are there whole. `hidden` ids are never returned.
        `codes` has the same vectors in 8 bits, and answers what `passing` and `chunked` are asked. `read` gives the vectors of these keys,
        or all of them (None), as they are in the collection.
        """
        self._collection = collection
        self._list_passing = passing
        self._chunked = chunked
        self._hidden = hidden
        self._quantized = quantized
        self._read = read
        if quantized is not None:
            self._size, self._memories = len(quantized), quantized.memories(ANY)
        else:
            with store_errors(READ_FAILED):
                self._size = 0 if collection is None else collection.count()
            self._memories = self._size - sum(map(len, chunked.values())) + len(chunked)
        self._passing: dict[Filter, frozenset[EntryId]] = {}
        self._matrices: dict[Filter, _Matrix] = {}

    def __len__(self) -> int:
        """Number of vectors: one a chunk, and one for each memory that has none."""
        return self._size

    def search(self, embedding: ArrayLike, k: int, where: Filter = ANY) -> Hits:
        """(memory id, cosine similarity) of the k memories nearest to `embedding` (shape (dimension,)), each by its nearest chunk.

        Best first, ties by id. Raises StoreError when the vector has another length than the indexed ones or is not finite.
        """
        return best_per_memory(self.search_chunks(embedding, k, where))

    def search_chunks(self, embedding: ArrayLike, k: int, where: Filter = ANY) -> ChunkHits:
        """(memory id, cosine similarity, chunk) of the nearest chunks, down to the one that brings the k-th memory.

        Best first, ties by id and chunk. Raises as `search` does.
        """
        query = np.asarray(embedding, np.float32).reshape(-1)
        if self._collection is None or k <= 0 or not self._size:
            return []
        if not np.isfinite(query).all():
            raise StoreError("the query's embedding has values that are not finite")
        if len(query) != self._dimension:
            raise StoreError(f"the query's embedding has {len(query)} values, the index has {self._dimension}")
        # All filters that let everything pass are one, and share its matrix.
        where = ANY if where.trivial else where
        if self._quantized is not None and not where.trivial:
            quantized = self._quantized
            return search_visible(lambda depth: self._search_quantized(quantized, query, depth, where), k, self._hidden)
        search = self._search_exact if self._count(where) <= EXACT_ROWS else self._search_graph
        return search_visible(lambda depth: search(query, depth, where), k, self._hidden)

    def embeddings(self, ids: Sequence[str]) -> dict[str, Float32]:
        """One vector of length 1 a memory, each of shape (dimension,); ids without one are absent.

        Of a memory with several chunks it is the direction of their mean, which no order of chunks changes: what compares whole memories
        reads this. What compares a query with a memory takes the nearest of `chunk_embeddings`.
        """
        return {
            memory_id: mean_direction(list(parts.values())) for memory_id, parts in self.chunk_embeddings(ids).items()
        }

    def chunk_embeddings(self, ids: Sequence[str]) -> dict[str, dict[int | None, Float32]]:
        """By memory the vectors of its chunks by their number, or its own under None; ids without one are absent."""
        wanted = [memory_id for memory_id in dict.fromkeys(ids) if memory_id not in self._hidden]
        if self._collection is None or not wanted:
            return {}
        numbers = self._chunked.get if self._quantized is None else self._quantized.chunks_of
        entry_ids: list[EntryId] = [(memory_id, seq) for memory_id in wanted for seq in numbers(memory_id) or (None,)]
        vectors = dict(read_vectors(self._collection, [key_of(entry_id) for entry_id in entry_ids]))
        embeddings: dict[str, dict[int | None, Float32]] = {}
        for entry_id in entry_ids:
            vector = vectors.get(key_of(entry_id))
            if vector is not None:
                embeddings.setdefault(entry_id[0], {})[entry_id[1]] = vector
        return embeddings

    def ids(self, where: Filter = ANY) -> list[str]:
        """The memories with a vector that pass a filter, sorted."""
        if self._collection is None:
            return []
        if self._quantized is not None:
            ids = set(self._quantized.ids(where))
        elif where.trivial:
            with store_errors(READ_FAILED):
                names = self._collection.get(include=[])["ids"]
            ids = {parse_key(name)[0] for name in names}
        else:
            ids = {memory_id for memory_id, _ in self._entries_passing(where)}
        return sorted(ids - set(self._hidden))

    def approximate(self, embedding: ArrayLike, k: int, where: Filter = ANY) -> Hits:
        """What Chroma's graph alone answers, however few the candidates are; for comparison with the exact answer."""
        query = np.asarray(embedding, np.float32).reshape(-1)
        if self._collection is None or k <= 0 or not self._count(where):
            return []
        where = ANY if where.trivial else where
        return best_per_memory(search_visible(lambda depth: self._search_graph(query, depth, where), k, self._hidden))

    @cached_property
    def _dimension(self) -> int | None:
        if self._collection is None:
            return None
        # Chroma takes 0.07 s at a million to give any one vector.
        return dimension(self._collection) if self._quantized is None else self._quantized.dimension

    def _count(self, where: Filter) -> int:
        if self._quantized is not None:
            return self._quantized.count(where)
        return self._size if where.trivial else len(self._entries_passing(where))

    def _memory_count(self, where: Filter) -> int:
        """How many memories have a vector that passes."""
        if where.trivial:
            return self._memories
        if self._quantized is not None:
            return self._quantized.memories(where)
        return len({memory_id for memory_id, _ in self._entries_passing(where)})

    def _passes(self, entry_id: EntryId, where: Filter) -> bool:
        return (
            entry_id in self._entries_passing(where)
            if self._quantized is None
            else self._quantized.passes(entry_id, where)
        )

    def _entries_passing(self, where: Filter) -> frozenset[EntryId]:
        if where not in self._passing:
            _evict_oldest(self._passing)
            self._passing[where] = self._list_passing(where)
        return self._passing[where]

    def _search_quantized(
        self, quantized: QuantizedVectors, query: NDArray[np.float32], k: int, where: Filter
    ) -> ChunkHits:
        """Cosine with every vector that passes and may be among the nearest."""
        assert self._collection is not None
        unit = query / max(float(np.linalg.norm(query)), 1e-12)
        near = quantized.candidates(unit, k, where)
        found = list(read_vectors(self._collection, [key_of(entry_id) for entry_id in near]))
        if not found:
            return []
        matrix = np.stack([vector for _, vector in found])
        cosines = (matrix @ unit) / np.maximum(np.linalg.norm(matrix, axis=1), 1e-12)
        entry_ids = [parse_key(name) for name, _ in found]
        hits = [
            (entry_id[0], cosine, entry_id[1]) for entry_id, cosine in zip(entry_ids, cosines.tolist(), strict=True)
        ]
        return truncate_to_memories(sorted(hits, key=lambda hit: (-hit[1], *sort_key((hit[0], hit[2])))), k)

    def _search_exact(self, query: NDArray[np.float32], k: int, where: Filter) -> ChunkHits:
        """Cosine with every vector that passes."""
        if where not in self._matrices:
            _evict_oldest(self._matrices)
            self._matrices[where] = self._load(where)
        rows = self._matrices[where]
        if not rows.ids:
            return []
        cosines = rows.matrix @ (query / max(float(np.linalg.norm(query)), 1e-12))
        best = top_memories(cosines, rows.starts, k)
        positions = best.tolist()
        return list(
            zip(
                [rows.ids[i] for i in positions],
                cosines[best].tolist(),
                [rows.chunks[i] for i in positions],
                strict=True,
            )
        )

    def _load(self, where: Filter) -> _Matrix:
        """The vectors that pass, in the order of their entry_ids, each of length 1."""
        assert self._collection is not None
        keys = None if where.trivial else sorted(map(key_of, self._entries_passing(where)))
        vectors = {} if keys == [] else self._read(self._collection, keys)
        if not vectors:
            return _Matrix([], [], None, np.empty((0, 0), np.float32))
        rows = sorted(((parse_key(name), vector) for name, vector in vectors.items()), key=lambda row: sort_key(row[0]))
        matrix = np.stack([vector for _, vector in rows])
        ids = [memory_id for (memory_id, _), _ in rows]
        units = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
        return _Matrix(ids, [seq for (_, seq), _ in rows], group_starts(ids), units)

    def _search_graph(self, query: NDArray[np.float32], k: int, where: Filter) -> ChunkHits:
        """Approximate search of the whole collection, or of what passes the filter."""
        # As many rows as k memories have on average, and more while that was not enough.
        chunked = self._size > self._memories
        rows = math.ceil(k * self._size / max(1, self._memories)) if chunked else k
        count, memories = self._count(where), self._memory_count(where)
        depth = rows if where.trivial else math.ceil(OVERSAMPLING * rows * self._size / max(1, count))
        while True:
            hits = self._query(query, depth, None)
            if not where.trivial:
                hits = [hit for hit in hits if self._passes((hit[0], hit[2]), where)]
            found = truncate_to_memories(hits, k)
            enough = len({memory_id for memory_id, _, _ in found}) >= min(k, memories)
            if enough or depth >= self._size or (where.trivial and not chunked):
                return found
            if not where.trivial:
                break
            depth *= 2
        while True:
            found = truncate_to_memories(self._query(query, rows, where), k)
            enough = len({memory_id for memory_id, _, _ in found}) >= min(k, memories)
            if enough or not chunked or rows >= count:
                return found
            rows *= 2

    def _query(self, query: NDArray[np.float32], k: int, where: Filter | None) -> ChunkHits:
        assert self._collection is not None
        with store_errors("vector search failed"):
            response: Any = self._collection.query(
                query_embeddings=query[None, :],
                n_results=min(k, self._size),
                where=where.chroma() if where else None,
                include=["distances"],
            )
        rows = zip(map(parse_key, response["ids"][0]), response["distances"][0], strict=True)
        hits: ChunkHits = [(memory_id, 1.0 - distance, seq) for (memory_id, seq), distance in rows]
        return sorted(hits, key=lambda hit: (-hit[1], *sort_key((hit[0], hit[2]))))


@dataclass(frozen=True, slots=True, eq=False)
class _Matrix:
    """Vectors by id and chunk: the memory and chunk of each row, where each memory's begin, and the rows themselves."""

    ids: list[str]
    chunks: list[int | None]
    starts: NDArray[np.intp] | None
    matrix: Float32


def mean_direction(vectors: Sequence[Float32]) -> Float32:
    """The direction of the mean of unit vectors; the first of them where they cancel out. A single one is itself."""
    if len(vectors) == 1:
        return vectors[0]
    mean = np.mean(np.stack(vectors), axis=0, dtype=np.float64)
    length = float(np.linalg.norm(mean))
    return vectors[0] if length < 1e-6 else np.asarray(mean / length, np.float32)


def _evict_oldest(cache: dict[Filter, Any]) -> None:
    """Drop the oldest entry of a full cache."""
    if len(cache) >= MAX_CACHED_FILTERS:
        cache.pop(next(iter(cache)), None)
