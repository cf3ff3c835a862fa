"""Lexical segment: an immutable inverted index of some memories (as in Lucene).

It stores term counts and text lengths, not scores: BM25 depends on all segments and their live memories.

Refresh of the lexical index: a segment for changed memories, whose old versions are marked as deleted, and merges of segments without
these.

Postings are merged in blocks directly into the new file; memory use is a few numbers per text and term.

Tiered merging, as in Lucene: FANOUT segments of one size class make one of the next, so that a memory is rewritten about once per class.
The size of a merge is limited by that of the change, so an edit never waits for a large merge; a later, larger change does it, unless
there are more than MAX_SEGMENTS.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cems_workbench.progress import Progress
from cems_workbench.records import ENGLISH
from cems_workbench.store.search import columns, tokenizer
from cems_workbench.store.search import columns as arrays
from cems_workbench.store.search.directory import Manifest, Segment, delete_more, new_segment, publish
from cems_workbench.store.search.entries import WHOLE_MEMORY, Document, Labels
from cems_workbench.store.search.segments import (
    SHARED_COLUMNS,
    LiveSegment,
    Merge,
    SegmentFile,
    live_segment,
    open_segment,
    shared_columns,
)
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


BLOCK_POSTINGS = 4_000_000
"""Postings, or words of memories, merged at a time."""


def merge(path: Path, parts: Sequence[LiveSegment[LexicalSegment]]) -> None:
    """Write a segment of the live memories of these. Raises OSError."""
    whole = _MergedTexts(parts)
    terms, words = whole.terms, whole.words
    kinds = (part.counts.dtype for part in whole.segments)
    postings = np.concatenate(([0], np.cumsum(terms.counts)))
    word_ends = np.cumsum(whole.in_order(whole.word_sizes))
    occurrences = int(terms.counts.sum())
    made = columns.create_columns(
        path,
        whole.columns()
        | text_tables(whole.of_rows([part.lengths for part in whole.segments]), terms.texts, words.texts)
        | {
            "postings": columns.compact(postings),
            "word_counts": columns.compact(words.counts),
            "memory_word_ends": columns.compact(word_ends),
        },
        {
            "documents": (np.int32, [occurrences]),
            "counts": (np.result_type(np.uint8, *kinds), [occurrences]),
            "memory_words": (columns.smallest_dtype(len(words)), [int(words.counts.sum())]),
        },
    )
    for first, last in _blocks(postings):
        _merge_postings(whole, first, last, made)
    for place in range(len(parts)):
        _copy_words(whole, place, word_ends, made["memory_words"])


class _MergedTexts(Merge[LexicalSegment]):
    """The merged texts, with the terms and words that are left of each part."""

    def __init__(self, parts: Sequence[LiveSegment[LexicalSegment]]) -> None:
        super().__init__(parts)
        self.text_numbers = [np.full(part.size, -1, np.int64) for part in self.segments]
        """New number of each text, -1 if deleted."""
        for numbers, rows, new in zip(self.text_numbers, self.rows, self.new_rows, strict=True):
            numbers[rows] = new
        live = list(zip(self.segments, self.memories, strict=True))
        self.terms = _Union(
            [part.terms for part in self.segments],
            [_count_terms(part, rows) for part, rows in zip(self.segments, self.rows, strict=True)],
        )
        self.words = _Union([part.words for part in self.segments], [part.count_words(own) for part, own in live])
        ends = (part.columns["memory_word_ends"].astype(np.int64) for part in self.segments)
        self.word_sizes = [
            (each - np.concatenate(([0], each[:-1])))[own] for each, own in zip(ends, self.memories, strict=True)
        ]
        """Number of words of each live memory."""


def _count_terms(segment: LexicalSegment, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    postings: NDArray[np.int64] = segment.columns["postings"].astype(np.int64)
    # The usual case needs no pass over the postings.
    if len(rows) == segment.size:
        return np.diff(postings)
    live = np.zeros(segment.size, bool)
    live[rows] = True
    found = np.zeros(len(postings) - 1, np.int64)
    for first, last in _blocks(postings):
        before = np.concatenate(([0], np.cumsum(live[segment.documents[postings[first] : postings[last]]])))
        found[first:last] = np.diff(before[postings[first : last + 1] - postings[first]])
    return found


class _Union:
    """The distinct terms, or words, of several segments that live memories still use."""

    def __init__(self, texts: Sequence[columns.SortedTexts], counts: Sequence[NDArray[np.int64]]) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        used = [np.flatnonzero(each) for each in counts]
        kept = [
            one.arrow() if len(which) == len(one) else one.arrow().take(pa.array(which))
            for one, which in zip(texts, used, strict=True)
        ]
        found = pc.unique(pa.concat_arrays(kept))
        found = found.take(pc.sort_indices(found))
        self.texts = columns.from_arrow(found)
        self.counts = np.zeros(len(found), np.int64)
        self.numbers: list[NDArray[np.int64]] = []
        """For each segment the number of each of its texts in the union; -1 if unused."""
        for one, which, each in zip(kept, used, counts, strict=True):
            mapped = pc.index_in(one, value_set=found).to_numpy(zero_copy_only=False).astype(np.int64)
            self.counts[mapped] += each[which]
            numbers = np.full(len(each), -1, np.int64)
            numbers[which] = mapped
            self.numbers.append(numbers)

    def __len__(self) -> int:
        return len(self.counts)


def _blocks(postings: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of terms of about BLOCK_POSTINGS each, at least one term."""
    first, count = 0, len(postings) - 1
    while first < count:
        last = int(np.searchsorted(postings, postings[first] + BLOCK_POSTINGS, side="right")) - 1
        last = min(count, max(last, first + 1))
        yield first, last
        first = last


def _merge_postings(whole: _MergedTexts, first: int, last: int, made: dict[str, columns.Column]) -> None:
    """Write the postings of the terms from `first` up to `last`."""
    keys, counts = [], []
    for part, numbers, text_numbers in zip(whole.segments, whole.terms.numbers, whole.text_numbers, strict=True):
        used = np.flatnonzero((numbers >= first) & (numbers < last))
        if not len(used):
            continue
        # Unused terms in between only have postings of deleted texts.
        own, end = int(used[0]), int(used[-1]) + 1
        postings = part.columns["postings"][own : end + 1].astype(np.int64)
        texts = text_numbers[part.documents[postings[0] : postings[-1]]]
        found = np.repeat(numbers[own:end] - first, np.diff(postings)) * whole.size + texts
        keys.append(found[texts >= 0])
        counts.append(part.counts[postings[0] : postings[-1]][texts >= 0])
    if not keys:
        return
    key = np.concatenate(keys)
    order = np.argsort(key, kind="stable")  # each part is in order already
    # Blocks are written straight to their place, so memory holds one block at a time.
    place = int(made["postings"][first])
    made["documents"][place : place + len(key)] = key[order] % whole.size
    made["counts"][place : place + len(key)] = np.concatenate(counts)[order]


def _copy_words(whole: _MergedTexts, place: int, ends: NDArray[np.int64], made: columns.Column) -> None:
    """Write the words of a part's memories to their new positions."""
    sizes, live, numbers = whole.word_sizes[place], whole.memories[place], whole.words.numbers[place]
    # By the longest memory, so that no block exceeds BLOCK_POSTINGS words.
    step = max(1, BLOCK_POSTINGS // max(1, int(sizes.max(initial=1))))
    for start in range(0, len(live), step):
        some = slice(start, start + step)
        end = ends[whole.numbers[place][some]]
        made[columns.spans(end - sizes[some], end)] = numbers[whole.segments[place].words_of(live[some])]


PROGRESS_LABEL = "indexing words"
MAX_TOKENS = 6_000_000
"""Terms and words held in memory until a segment is written: about 75,000 memories of 40 words, 300 MB."""
FANOUT = 8
MIN_MERGE_LIMIT = 30_000
"""Texts that even the smallest change may merge, in half a second."""
MAX_SEGMENTS = 40
"""With more segments, any pending merge is done."""


def update(
    directory: Path,
    segments: Sequence[Segment],
    changed: Sequence[str],
    documents: Iterable[Document],
    total: int,
    content_version: int,
    progress: Progress,
    identity: str = "",
    language: str = ENGLISH,
) -> Manifest:
    """Remove the memories `changed` from `segments` and add `documents` (in any order, `total` of them). Raises what
    `progress` raises (Cancelled), and StoreError if it cannot be written; the previous index then stays current."""

    def write() -> tuple[list[Segment], int]:
        before = [
            delete_more(directory, each, open_segment(LexicalSegment, directory / each.name).ids.find_all(changed))
            for each in segments
        ]
        drafted = write_segments(directory, documents, total, progress, language)
        kept = _merge_segments(directory, [*before, *drafted], sum(_live_texts(directory, each) for each in drafted))
        return kept, sum(_live_texts(directory, each) for each in kept)

    return publish(directory, content_version, tokenizer.version(language), identity, write)


def write_segments(
    directory: Path, documents: Iterable[Document], total: int, progress: Progress, language: Language
) -> list[Segment]:
    """Write segments of about MAX_TOKENS each. Raises OSError."""
    made: list[Segment] = []
    draft, done = SegmentDraft(language), 0
    for document in documents:
        if done % 1_000 == 0:
            progress(PROGRESS_LABEL, done, total)
        done += 1
        draft.add(document)
        if draft.tokens >= MAX_TOKENS:
            made.append(draft.write(directory))
            draft = SegmentDraft(language)
    if len(draft):
        made.append(draft.write(directory))
    progress(PROGRESS_LABEL, done, total)
    return made


def _live_texts(directory: Path, segment: Segment) -> int:
    return live_segment(LexicalSegment, directory, segment).size


def _merge_segments(directory: Path, segments: Sequence[Segment], new: int) -> list[Segment]:
    """The segments after merging, limited by the `new` texts of this change."""
    sizes = {each: _live_texts(directory, each) for each in segments}
    kept = [each for each in segments if sizes[each]]
    # An edit must not wait for a large merge; a later, larger change does it.
    allowed = max(MIN_MERGE_LIMIT, FANOUT * new)
    while True:
        choice = _choose_merge(directory, kept, sizes)
        if not choice or (sum(sizes[each] for each in choice) > allowed and len(kept) <= MAX_SEGMENTS):
            return kept
        segment = new_segment()
        merge(directory / segment.name, [live_segment(LexicalSegment, directory, each) for each in choice])
        sizes[segment] = sum(sizes[each] for each in choice)
        kept = [each for each in kept if each not in choice] + [segment]


def _choose_merge(directory: Path, kept: Sequence[Segment], sizes: dict[Segment, int]) -> list[Segment]:
    """The segments to merge next: FANOUT of the smallest full size class, or one that is more than half deleted."""
    classes: dict[int, list[Segment]] = {}
    for each in kept:
        # 1e-9: the logarithm of an exact power may be just below the whole number.
        classes.setdefault(int(np.log(sizes[each]) / np.log(FANOUT) + 1e-9), []).append(each)
    full = [classes[number] for number in sorted(classes) if len(classes[number]) >= FANOUT]
    if full:
        return full[0]
    wasted = (each for each in kept if open_segment(LexicalSegment, directory / each.name).size > 2 * sizes[each])
    return next(([each] for each in wasted), [])
