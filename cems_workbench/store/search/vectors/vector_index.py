"""Vector search of one embedder: exact for few or filtered vectors, HNSW for unfiltered searches of many.

HNSW is approximate and misses obvious hits on small or filtered sets. Up to EXACT_ROWS vectors a matrix product is exact and faster;
the matrix is cached per filter. Above that, filtered searches scan the quantized vectors (quantized_vectors.py) and rescore the nearest.

Without quantized vectors (a store of an earlier version before its next refresh) a filter is applied after a deeper HNSW search,
because Chroma's own filtering first lists all passing ids (50 ms a query for half of 20,000); it is used only if too few hits pass.

A memory with chunks has one vector per chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
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
"""The search is exact up to this many vectors."""
MAX_CACHED_FILTERS = 4
NEIGHBOUR_BATCH = 256
"""Memories whose neighbours are searched at once."""
OVERSAMPLING = 1.5
"""Factor on the search depth that the share of passing memories demands, before the hits are filtered."""


class VectorIndex:
    """The vectors as of the last refresh; open a new index after the next one."""

    def __init__(
        self,
        collection: Collection | None,
        passing: Callable[[Filter], frozenset[EntryId]],
        read: Callable[[Collection, Sequence[str] | None], Mapping[str, Float32]],
        chunked: Mapping[str, Sequence[int]] = MappingProxyType({}),
        hidden: Set[str] = frozenset(),
        quantized: QuantizedVectors | None = None,
    ) -> None:
        """`collection` is None if nothing was embedded yet; `passing` lists its entries that pass a filter.

        `chunked` has the chunk numbers by memory id; other memories are embedded whole. `hidden` ids are never returned. `quantized`
        has the same vectors as int8 and replaces `passing` and `chunked`. `read` returns the vectors of these keys, or of all (None).
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
        """Number of vectors: one per chunk, and one per memory without chunks."""
        return self._size

    def search(self, embedding: ArrayLike, k: int, where: Filter = ANY) -> Hits:
        """(memory id, cosine similarity) of the k memories nearest to `embedding` (shape (dimension,)), each by its nearest chunk.

        Best first, ties by id. Raises StoreError if the vector has another dimension than the index or is not finite.
        """
        return best_per_memory(self.search_chunks(embedding, k, where))

    def search_chunks(self, embedding: ArrayLike, k: int, where: Filter = ANY) -> ChunkHits:
        """(memory id, cosine similarity, chunk) of the nearest chunks, as many as cover k memories.

        Best first, ties by id and chunk. Raises as `search` does.
        """
        query = np.asarray(embedding, np.float32).reshape(-1)
        if self._collection is None or k <= 0 or not self._size:
            return []
        if not np.isfinite(query).all():
            raise StoreError("the query's embedding has values that are not finite")
        if len(query) != self._dimension:
            raise StoreError(f"the query's embedding has {len(query)} values, the index has {self._dimension}")
        # All trivial filters share one matrix.
        where = ANY if where.trivial else where
        if self._quantized is not None and not where.trivial:
            quantized = self._quantized
            return search_visible(lambda depth: self._search_quantized(quantized, query, depth, where), k, self._hidden)
        search = self._search_exact if self._count(where) <= EXACT_ROWS else self._search_graph
        return search_visible(lambda depth: search(query, depth, where), k, self._hidden)

    def embeddings(self, ids: Sequence[str]) -> dict[str, Float32]:
        """One unit vector per memory, shape (dimension,); ids without one are absent.

        For a memory with several chunks it is the direction of their mean: use it to compare memories with each other. To compare a query
        with a memory, use the nearest of `chunk_embeddings`.
        """
        return {
            memory_id: mean_direction(list(parts.values())) for memory_id, parts in self.chunk_embeddings(ids).items()
        }

    def chunk_embeddings(self, ids: Sequence[str]) -> dict[str, dict[int | None, Float32]]:
        """By memory id its chunks' vectors by number, or its own under None; ids without vectors are absent."""
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

    def neighbours(self, ids: Sequence[str], k: int) -> Iterator[tuple[str, Hits]]:
        """(memory id, its k nearest other memories, best first) for those of `ids` that have a vector, in their order.

        Each memory is compared as in `embeddings` with the others' nearest chunks. In batches of NEIGHBOUR_BATCH: one matrix product up
        to EXACT_ROWS vectors, one request to the HNSW graph above. Memory is bounded by the batch.
        """
        for start in range(0, len(ids), NEIGHBOUR_BATCH):
            vectors = self.embeddings(ids[start : start + NEIGHBOUR_BATCH])
            if not vectors:
                continue
            # One more, since a memory is its own nearest; hidden ones are dropped afterwards.
            found = self._search_batch(np.stack(list(vectors.values())), k + 1 + len(self._hidden))
            for memory_id, hits in zip(vectors, found, strict=True):
                others = [hit for hit in best_per_memory(hits) if hit[0] != memory_id and hit[0] not in self._hidden]
                yield memory_id, others[:k]

    def _search_batch(self, units: Float32, k: int) -> list[ChunkHits]:
        """The chunks that cover the k nearest memories of each of `units`, shape (queries, dimension)."""
        if self._count(ANY) > EXACT_ROWS:
            return self._query_batch(units, math.ceil(k * self._size / max(1, self._memories)))
        if ANY not in self._matrices:
            _evict_oldest(self._matrices)
            self._matrices[ANY] = self._load(ANY)
        rows = self._matrices[ANY]
        cosines = rows.matrix @ units.T
        found: list[ChunkHits] = []
        for column in range(len(units)):
            best = top_memories(cosines[:, column], rows.starts, k).tolist()
            found.append([(rows.ids[i], float(cosines[i, column]), rows.chunks[i]) for i in best])
        return found

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
        """The hits of Chroma's HNSW graph alone, for comparison with the exact search."""
        query = np.asarray(embedding, np.float32).reshape(-1)
        if self._collection is None or k <= 0 or not self._count(where):
            return []
        where = ANY if where.trivial else where
        return best_per_memory(search_visible(lambda depth: self._search_graph(query, depth, where), k, self._hidden))

    @cached_property
    def _dimension(self) -> int | None:
        if self._collection is None:
            return None
        # Reading one vector takes Chroma 0.07 s at a million.
        return dimension(self._collection) if self._quantized is None else self._quantized.dimension

    def _count(self, where: Filter) -> int:
        if self._quantized is not None:
            return self._quantized.count(where)
        return self._size if where.trivial else len(self._entries_passing(where))

    def _memory_count(self, where: Filter) -> int:
        """Number of memories with a passing vector."""
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
        """Exact cosines of the quantized search's candidates."""
        assert self._collection is not None
        # The floor keeps a zero vector finite.
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
        """Exact cosines of every passing vector."""
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
        """The passing vectors, normalised, sorted by memory id and chunk."""
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
        """Approximate search of the whole collection, filtered before or after."""
        # Start with the rows that k memories have on average, and double while they cover fewer memories.
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
            # The best chunks may all be of a few memories.
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
        return _chunk_hits(response["ids"][0], response["distances"][0])

    def _query_batch(self, queries: NDArray[np.float32], k: int) -> list[ChunkHits]:
        assert self._collection is not None
        with store_errors("vector search failed"):
            response: Any = self._collection.query(
                query_embeddings=queries, n_results=min(k, self._size), include=["distances"]
            )
        return [_chunk_hits(*row) for row in zip(response["ids"], response["distances"], strict=True)]


def _chunk_hits(keys: Sequence[str], distances: Sequence[float]) -> ChunkHits:
    """Chroma's hits of one query, which have 1 - cosine, in our order."""
    rows = zip(map(parse_key, keys), distances, strict=True)
    hits: ChunkHits = [(memory_id, 1.0 - distance, seq) for (memory_id, seq), distance in rows]
    return sorted(hits, key=lambda hit: (-hit[1], *sort_key((hit[0], hit[2]))))


@dataclass(frozen=True, slots=True, eq=False)
class _Matrix:
    """Unit vectors sorted by memory id and chunk; `starts` has the first row of each memory."""

    ids: list[str]
    chunks: list[int | None]
    starts: NDArray[np.intp] | None
    matrix: Float32


def mean_direction(vectors: Sequence[Float32]) -> Float32:
    """The direction of the mean of unit vectors; the first one if they cancel out."""
    if len(vectors) == 1:
        return vectors[0]
    mean = np.mean(np.stack(vectors), axis=0, dtype=np.float64)
    length = float(np.linalg.norm(mean))
    # Vectors that cancel out have no mean direction.
    return vectors[0] if length < 1e-6 else np.asarray(mean / length, np.float32)


def _evict_oldest(cache: dict[Filter, Any]) -> None:
    """Drop the oldest entry of a full cache."""
    if len(cache) >= MAX_CACHED_FILTERS:
        cache.pop(next(iter(cache)), None)
