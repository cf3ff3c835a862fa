"""Lexical segment: an immutable inverted index of some memories (as in Lucene).

It stores term counts and text lengths, not scores: BM25 depends on all segments and their live memories. A memory is in one segment,
with all its chunks.
"""

from __future__ import annotations

import json
import weakref
from array import array
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import StoreError
from cems_workbench.records import ENGLISH
from cems_workbench.store.search import sorted_texts
from cems_workbench.store.search.directory import index_directory
from cems_workbench.store.search.directory.index_directory import Column, compact, smallest_dtype
from cems_workbench.store.search.entries import WHOLE_MEMORY, Document, FilterMasks
from cems_workbench.store.search.sorted_texts import SortedTexts
from cems_workbench.store.search.tokenizer import Language, chunks, terms_of

MAX_WORD_LETTERS = 40
"""Letters of the longest counted word."""

COLUMNS = {
    "ids": "the ids of its memories, in order, as bytes",
    "id_ends": "where each id ends",
    "starts": "the first text of each memory, and the number of texts; empty where each memory is one text",
    "seqs": "the number of the chunk that each text is, -1 for a whole memory; empty where all are",
    "lengths": "how many terms each text has",
    "filters": "project and scope of each text, as numbers of the labels, shape (texts, 2)",
    "labels": "the projects and scopes, as JSON",
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
"""The arrays in its file."""


class LexicalSegment:
    """An open segment."""

    def __init__(self, path: Path, columns: Mapping[str, Column] | None = None) -> None:
        """Open a segment's file, or take its columns. Raises StoreError if the file is missing or damaged."""
        self.path = path
        try:
            columns = index_directory.read_columns(path) if columns is None else columns
            self._columns = {name: columns[name] for name in COLUMNS}
            self.masks = FilterMasks(self._columns["filters"], json.loads(self._columns["labels"].tobytes()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"lexical index {path} is damaged ({error}); doctor --repair rebuilds it") from error
        self.ids = SortedTexts(self._columns["ids"], self._columns["id_ends"])
        self.terms = SortedTexts(self._columns["terms"], self._columns["term_ends"])
        self.words = SortedTexts(self._columns["words"], self._columns["word_ends"])
        self.lengths: Column = self._columns["lengths"]
        self.documents: NDArray[np.int32] = self._columns["documents"]
        self.counts: Column = self._columns["counts"]
        self.starts: NDArray[np.int32] | None = self._columns["starts"] if len(self._columns["starts"]) else None

    def __getitem__(self, name: str) -> Column:
        """One of COLUMNS."""
        return self._columns[name]

    @property
    def size(self) -> int:
        """Number of texts."""
        return len(self.lengths)

    @cached_property
    def labels(self) -> dict[str, list[str | None]]:
        """The projects and scopes."""
        found: dict[str, list[str | None]] = json.loads(self._columns["labels"].tobytes())
        return found

    def posting(self, term: str) -> slice:
        """The slice of a term's postings; empty if no text has it."""
        number = self.terms.find(term)
        return slice(0, 0) if number < 0 else slice(*map(int, self._columns["postings"][number : number + 2]))

    def texts_of(self, memory: int) -> range:
        """The texts of a memory, by its number."""
        return range(memory, memory + 1) if self.starts is None else range(*map(int, self.starts[memory : memory + 2]))

    def memory_of(self, text: int) -> int:
        """The memory number of a text."""
        return text if self.starts is None else int(np.searchsorted(self.starts, text, side="right")) - 1

    def chunk_of(self, text: int) -> int | None:
        """The chunk number of a text; None for a whole memory."""
        seqs = self._columns["seqs"]
        return int(seqs[text]) if len(seqs) and seqs[text] != WHOLE_MEMORY else None

    def all_texts(self, memories: NDArray[np.int64]) -> NDArray[np.int32]:
        """The texts of these memories, in the same order."""
        if self.starts is None:
            return memories.astype(np.int32)
        return spans(self.starts[memories], self.starts[memories + 1]).astype(np.int32)

    def words_of(self, memories: NDArray[np.int64]) -> Column:
        """The words of these memories, once per memory."""
        ends = self._columns["memory_word_ends"]
        # For memory 0 the index is -1, and its value is not used.
        begins = np.where(memories > 0, ends[memories - 1], 0)
        found: Column = self._columns["memory_words"][spans(begins, ends[memories])]
        return found


_open_segments: weakref.WeakValueDictionary[tuple[str, int], LexicalSegment] = weakref.WeakValueDictionary()


def open_segment(path: Path) -> LexicalSegment:
    """The segment of a file, one shared object per file: names are never reused. Raises StoreError."""
    try:
        key = str(path), path.stat().st_ino
    except OSError as error:
        raise StoreError(f"lexical index {path} is missing; doctor --repair rebuilds it") from error
    segment = _open_segments.get(key)
    if segment is None:
        segment = _open_segments[key] = LexicalSegment(path)
    return segment


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
        self._labels: dict[str, dict[str | None, int]] = {"projects": {}, "scopes": {}}
        self._filters = array("i")
        self._sizes, self._seqs, self._lengths = array("i"), array("i"), array("i")
        self._tokens, self._word_tokens, self._word_sizes = array("i"), array("i"), array("i")

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def tokens(self) -> int:
        """Number of terms and words of all texts."""
        return len(self._tokens) + len(self._word_tokens)

    def add(self, document: Document) -> None:
        """Add a memory."""
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
        projects, scopes = self._labels["projects"], self._labels["scopes"]
        self._filters.append(projects.setdefault(document.project, len(projects)))
        self._filters.append(scopes.setdefault(document.scope, len(scopes)))

    def write(self, path: Path) -> None:
        """Write the segment. Raises OSError."""
        index_directory.write_columns(path, self._inverted())

    def in_memory(self) -> LexicalSegment:
        """The segment without a file."""
        return LexicalSegment(Path("in memory"), self._inverted())

    def _inverted(self) -> dict[str, Column]:
        order = np.array(sorted(range(len(self._ids)), key=self._ids.__getitem__), np.int64)
        sizes = _array(self._sizes)
        begins = np.cumsum(sizes) - sizes
        texts = spans(begins[order], (begins + sizes)[order])  # the texts in their new order
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
        used = (pairs % max(1, len(words))).astype(smallest_dtype(len(words)))
        filters = np.repeat(_array(self._filters).reshape(-1, 2)[order], sizes[order], axis=0)
        labels = json.dumps({name: list(codes) for name, codes in self._labels.items()}, ensure_ascii=False)
        return assemble_columns(
            ids=sorted_texts.columns(self._ids[i] for i in order.tolist()),
            sizes=sizes[order],
            seqs=seqs[texts],
            lengths=lengths[texts],
            filters=filters,
            labels=labels,
            terms=sorted_texts.columns(terms),
            words=sorted_texts.columns(words),
        ) | {
            "postings": compact(np.searchsorted(keys, np.arange(len(terms) + 1) * max(1, len(texts)))),
            "documents": (keys % max(1, len(texts))).astype(np.int32),
            "counts": compact(counts),
            "word_counts": compact(np.bincount(used, minlength=len(words))),
            "memory_words": used,
            "memory_word_ends": compact(np.searchsorted(pairs, np.arange(1, len(order) + 1) * max(1, len(words)))),
        }


Texts = tuple[Column, Column]


def assemble_columns(
    *,
    ids: Texts,
    sizes: Column,
    seqs: Column,
    lengths: Column,
    filters: Column,
    labels: str,
    terms: Texts,
    words: Texts,
) -> dict[str, Column]:
    """The columns of a segment except postings and words of memories; `sizes` is the number of texts of each memory."""
    whole = bool((seqs == WHOLE_MEMORY).all())
    starts = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    nothing = np.zeros(0, np.int32)
    return {
        "ids": ids[0],
        "id_ends": compact(ids[1]),
        "starts": nothing if len(sizes) == len(lengths) else starts,
        "seqs": nothing if whole else seqs.astype(np.int32),
        "lengths": compact(lengths),
        "filters": compact(filters.reshape(-1, 2)),
        "labels": index_directory.as_bytes(labels),
        "terms": terms[0],
        "term_ends": compact(terms[1]),
        "words": words[0],
        "word_ends": compact(words[1]),
    }


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


def spans(begins: Column, ends: Column) -> NDArray[np.int64]:
    """The concatenated ranges from each begin to its end."""
    lengths = (ends - begins).astype(np.int64)
    shift = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
    return shift + np.arange(len(shift), dtype=np.int64)


def _array(numbers: array[int]) -> NDArray[np.int64]:
    return np.frombuffer(numbers, np.int32).astype(np.int64) if numbers else np.zeros(0, np.int64)
