"""The results of CEMS's PostgreSQL full-text search, from an inverted index over chunks; postgres_text.py has the formula.

A posting is a lexeme's frequency in a chunk, which is all that ts_rank needs; positions are stored for phrases. Chunks keep their input
order, which should be the row order of the server's table (`ORDER BY ctid`), because it decides between equal ranks, which are
frequent. Insertion order is the best approximation.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import StoreError
from cems_workbench.store.filter import ANY, Filter
from cems_workbench.store.search.entries import WHOLE_MEMORY
from cems_workbench.store.search.filter_masks import FilterMasks
from cems_workbench.store.search.hits import ChunkHits
from cems_workbench.store.search.postgres.postgres_sort import full_order, limited_order
from cems_workbench.store.search.postgres.postgres_text import (
    GAINS,
    LAST_POSITION,
    Lexemes,
    Phrase,
    Term,
    TextQuery,
    TsQueryError,
    matches,
    or_query,
    ts_rank,
)

IDS, LABELS, TERMS = "ids.json", "labels.json", "terms.json"
COLUMNS = {
    "memories": "number of the memory of each chunk, int32",
    "chunks": "number of each chunk within its memory, int32",
    "by_id": "place of each chunk in the order of memory ids and chunks, int32",
    "filters": "project and scope of each chunk, as numbers of the labels, int32, shape (chunks, 2)",
    "starts": "where each term's postings begin, and the end, int64",
    "documents": "the chunk of each posting, int32",
    "counts": "how often the term occurs there, uint8",
    "places": "where each posting's positions begin, and the end, int64",
    "positions": "the positions, uint16",
}
"""The arrays, a file each."""

Ties = Literal["id", "limit", "window"]
"""How equal ranks are ordered: by memory id and chunk; as `ORDER BY rank DESC LIMIT k` leaves them; as a window function does."""


@dataclass(frozen=True, slots=True)
class InvertedIndex:
    """An index in memory: memory ids, lexemes in order of bytes, labels of the filters, and the arrays of `COLUMNS`."""

    ids: list[str]
    terms: list[str]
    labels: dict[str, list[str | None]]
    columns: dict[str, NDArray[Any]]


class TsRankIndex:
    """The full-text index of one content version; it stays usable after a newer one replaced it."""

    def __init__(self, directory: Path | InvertedIndex | None, hidden: Set[str] = frozenset()) -> None:
        """Open the index in `directory`, or one in memory (None: an index of nothing); chunks of the memories `hidden` are never returned.

        Raises StoreError when files are missing or damaged.
        """
        self._hidden = hidden
        self._ids: list[str] = []
        self._terms: list[str] = []
        self._numbers: dict[str, int] = {}
        self._columns: dict[str, NDArray[Any]] = {}
        if isinstance(directory, InvertedIndex):
            self._ids, self._terms, self._columns = directory.ids, directory.terms, directory.columns
            self._index(directory.labels)
        elif directory is not None:
            self._open(directory)

    def _open(self, directory: Path) -> None:
        try:
            self._ids = json.loads((directory / IDS).read_text("utf-8"))
            self._terms = json.loads((directory / TERMS).read_text("utf-8"))
            # Plain arrays over the maps: numpy.memmap costs microseconds on every slice.
            self._columns = {name: np.asarray(_mapped(directory / f"{name}.npy")) for name in COLUMNS}
            labels = json.loads((directory / LABELS).read_text("utf-8"))
        except (OSError, ValueError, EOFError) as error:
            raise StoreError(f"ts_rank index {directory} is damaged ({error}); doctor --repair rebuilds it") from error
        self._index(labels)

    def _index(self, labels: Mapping[str, Any]) -> None:
        self._numbers = {term: number for number, term in enumerate(self._terms)}
        self._masks = FilterMasks(self._columns["filters"], labels)

    @property
    def chunk_count(self) -> int:
        """Number of indexed chunks."""
        return len(self._columns["memories"]) if self._columns else 0

    def chunks_with(self, lexeme: str) -> int:
        """Number of indexed chunks that have a lexeme."""
        return len(self._postings(lexeme)[0]) if self._columns else 0

    def search(
        self, query: str | TextQuery, k: int, where: Filter = ANY, ties: Ties = "id", depth: int | None = None
    ) -> ChunkHits:
        """(memory id, ts_rank, chunk) of the k best chunks that match `query`, best first; `ties` is the order of equal ranks.

        `depth` is the LIMIT of the server's query when that is not k. Raises TsQueryError where the server refuses the query.
        """
        asked = or_query(query) if isinstance(query, str) else query
        if not self.chunk_count or not asked.terms or k <= 0:
            return []
        scores, found = self._ranked(asked)
        mask = self._masks.mask(where)
        if mask is not None:
            found &= mask
        if self._hidden:
            hidden = np.fromiter(map(self._hidden.__contains__, self._ids), bool, len(self._ids))
            found &= ~hidden[self._columns["memories"]]
        rows = np.flatnonzero(found)
        best = rows[self._order(rows, scores[rows], k, ties, depth or k)]
        return self._hits(best, scores[best])

    def _hits(self, rows: NDArray[np.intp], scores: NDArray[np.float32]) -> ChunkHits:
        memories, chunks = self._columns["memories"][rows].tolist(), self._columns["chunks"][rows].tolist()
        hits = zip(memories, scores.tolist(), chunks, strict=True)
        return [(self._ids[memory], score, None if chunk == WHOLE_MEMORY else chunk) for memory, score, chunk in hits]

    def cover_density(self, query: TextQuery, normalization: int = 0) -> ChunkHits:
        """(memory id, ts_rank_cd, chunk) of all chunks that match `query`, best first, equal ones in the order of the chunks."""
        if not self.chunk_count or query.node is None:
            return []
        scores, found = self._covered(query, normalization)
        rows = np.flatnonzero(found)
        best = rows[np.argsort(-scores[rows], kind="stable")]
        return self._hits(best, scores[best])

    def _covered(self, query: TextQuery, normalization: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """ts_rank_cd of every chunk, and which chunks match."""
        from cems_workbench.store.search.postgres.cover_density import single_covers, ts_rank_cd

        scores, found = np.zeros(self.chunk_count, np.float32), np.zeros(self.chunk_count, bool)
        lengths, distinct = self._sizes
        alternatives = query.alternatives
        plain = alternatives and all(
            isinstance(node, Term) and not node.prefix and not node.weights for node in alternatives
        )
        # Every place is one cover, unless the server puts the last ones of a long text on one position.
        if not normalization and plain and int(lengths.max(initial=0)) < LAST_POSITION:
            places = np.zeros(self.chunk_count, np.int64)
            for term in query.terms:
                rows, counts = self._postings(term.lexeme)
                places[rows] += counts
            found = places > 0
            scores[found] = single_covers(int(places.max(initial=0)))[places[found]]
            return scores, found
        for row, document in self._documents_with(query).items():
            found[row] = matches(document, query)
            if found[row]:
                scores[row] = ts_rank_cd(document, query, normalization, int(lengths[row]), int(distinct[row]))
        return scores, found

    @cached_property
    def _sizes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions and distinct lexemes of each chunk."""
        rows, counts = self._columns["documents"], self._columns["counts"]
        lengths = np.bincount(rows, counts, minlength=self.chunk_count).astype(np.int64)
        return lengths, np.bincount(rows, minlength=self.chunk_count)

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

    def _ranked(self, query: TextQuery) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """ts_rank of every chunk, and which chunks match."""
        scores = np.zeros(self.chunk_count, np.float32)
        found = np.zeros(self.chunk_count, bool)
        alternatives = query.alternatives
        if alternatives is None or query.ranks_pairs or any(term.prefix or term.weights for term in query.terms):
            for row, document in self._documents_with(query).items():
                found[row] = matches(document, query)
                scores[row] = ts_rank(document, query)
            return scores, found
        for term in query.terms:
            rows, counts = self._postings(term.lexeme)
            scores[rows] = scores[rows] + GAINS[counts]  # Added in double and rounded to single precision, as there.
        scores /= np.float32(len(query.terms))
        for node in alternatives:
            if isinstance(node, Term):
                found[self._postings(node.lexeme)[0]] = True
        for node in alternatives:
            if isinstance(node, Phrase):
                self._add_phrase(node, found)
        return scores, found

    def _add_phrase(self, phrase: Phrase, found: NDArray[np.bool_]) -> None:
        """Mark the chunks that contain the phrase; often none, because its words must match too."""
        # Chunks found by a single term need no look at positions.
        rows = np.flatnonzero(~found)
        for term in phrase.terms:
            rows = rows[np.isin(rows, self._postings(term.lexeme)[0])]
            if not len(rows):
                return
        alone = TextQuery(phrase)
        for row in rows.tolist():
            document = {term.lexeme: self._positions(term.lexeme, row) for term in phrase.terms}
            found[row] = matches(document, alone)

    def _documents_with(self, query: TextQuery) -> dict[int, Lexemes]:
        """Chunk → its lexemes, as far as the query asks for them, of all chunks with at least one."""
        documents: dict[int, Lexemes] = {}
        for term in query.terms:
            for lexeme in self._expanded(term):
                for row in self._postings(lexeme)[0].tolist():
                    documents.setdefault(row, {})[lexeme] = self._positions(lexeme, row)
        return documents

    def _expanded(self, term: Term) -> list[str]:
        if not term.prefix:
            return [term.lexeme]
        start = bisect_left(self._terms, term.lexeme.encode(), key=str.encode)
        end = start
        while end < len(self._terms) and self._terms[end].startswith(term.lexeme):
            end += 1
        return self._terms[start:end]

    def _postings(self, lexeme: str) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """The chunks with a lexeme, and its frequency in each."""
        number = self._numbers.get(lexeme)
        starts = self._columns["starts"]
        span = slice(0, 0) if number is None else slice(starts[number], starts[number + 1])
        return self._columns["documents"][span], self._columns["counts"][span]

    def _positions(self, lexeme: str, row: int) -> tuple[int, ...]:
        start = int(self._columns["starts"][self._numbers[lexeme]])
        posting = start + int(np.searchsorted(self._postings(lexeme)[0], row))
        first, last = self._columns["places"][posting : posting + 2].tolist()
        return tuple(self._columns["positions"][first:last].tolist())


def _mapped(path: Path) -> NDArray[Any]:
    mapped: NDArray[Any] = np.load(path, mmap_mode="r")
    return mapped
