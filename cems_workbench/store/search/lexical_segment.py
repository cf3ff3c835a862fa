"""Lexical segment: an immutable inverted index of some memories (as in Lucene).

It stores term counts and text lengths, not scores: BM25 depends on all segments and their live memories.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cems_workbench.records import ENGLISH
from cems_workbench.store.search import columns as arrays
from cems_workbench.store.search.directory import Segment, new_segment
from cems_workbench.store.search.entries import WHOLE_MEMORY, Document, Labels
from cems_workbench.store.search.segments import SHARED_COLUMNS, SegmentFile, shared_columns
from cems_workbench.store.search.tokenizer import Language, chunks, terms_of

MAX_WORD_LETTERS = 40
"""Letters of the longest counted word."""
MAX_KEPT_TERMS = 4_096
"""Terms of a segment whose postings were found and are remembered: a query asks for each three times."""


class LexicalSegment(SegmentFile):
    """An open segment; its rows are texts."""

    KIND = "lexical index"
    COLUMNS = SHARED_COLUMNS | {
        "lengths": "how many terms each text has",
        "terms": "the terms, in order, as bytes",
        "term_ends": "where each term ends",
        "postings": "where each term's postings begin, and their number",
        "documents": "the text of each posting; ascending within a term",
        "counts": "how often the term occurs there",
        "words": "the words as written, in order, as bytes",
        "word_ends": "where each word ends",
        "word_counts": "in how many memories each word stands",
        "memory_words": "the words of each memory, as numbers",
        "memory_word_ends": "where the words of each memory end",
    }

    def __init__(self, path: Path, columns: Mapping[str, arrays.Column] | None = None) -> None:
        super().__init__(path, columns)
        self.terms = arrays.SortedTexts(self.columns["terms"], self.columns["term_ends"])
        self.words = arrays.SortedTexts(self.columns["words"], self.columns["word_ends"])
        self.lengths: arrays.Column = self.columns["lengths"]
        self.documents: NDArray[np.int32] = self.columns["documents"]
        self.counts: arrays.Column = self.columns["counts"]
        self._postings: dict[str, slice] = {}

    def posting(self, term: str) -> slice:
        """The slice of a term's postings; empty if no text has it."""
        found = self._postings.get(term)
        if found is None:
            if len(self._postings) >= MAX_KEPT_TERMS:
                self._postings.clear()
            number = self.terms.find(term)
            found = slice(0, 0) if number < 0 else slice(*map(int, self.columns["postings"][number : number + 2]))
            self._postings[term] = found
        return found

    def words_of(self, memories: NDArray[np.int64]) -> arrays.Column:
        """The words of these memories, once per memory."""
        ends = self.columns["memory_word_ends"]
        # For memory 0 the index is -1, and its value is not used.
        begins = np.where(memories > 0, ends[memories - 1], 0)
        found: arrays.Column = self.columns["memory_words"][arrays.spans(begins, ends[memories])]
        return found

    def count_words(self, live: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of the memories `live` with each word."""
        counts: NDArray[np.int64] = self.columns["word_counts"].astype(np.int64)
        if len(live) == len(self.ids):
            return counts
        gone = np.ones(len(self.ids), bool)
        gone[live] = False
        return counts - np.bincount(self.words_of(np.flatnonzero(gone)), minlength=len(counts))


def plain_words(text_chunks: Iterable[str]) -> set[str]:
    """The lower-cased words among a text's chunks; no identifiers, numbers or overlong words."""
    return {chunk.lower() for chunk in text_chunks if _is_word(chunk)}


def _is_word(chunk: str) -> bool:
    return len(chunk) <= MAX_WORD_LETTERS and chunk.isalpha()


class _Numbers(dict[str, tuple[int, ...]]):
    """Chunk of text → the numbers of its terms, assigned in order of appearance."""

    def __init__(self, language: Language) -> None:
        super().__init__()
        self.terms: dict[str, int] = {}
        self._language = language

    def __missing__(self, chunk: str) -> tuple[int, ...]:
        terms = self.terms
        found = self[chunk] = tuple([terms.setdefault(term, len(terms)) for term in terms_of(chunk, self._language)])
        return found


class _Words(dict[str, tuple[int, ...]]):
    """Chunk of text → its word number, if it is a word."""

    def __init__(self) -> None:
        super().__init__()
        self.words: dict[str, int] = {}

    def __missing__(self, chunk: str) -> tuple[int, ...]:
        words = self.words
        found = self[chunk] = (words.setdefault(chunk.lower(), len(words)),) if _is_word(chunk) else ()
        return found


class SegmentDraft:
    """A segment under construction: memories in any order, each once."""

    def __init__(self, language: Language = ENGLISH) -> None:
        self._numbers, self._words = _Numbers(language), _Words()
        self._ids: list[str] = []
        self._labels = Labels()
        self._filters = array("i")
        self._sizes, self._seqs, self._lengths = array("i"), array("i"), array("i")
        self._tokens, self._word_tokens, self._word_sizes = array("i"), array("i"), array("i")

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def tokens(self) -> int:
        return len(self._tokens) + len(self._word_tokens)

    def add(self, document: Document) -> None:
        whole = chunks(document.text)
        tokens, before = self._tokens, len(self._tokens)
        parts = [chunks(text) for _, text in document.chunks] if document.chunks else [whole]
        for part in parts:
            tokens.extend(chain.from_iterable(map(self._numbers.__getitem__, part)))
            self._lengths.append(len(tokens) - before)
            before = len(tokens)
        self._seqs.extend([seq for seq, _ in document.chunks] or [WHOLE_MEMORY])
        words, before = self._word_tokens, len(self._word_tokens)
        words.extend(chain.from_iterable(map(self._words.__getitem__, whole)))
        self._word_sizes.append(len(words) - before)
        self._ids.append(document.id)
        self._sizes.append(len(parts))
        self._filters.extend(self._labels.numbers(document.project, document.scope))

    def write(self, directory: Path) -> Segment:
        """Write the segment to a new file. Raises OSError."""
        segment = new_segment()
        arrays.create_columns(directory / segment.name, self._inverted())
        return segment

    def in_memory(self) -> LexicalSegment:
        return LexicalSegment(Path("in memory"), self._inverted())

    def _inverted(self) -> dict[str, arrays.Column]:
        order = np.array(sorted(range(len(self._ids)), key=self._ids.__getitem__), np.int64)
        sizes = _array(self._sizes)
        begins = np.cumsum(sizes) - sizes
        texts = arrays.spans(begins[order], (begins + sizes)[order])  # the texts in their new order
        lengths, seqs = _array(self._lengths), _array(self._seqs)
        place = np.empty(len(texts), np.int64)
        place[texts] = np.arange(len(texts))
        terms, rank = _rank_texts(self._numbers.terms)
        keys, counts = _count_pairs(rank[_array(self._tokens)], np.repeat(place, lengths), len(texts))
        words, word_rank = _rank_texts(self._words.words)
        memory = np.empty(len(order), np.int64)
        memory[order] = np.arange(len(order))
        owner = np.repeat(memory, _array(self._word_sizes))
        pairs, _ = _count_pairs(owner, word_rank[_array(self._word_tokens)], len(words))
        used = (pairs % max(1, len(words))).astype(arrays.smallest_dtype(len(words)))
        filters = np.repeat(_array(self._filters).reshape(-1, 2)[order], sizes[order], axis=0)
        ids = arrays.text_columns(self._ids[i] for i in order.tolist())
        columns = shared_columns(ids, sizes[order], seqs[texts], filters, self._labels)
        return (
            columns
            | text_tables(lengths[texts], arrays.text_columns(terms), arrays.text_columns(words))
            | {
                "postings": arrays.compact(np.searchsorted(keys, np.arange(len(terms) + 1) * max(1, len(texts)))),
                "documents": (keys % max(1, len(texts))).astype(np.int32),
                "counts": arrays.compact(counts),
                "word_counts": arrays.compact(np.bincount(used, minlength=len(words))),
                "memory_words": used,
                "memory_word_ends": arrays.compact(
                    np.searchsorted(pairs, np.arange(1, len(order) + 1) * max(1, len(words)))
                ),
            }
        )


def text_tables(lengths: arrays.Column, terms: arrays.Texts, words: arrays.Texts) -> dict[str, arrays.Column]:
    """The columns of the texts' lengths, of the terms and of the words."""
    tables = {
        "terms": terms[0],
        "term_ends": arrays.compact(terms[1]),
        "words": words[0],
        "word_ends": arrays.compact(words[1]),
    }
    return {"lengths": arrays.compact(lengths), **tables}


def _rank_texts(numbers: dict[str, int]) -> tuple[list[str], NDArray[np.int64]]:
    """The texts sorted, and the rank of each text number."""
    texts = sorted(numbers)
    rank = np.empty(len(texts), np.int64)
    rank[np.fromiter(map(numbers.__getitem__, texts), np.int64, len(texts))] = np.arange(len(texts))
    return texts, rank


def _count_pairs(
    high: NDArray[np.int64], low: NDArray[np.int64], width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct pairs of two columns as high * width + low, ascending, with their counts."""
    # One number per pair: sorting it is much faster than sorting pairs.
    keys = np.sort(high * max(1, width) + low)
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[first], np.diff(first, append=len(keys))


def _array(numbers: array[int]) -> NDArray[np.int64]:
    return np.frombuffer(numbers, np.int32).astype(np.int64) if numbers else np.zeros(0, np.int64)
