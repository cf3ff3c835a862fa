"""The results of CEMS's PostgreSQL full-text search over a store's chunks; `pg_text_search` computes the ranks.

Chunks keep their input order, which should be the row order of the server's table (`ORDER BY ctid`), because it decides between equal
ranks, which are frequent. Insertion order is the best approximation.

The full-text index of a store, built when a config asks for it: chunks and filters around the index of `pg_text_search`.

Build of the full-text index for a content version; directory.py swaps it in.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence, Set
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import StoreError
from cems_workbench.progress import Progress, silent
from cems_workbench.store.filter import ANY, Filter
from cems_workbench.store.search import TS_RANK_VERSION
from cems_workbench.store.search.columns import as_bytes, create_columns, read_columns
from cems_workbench.store.search.directory import Manifest, Segment, new_segment, publish
from cems_workbench.store.search.entries import WHOLE_MEMORY, ChunkHits, Document, FilterMasks, Labels
from pg_text_search.heap import MAX_ROWS, HeapRow, heap_order
from pg_text_search.inverted_index import InvertedIndex, full_order, inverted_index, limited_order
from pg_text_search.ts_rank import Lexemes, TextConfig, TextQuery, TsQueryError, lexemes, or_query

TEXTS = "ids", "labels", "terms"
"""Arrays of the file that are JSON; its others are `COLUMNS` and those of the words."""
COLUMNS = {
    "memories": "number of the memory of each chunk, int32",
    "chunks": "number of each chunk within its memory, int32",
    "by_id": "place of each chunk in the order of memory ids and chunks, int32",
    "filters": "project and scope of each chunk, as numbers of the labels, int32, shape (chunks, 2)",
}
"""The arrays of the chunks."""

Ties = Literal["id", "limit", "window"]
"""How equal ranks are ordered: by memory id and chunk; as `ORDER BY rank DESC LIMIT k` leaves them; as a window function does."""


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """An index in memory: memory ids, labels of the filters, the arrays of `COLUMNS`, and the words of the chunks."""

    ids: Sequence[str]
    labels: dict[str, list[str | None]]
    columns: dict[str, NDArray[Any]]
    words: InvertedIndex


class TsRankIndex:
    """The full-text index of one content version; it stays usable after a newer one replaced it."""

    def __init__(self, index: Path | ChunkIndex | None, hidden: Set[str] = frozenset()) -> None:
        """Open the index in a file, or one in memory (None: an index of nothing); chunks of the memories `hidden` are
        never returned. Raises StoreError when files are missing or damaged."""
        opened = _open(index) if isinstance(index, Path) else index
        self._ids, self._columns = (opened.ids, opened.columns) if opened else ([], {})
        self._words = opened.words if opened else inverted_index([])
        self._masks = FilterMasks(self._columns["filters"], opened.labels, self._rows_of) if opened else None
        self._hidden = hidden

    def without(self, ids: Set[str]) -> TsRankIndex:
        """This index without these memories."""
        found = copy(self)
        found._hidden = self._hidden | ids
        return found

    @property
    def chunk_count(self) -> int:
        return self._words.size

    def chunks_with(self, lexeme: str) -> int:
        return self._words.texts_with(lexeme)

    def search(
        self, query: str | TextQuery, k: int, where: Filter = ANY, ties: Ties = "id", depth: int | None = None
    ) -> ChunkHits:
        """(memory id, ts_rank, chunk) of the k best chunks that match `query`, best first; `ties` is the order of equal
        ranks. `depth` is the LIMIT of the server's query when that is not k. Raises TsQueryError where the server
        refuses the query."""
        asked = or_query(query) if isinstance(query, str) else query
        if self._masks is None or not asked.terms or k <= 0:
            return []
        scores, found = self._words.ts_rank(asked)
        mask = self._masks.mask(where)
        if mask is not None:
            found &= mask
        if self._hidden:
            found[self._rows_of(self._hidden)] = False
        rows = np.flatnonzero(found)
        best = rows[self._order(rows, scores[rows], k, ties, depth or k)]
        return self._hits(best, scores[best])

    def _rows_of(self, ids: Set[str]) -> NDArray[np.intp]:
        among = np.fromiter(map(ids.__contains__, self._ids), bool, len(self._ids))
        return np.flatnonzero(among[self._columns["memories"]])

    def _hits(self, rows: NDArray[np.intp], scores: NDArray[np.float32]) -> ChunkHits:
        memories, chunks = self._columns["memories"][rows].tolist(), self._columns["chunks"][rows].tolist()
        hits = zip(memories, scores.tolist(), chunks, strict=True)
        return [(self._ids[memory], score, None if chunk == WHOLE_MEMORY else chunk) for memory, score, chunk in hits]

    def cover_density(self, query: TextQuery, normalization: int = 0) -> ChunkHits:
        """(memory id, ts_rank_cd, chunk) of all chunks that match `query`, best first, equal ones in the order of the chunks."""
        if not self.chunk_count or query.node is None:
            return []
        scores, found = self._words.ts_rank_cd(query, normalization)
        rows = np.flatnonzero(found)
        best = rows[np.argsort(-scores[rows], kind="stable")]
        return self._hits(best, scores[best])

    def ranking(self, query: str, where: Filter = ANY) -> ChunkHits:
        """All chunks that match `query`, as in `search` but in window function order; empty if the server refuses the query."""
        try:
            return self.search(query, self.chunk_count, where, "window")
        except TsQueryError:
            return []

    def _order(
        self, rows: NDArray[np.intp], scores: NDArray[np.float32], k: int, ties: Ties, depth: int
    ) -> NDArray[np.intp]:
        """Places within `rows` of the first k."""
        if ties == "limit":
            # The order of ties depends on the LIMIT of the server's query.
            return np.array(limited_order(scores, max(k, depth))[:k], np.intp)
        if ties == "window":
            return np.array(full_order(scores, k), np.intp)
        places = np.arange(len(rows))
        if len(rows) > k:
            places = np.flatnonzero(scores >= np.partition(scores, len(rows) - k)[len(rows) - k])
        return places[np.lexsort((self._columns["by_id"][rows[places]], -scores[places]))][:k]


def _open(path: Path) -> ChunkIndex:
    try:
        columns = read_columns(path)
        ids, labels, terms = (json.loads(columns[name].tobytes()) for name in TEXTS)
        return ChunkIndex(ids, labels, columns, InvertedIndex(terms, columns, len(columns["memories"])))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"ts_rank index {path} is damaged ({error}); doctor --repair rebuilds it") from error


@dataclass(frozen=True, slots=True)
class Chunk:
    """What the index keeps of a chunk: whose it is, its number within that memory, `WHOLE` for a memory that is searched as one
    text, its text, and what filters ask."""

    memory_id: str
    number: int
    text: str
    project: str | None
    scope: str


def in_server_order(documents: Iterable[Document], dimension: int) -> list[Chunk]:
    """The chunks of documents in the row order of a server that received them in this order."""
    chunks = [
        Chunk(document.id, number, text, document.project, document.scope)
        for document in documents
        for number, text in document.chunks or ((WHOLE_MEMORY, document.text),)
    ]
    # Computing lexemes and lengths takes about a millisecond a row.
    if len(chunks) > MAX_ROWS:
        return chunks
    rows = [HeapRow(chunk.text, dimension, lexemes(chunk.text)) for chunk in chunks]
    return [chunks[place] for place in heap_order(rows)]


def build(
    directory: Path, chunks: Iterable[Chunk], total: int, content_version: int, progress: Progress, identity: str = ""
) -> Manifest:
    """Index `chunks`, in the order of the server's rows, the content of this identity, and make the result current.
    Raises what `progress` raises (Cancelled), StoreError if it cannot be written; the previous index then stays
    current."""

    def write() -> tuple[list[Segment], int]:
        index, segment = chunk_index(chunks, total, progress), new_segment()
        texts = zip(TEXTS, (index.ids, index.labels, index.words.terms), strict=True)
        as_json = {name: as_bytes(json.dumps(values, ensure_ascii=False)) for name, values in texts}
        create_columns(directory / segment.name, {**index.columns, **index.words.columns, **as_json})
        return [segment], index.words.size

    return publish(directory, content_version, TS_RANK_VERSION, identity, write)


def chunk_index(
    chunks: Iterable[Chunk], total: int, progress: Progress = silent, config: TextConfig = "english"
) -> ChunkIndex:
    ids: dict[str, int] = {}
    labels = Labels()
    rows, filters = array("i"), array("i")

    def documents() -> Iterator[Lexemes]:
        for row, chunk in enumerate(chunks):
            if row % 1_000 == 0:
                progress("indexing full text", row, total)
            rows.extend((ids.setdefault(chunk.memory_id, len(ids)), chunk.number))
            filters.extend(labels.numbers(chunk.project, chunk.scope))
            yield lexemes(chunk.text, config)

    words = inverted_index(documents())
    progress("indexing full text", words.size, total)
    memories, numbers = np.frombuffer(rows, np.int32).reshape(-1, 2).T
    rank_of_id = np.empty(len(ids), np.int32)
    rank_of_id[[ids[memory_id] for memory_id in sorted(ids)]] = np.arange(len(ids), dtype=np.int32)
    by_id = np.empty(words.size, np.int32)
    by_id[np.lexsort((numbers, rank_of_id[memories]))] = np.arange(words.size, dtype=np.int32)
    columns = {
        "memories": memories,
        "chunks": numbers,
        "by_id": by_id,
        "filters": np.frombuffer(filters, np.int32).reshape(-1, 2),
    }
    return ChunkIndex(list(ids), labels.listed, columns, words)
