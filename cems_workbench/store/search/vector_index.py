"""Vectors of one embedder: their search, exact at every size and with every filter, and their refresh, in durable batches.

Up to EXACT_ROWS vectors one matrix product is fastest; the matrix is cached per filter. Above that int8 codes are scanned and the nearest
rescored in single precision (vector_segments.py). Chroma's HNSW graph is searched only where a config asks for it, and for comparison.

A memory with chunks has one vector per chunk. Each batch is written to a segment first and to the `embedded` table second, so a crash in
between repeats it and never skips it. A cancelled refresh keeps its batches, and the next one continues.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cems_workbench.errors import StoreError
from cems_workbench.models.embedder_match import other_dimension
from cems_workbench.models.protocol import Embedder, Float32
from cems_workbench.progress import Progress
from cems_workbench.store import memories, sources
from cems_workbench.store.database import Database
from cems_workbench.store.filter import ANY, Filter
from cems_workbench.store.precomputed_embeddings import KnownVectors
from cems_workbench.store.rows import portions
from cems_workbench.store.search import embedded
from cems_workbench.store.search import entries as entries_table
from cems_workbench.store.search.entries import (
    ChunkHits,
    Entry,
    EntryId,
    Hits,
    best_per_memory,
    parse_key,
    search_visible,
    sort_key,
    top_memories,
    truncate_to_memories,
)
from cems_workbench.store.search.vector_files import VectorFiles, VectorRecord
from cems_workbench.store.search.vector_segments import Matrix, SegmentVectors

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection


EXACT_ROWS = 10_000
"""Up to this many vectors are compared as a matrix in single precision."""
MAX_CACHED_FILTERS = 4
NEIGHBOUR_BATCH = 256
"""Memories whose neighbours are searched at once."""


class VectorIndex:
    """The vectors as of the last refresh; open a new index after the next one."""

    def __init__(
        self,
        vectors: SegmentVectors | None,
        hidden: Set[str] = frozenset(),
        graph: Callable[[int | None], Collection] | None = None,
    ) -> None:
        """`vectors` is None if nothing was embedded yet; `hidden` ids are never returned. `graph` returns Chroma's copy
        of the vectors, ready to be searched with an ef_search."""
        self._vectors = SegmentVectors([]) if vectors is None else vectors
        self._hidden = hidden
        self._graph = graph
        self._matrices: dict[Filter, Matrix] = {}

    def __len__(self) -> int:
        """Number of vectors: one per chunk, and one per memory without chunks."""
        return len(self._vectors)

    def search(self, embedding: ArrayLike, k: int, where: Filter = ANY) -> Hits:
        """(memory id, cosine similarity) of the k memories nearest to `embedding` (shape (dimension,)), each by its
        nearest chunk. Best first, ties by id. Raises StoreError if the vector has another dimension than the index or
        is not finite."""
        return best_per_memory(self.search_chunks(embedding, k, where))

    def search_chunks(self, embedding: ArrayLike, k: int, where: Filter = ANY) -> ChunkHits:
        """(memory id, cosine similarity, chunk) of the nearest chunks, as many as cover k memories. Best first, ties by
        id and chunk. Raises as `search` does."""
        unit = self._unit(embedding)
        if k <= 0 or not len(self):
            return []
        # All trivial filters share one matrix.
        where = ANY if where.trivial else where
        search = self._search_matrix if len(self) <= EXACT_ROWS else self._vectors.search
        return search_visible(lambda depth: search(unit, depth, where), k, self._hidden)

    def graph_chunks(
        self, embedding: ArrayLike, k: int, where: Filter = ANY, ef_search: int | None = None
    ) -> ChunkHits:
        """As `search_chunks`, of Chroma's HNSW graph alone, which misses some. The graph is refreshed first. Raises
        StoreError. `ef_search` is None for the collection's own; HNSW takes one below the rows that are asked for as
        that many."""
        unit = self._unit(embedding)
        count = self._vectors.count(where)
        if self._graph is None or k <= 0 or not count:
            return []
        collection = self._graph(ef_search)
        memories = self._vectors.memories(where)
        # Start with the rows that k memories have on average, and double while they cover fewer memories.
        rows = math.ceil(k * count / max(1, memories))
        while True:
            hits = _query(collection, unit, min(max(rows, ef_search or 0), count), where)[:rows]
            visible = truncate_to_memories([hit for hit in hits if hit[0] not in self._hidden], k)
            covered = len({memory_id for memory_id, _, _ in visible})
            if covered >= min(k, memories) or rows >= count or (count == memories and not self._hidden):
                return visible
            rows *= 2

    def approximate(self, embedding: ArrayLike, k: int, where: Filter = ANY, ef_search: int | None = None) -> Hits:
        """The hits of Chroma's HNSW graph by memory, for comparison with the exact search."""
        return best_per_memory(self.graph_chunks(embedding, k, where, ef_search))

    def with_graph(self, ef_search: int) -> VectorIndex:
        """This index with the graph as it is now, for many searches with this ef_search or a larger one. Raises StoreError."""
        found = VectorIndex(self._vectors, self._hidden)
        if self._graph is not None:
            collection = self._graph(ef_search)
            found._graph = lambda _: collection
        return found

    def without(self, ids: Set[str]) -> VectorIndex:
        """This index as it would be without these memories; nothing is written."""
        return VectorIndex(self._vectors, self._hidden | ids, self._graph)

    def keeps(self, memory_id: str) -> bool:
        """Whether its files have a vector of a memory, deleted or not: a deleted one goes when segments are merged."""
        return self._vectors.keeps(memory_id)

    def embeddings(self, ids: Sequence[str]) -> dict[str, Float32]:
        """One unit vector per memory, shape (dimension,); ids without one are absent. For a memory with several chunks
        it is the direction of their mean: use it to compare memories with each other. To compare a query with a memory,
        use the nearest of `chunk_embeddings`."""
        return {
            memory_id: mean_direction(list(parts.values())) for memory_id, parts in self.chunk_embeddings(ids).items()
        }

    def chunk_embeddings(self, ids: Sequence[str]) -> dict[str, dict[int | None, Float32]]:
        """By memory id its chunks' vectors by number, or its own under None; ids without vectors are absent."""
        return self._vectors.by_memory([each for each in dict.fromkeys(ids) if each not in self._hidden])

    def neighbours(self, ids: Sequence[str], k: int) -> Iterator[tuple[str, Hits]]:
        """(memory id, its k nearest other memories, best first) for those of `ids` that have a vector, in their order.
        Each memory is compared as in `embeddings` with the others' nearest chunks. In batches of NEIGHBOUR_BATCH, one
        matrix product each up to EXACT_ROWS vectors. Memory is bounded by the batch."""
        for some in portions(ids, NEIGHBOUR_BATCH):
            vectors = self.embeddings(some)
            if not vectors:
                continue
            found = self.search_many(list(vectors.values()), k + 1)  # one more, since a memory is its own nearest
            for memory_id, hits in zip(vectors, found, strict=True):
                yield memory_id, [hit for hit in hits if hit[0] != memory_id][:k]

    def search_many(self, units: Sequence[Float32], k: int) -> list[Hits]:
        """`search` of each of `units`, vectors at length 1, by one matrix product up to EXACT_ROWS vectors. Memory is bounded by them."""
        if not units or not len(self):
            return [[] for _ in units]
        found = self._search_batch(np.stack(units), k + len(self._hidden))
        return [[hit for hit in best_per_memory(hits) if hit[0] not in self._hidden][:k] for hits in found]

    def ids(self, where: Filter = ANY) -> list[str]:
        """The memories with a vector that pass a filter, sorted."""
        return sorted(set(self._vectors.ids(where)) - set(self._hidden))

    def _unit(self, embedding: ArrayLike) -> Float32:
        """The query at length 1. Raises as `search` does."""
        query = np.asarray(embedding, np.float32).reshape(-1)
        if not np.isfinite(query).all():
            raise StoreError("the query's embedding has values that are not finite")
        if len(self) and len(query) != self._vectors.dimension:
            raise StoreError(f"the query's embedding has {len(query)} values, the index has {self._vectors.dimension}")
        # The floor keeps a zero vector finite.
        unit: Float32 = query / max(float(np.linalg.norm(query)), 1e-12)
        return unit

    def _matrix(self, where: Filter) -> Matrix:
        """The passing vectors at length 1, cached."""
        if where not in self._matrices:
            if len(self._matrices) >= MAX_CACHED_FILTERS:
                self._matrices.pop(next(iter(self._matrices)), None)
            rows = self._vectors.matrix(where)
            lengths = np.maximum(np.linalg.norm(rows.vectors, axis=1, keepdims=True), 1e-12)
            self._matrices[where] = Matrix(rows.ids, rows.chunks, rows.starts, rows.vectors / lengths)
        return self._matrices[where]

    def _search_matrix(self, unit: Float32, k: int, where: Filter) -> ChunkHits:
        rows = self._matrix(where)
        return _top(rows, rows.vectors @ unit, k) if rows.ids else []

    def _search_batch(self, units: Float32, k: int) -> list[ChunkHits]:
        """The chunks that cover the k nearest memories of each of `units`, shape (queries, dimension)."""
        if len(self) > EXACT_ROWS:
            return [self._vectors.search(unit / max(float(np.linalg.norm(unit)), 1e-12), k, ANY) for unit in units]
        rows = self._matrix(ANY)
        cosines = rows.vectors @ units.T
        return [_top(rows, cosines[:, column], k) for column in range(len(units))]


def _top(rows: Matrix, cosines: NDArray[np.float32], k: int) -> ChunkHits:
    """The best chunks by these cosines, as many as cover k memories."""
    best = top_memories(cosines, rows.starts, k)
    scores = cosines[best].tolist()
    return [(rows.ids[i], score, rows.chunks[i]) for i, score in zip(best.tolist(), scores, strict=True)]


def _query(collection: Collection, unit: Float32, rows: int, where: Filter) -> ChunkHits:
    """Chroma's hits of one query, which have 1 - cosine, in our order. Raises StoreError."""
    from cems_workbench.store.search.chroma import store_errors

    with store_errors("vector search failed"):
        response: Any = collection.query(
            query_embeddings=unit[None, :],
            n_results=max(1, rows),
            where=None if where.trivial else where.chroma(),
            include=["distances"],
        )
    found = zip(map(parse_key, response["ids"][0]), response["distances"][0], strict=True)
    hits: ChunkHits = [(memory_id, 1.0 - distance, seq) for (memory_id, seq), distance in found]
    return sorted(hits, key=lambda hit: (-hit[1], *sort_key((hit[0], hit[2]))))


def mean_direction(vectors: Sequence[Float32]) -> Float32:
    """The direction of the mean of unit vectors; the first one if they cancel out."""
    if len(vectors) == 1:
        return vectors[0]
    mean = np.mean(np.stack(vectors), axis=0, dtype=np.float64)
    length = float(np.linalg.norm(mean))
    # Vectors that cancel out have no mean direction.
    return vectors[0] if length < 1e-6 else np.asarray(mean / length, np.float32)


BATCH_TEXTS = 512
BATCH_CHARS = 8_000_000
"""A batch has at most this many texts, and about this many characters."""
WRITE_ROWS, WRITE_SECONDS = 8_192, 2.0
"""Vectors are written when there are this many, or after this time: each write makes a segment, which is merged later."""

UNIT_TOLERANCE = 1e-6
"""A vector's length may differ from 1 by this much."""


def refresh_vectors(
    database: Database,
    files: VectorFiles,
    record: VectorRecord,
    embedder: Embedder,
    progress: Progress,
    precomputed: KnownVectors | None = None,
) -> tuple[int, int, int]:
    """Embed, relabel and remove pending entries; returns the number of each.

    With a version in `record`, memories that did not change later are skipped. An entry with a vector from its source uses that one; a
    whole memory in `precomputed` uses that one, if it matches the embedder (else InputError). Raises what `progress` raises (Cancelled),
    StoreError if the embedder returns unusable vectors, and EmbedderMismatchError if its dimension differs from the collection's.
    """
    with database.reading() as cursor:
        changed = None if record.version is None else memories.changed_since(cursor, record.version)
        pending = embedded.pending(cursor, record.collection, changed)
    if pending.embed and record.dimension not in (None, embedder.dimension):
        raise other_dimension(embedder.model_id, record.dimension or 0, embedder.model_id, embedder.dimension)
    for entry_ids in portions(pending.remove, WRITE_ROWS):
        files.remove(entry_ids)
    for entry_ids in portions(pending.relabel, WRITE_ROWS):
        files.relabel(_read(database, entry_ids))
    writer = _Writer(files)
    try:
        count = _encode(database, writer, embedder, pending.embed, progress, precomputed)
    finally:
        # Also what was encoded before an error or a cancellation.
        writer.write()
    return count, len(pending.relabel), len(pending.remove)


class _Writer:
    def __init__(self, files: VectorFiles) -> None:
        self._files = files
        self._batches: list[tuple[Sequence[Entry], Float32]] = []
        self._written = time.monotonic()

    def add(self, entries: Sequence[Entry], vectors: Float32) -> None:
        lengths = np.linalg.norm(vectors, axis=1)
        # A server may return longer ones. The others stay as they are, to the last digit.
        unit = np.abs(lengths - 1) <= UNIT_TOLERANCE
        self._batches.append((entries, np.where(unit[:, None], vectors, _normalise(vectors))))
        rows = sum(len(entries) for entries, _ in self._batches)
        if rows >= WRITE_ROWS or time.monotonic() - self._written >= WRITE_SECONDS:
            self.write()

    def write(self) -> None:
        batches, self._batches = self._batches, []
        if batches:
            entries = [entry for own, _ in batches for entry in own]
            self._files.put(entries, np.concatenate([vectors for _, vectors in batches]))
        self._written = time.monotonic()


def _encode(
    database: Database,
    writer: _Writer,
    embedder: Embedder,
    entry_ids: Sequence[EntryId],
    progress: Progress,
    precomputed: KnownVectors | None,
) -> int:
    """Embed these entries; returns how many texts were encoded."""
    done = embedded_now = 0
    for entries in (
        part for step in portions(entry_ids, BATCH_TEXTS) for part in _split_by_size(_read(database, step))
    ):
        progress("embedding memories", done, len(entry_ids))
        source_vectors, without = database.read(sources.given_vectors, {entry.id: entry.text_sha for entry in entries})
        from_source = [entry for entry in entries if entry.id in source_vectors]
        if from_source:
            vectors = np.stack([source_vectors[entry.id] for entry in from_source])
            # A source's vectors need not have length 1; those of an embedder have it.
            writer.add(from_source, _normalise(_validate(vectors, len(from_source), embedder)))
        missing = [entry for entry in entries if entry.id not in source_vectors and entry.id not in without]
        if precomputed is not None:
            known = precomputed.of(missing, embedder)
            if ready := [entry for entry in missing if entry.id in known]:
                vectors = np.stack([known[entry.id] for entry in ready])
                writer.add(ready, _validate(vectors, len(ready), embedder))
            missing = [entry for entry in missing if entry.id not in known]
        if missing:
            texts = database.read(
                sources.embedded_texts,
                [sources.TextPart(entry.id, entry.title, entry.content, entry.text) for entry in missing],
            )
            vectors = embedder.encode(texts, partial(_within, progress, done, len(entry_ids)))
            writer.add(missing, _validate(vectors, len(missing), embedder))
        embedded_now += len(missing)
        done += len(entries)
    if entry_ids:
        progress("embedding memories", done, len(entry_ids))
    return embedded_now


def _normalise(vectors: Float32) -> Float32:
    """Normalise each vector; a zero vector stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Float32 = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return unit


def _within(progress: Progress, before: int, total: int, _: str, done: int, __: int) -> None:
    progress("embedding memories", before + done, total)


def _validate(vectors: Float32, rows: int, embedder: Embedder) -> Float32:
    if vectors.shape != (rows, embedder.dimension):
        raise StoreError(f"{embedder.model_id} returned shape {vectors.shape} for {rows} texts")
    if not np.isfinite(vectors).all():
        raise StoreError(f"{embedder.model_id} returned vectors with values that are not finite")
    return np.ascontiguousarray(vectors, np.float32)


def _read(database: Database, entry_ids: Sequence[EntryId]) -> list[Entry]:
    return database.read(entries_table.read, entry_ids)


def _split_by_size(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Split a batch of very long texts, so that progress and cancelling stay responsive."""
    start = chars = 0
    for position, entry in enumerate(entries):
        chars += len(entry.text)
        if chars >= BATCH_CHARS:
            yield entries[start : position + 1]
            start, chars = position + 1, 0
    if start < len(entries):
        yield entries[start:]
