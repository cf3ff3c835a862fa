"""BM25 over the terms of tokenizer.py: Lucene's scoring (k1 1.5, b 0.75) as bm25s computes it, read memory-mapped.

    score  = sum over the query's terms t, as often as the query has them, of idf(t) * tf / (tf + k1 * (1 - b + b * length / mean))
    idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5)),  t stands tf times in the memory, and in df of N

(Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009.) bm25s computes every term's score in every document when
it builds (Lù, "BM25S", 2024), so a search only adds up the posting lists of the query's terms. The sum and the cut are done here
instead of by bm25s' `retrieve` because its ties fall in no order; documents are stored by id, so here equal scores stand by id. idf
counts the whole store, whatever the filter. A memory with chunks is as many documents: N, df and the lengths are of chunks then.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import StoreError
from cems_workbench.records import ENGLISH
from cems_workbench.store.filter import ANY, Filter
from cems_workbench.store.search.entries import WHOLE
from cems_workbench.store.search.filter_masks import FilterMasks
from cems_workbench.store.search.hits import ChunkHits, Hits, by_memory, down_to, starts_of, visible_hits
from cems_workbench.store.search.tokenizer import tokenize

IDS, CHUNKS, FILTERS, LABELS, WORDS = "ids.json", "chunks.npy", "filters.npy", "labels.json", "words.json"
"""`CHUNKS` is there only where some memory has any; it has the number of the chunk of each document, -1 for a whole memory."""


class LexicalIndex:
    """The lexical index of one content version; it stays usable after a newer one replaced it."""

    def __init__(self, directory: Path | None, hidden: Set[str] = frozenset(), language: str = ENGLISH) -> None:
        """Open the index in `directory` (None: an index of nothing), built in this language; `hidden` ids are never returned.

        Raises StoreError when files are missing or damaged.
        """
        self.language = language
        self._hidden = hidden
        self._directory = directory
        self._ids: list[str] = []
        self._chunks: list[int | None] | None = None
        self._begins: NDArray[np.intp] | None = None
        self._terms: dict[str, int] = {}
        if directory is not None:
            self._open(directory)

    def _open(self, directory: Path) -> None:
        try:
            self._ids = json.loads((directory / IDS).read_text("utf-8"))
            labels = json.loads((directory / LABELS).read_text("utf-8"))
            self._masks = FilterMasks(np.load(directory / FILTERS), labels)
            if (directory / CHUNKS).exists():
                self._chunks = [None if seq == WHOLE else seq for seq in np.load(directory / CHUNKS).tolist()]
                self._begins = starts_of(self._ids)
            if not (directory / "params.index.json").exists():  # Documents without a single term have no scores.
                return
            import bm25s

            scores = bm25s.BM25.load(directory, mmap=True)
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            raise StoreError(
                f"lexical index {directory} is damaged ({error}); doctor --repair builds it anew"
            ) from error
        self._terms = scores.vocab_dict
        self._terms.pop("", None)
        # Views of the maps as plain arrays: numpy.memmap costs microseconds on every slice.
        self._scores = np.asarray(scores.scores["data"])
        self._documents = np.asarray(scores.scores["indices"])
        self._starts = np.asarray(scores.scores["indptr"])

    @property
    def document_count(self) -> int:
        """Number of indexed texts: chunks, and memories that have none."""
        return len(self._ids)

    @cached_property
    def vocabulary(self) -> Mapping[str, int]:
        """Search terms (stems and identifiers) → the number of indexed texts that contain them."""
        if not self._terms:
            return {}
        frequencies = np.diff(self._starts).tolist()
        return {term: frequencies[number] for term, number in self._terms.items()}

    @cached_property
    def words(self) -> Mapping[str, int]:
        """Words as written (lower-cased, unstemmed) → the number of memories that contain them; for typo correction."""
        if self._directory is None:
            return {}
        try:
            words: dict[str, int] = json.loads((self._directory / WORDS).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise StoreError(
                f"lexical index {self._directory} is damaged ({error}); doctor --repair builds it anew"
            ) from error
        return words

    def document_frequency(self, term: str) -> int:
        """Number of indexed texts that contain a search term (as tokenize gives it)."""
        number = self._terms.get(term)
        return 0 if number is None else int(self._starts[number + 1] - self._starts[number])

    def search(self, query: str, k: int, where: Filter = ANY) -> Hits:
        """(memory id, BM25 score > 0) of the k best memories for the terms of `query`, each by its best chunk; best first, ties by id."""
        return by_memory(self.search_chunks(query, k, where))

    def search_chunks(self, query: str, k: int, where: Filter = ANY) -> ChunkHits:
        """(memory id, BM25 score > 0, chunk) of the best chunks, down to the one that brings the k-th memory.

        Best first, ties by id and chunk.
        """
        # Float addition depends on the order; sorted terms make "a b" and "b a" the same query to the last bit.
        numbers = [self._terms[term] for term in sorted(tokenize(query, self.language)) if term in self._terms]
        if not numbers or k <= 0:
            return []
        scores = np.zeros(len(self._ids), np.float32)
        for number in numbers:
            postings = slice(self._starts[number], self._starts[number + 1])
            np.add.at(scores, self._documents[postings], self._scores[postings])
        mask = self._masks.of(where)
        if mask is not None:
            scores *= mask
        return visible_hits(lambda depth: self._best(scores, depth), k, self._hidden)

    def parts(self, memory_id: str, terms: Sequence[str], chunk: int | None = None) -> dict[str, float]:
        """What each of these terms gives the memory: the summands of its BM25. Terms it does not have are absent.

        Of a memory with chunks they are those of `chunk`, or, when that is None, of the chunk for which these terms sum up to most.
        """
        found = self.chunk_parts(memory_id, terms)
        if chunk is not None and self._chunks is not None:
            return found.get(chunk, {})
        return max(found.values(), key=lambda parts: sum(parts.values()), default={})

    def chunk_parts(self, memory_id: str, terms: Sequence[str]) -> dict[int | None, dict[str, float]]:
        """What each of these terms gives each chunk of the memory, by its number; under None where the memory is indexed whole."""
        places = range(bisect_left(self._ids, memory_id), bisect_right(self._ids, memory_id))
        numbers = {place: None if self._chunks is None else self._chunks[place] for place in places}
        found: dict[int | None, dict[str, float]] = {number: {} for number in numbers.values()}
        for term in terms:
            number = self._terms.get(term)
            if number is not None:
                postings = slice(self._starts[number], self._starts[number + 1])
                documents = self._documents[postings]
                for here in np.flatnonzero((documents >= places.start) & (documents < places.stop)).tolist():
                    found[numbers[int(documents[here])]][term] = float(self._scores[postings][here])
        return found

    def _best(self, scores: NDArray[np.float32], k: int) -> ChunkHits:
        best = down_to(scores, self._begins, k, above=0.0)
        ids, chunks, places = self._ids, self._chunks, best.tolist()
        numbers = [None] * len(places) if chunks is None else [chunks[place] for place in places]
        return list(zip([ids[place] for place in places], scores[best].tolist(), numbers, strict=True))
