"""Merge of lexical segments into one, without their deleted memories.

Postings are merged in blocks directly into the new file; memory use is a few numbers per text and term.

Refresh of the lexical index: writes a segment for changed memories and marks the replaced ones as deleted.

Tiered merging, as in Lucene: FANOUT segments of one size class make one of the next, so that a memory is rewritten about once per class.
The size of a merge is limited by that of the change, so an edit never waits for a large merge; a later, larger change does it, unless
there are more than MAX_SEGMENTS.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cems_workbench.progress import Progress
from cems_workbench.records import ENGLISH
from cems_workbench.store.search import sorted_texts, tokenizer
from cems_workbench.store.search.directory import index_directory
from cems_workbench.store.search.directory.index_directory import Column, Manifest, compact, smallest_dtype
from cems_workbench.store.search.directory.segment_directory import (
    Segment,
    delete_more,
    new_segment,
    publish,
    read_deleted,
)
from cems_workbench.store.search.entries import WHOLE_MEMORY, Document
from cems_workbench.store.search.lexical_segment import (
    LexicalSegment,
    SegmentDraft,
    assemble_columns,
    open_segment,
    spans,
)
from cems_workbench.store.search.sorted_texts import SortedTexts
from cems_workbench.store.search.tokenizer import Language

if TYPE_CHECKING:
    import pyarrow as pa


BLOCK_POSTINGS = 4_000_000
"""Postings, or words of memories, merged at a time."""


@dataclass(frozen=True, slots=True)
class LiveSegment:
    """A segment and the numbers of the memories in it that are deleted, ascending."""

    segment: LexicalSegment
    deleted: NDArray[np.int64]

    @property
    def memories(self) -> int:
        """Number of memories that are not deleted."""
        return len(self.segment.ids) - len(self.deleted)


def merge(path: Path, parts: Sequence[LiveSegment]) -> None:
    """Write a segment of the live memories of these. Raises OSError."""
    whole = _MergedSegment([_Part(part) for part in parts])
    parts_of, terms, words = whole.parts, whole.terms, whole.words
    kinds = (part.segment.counts.dtype for part in parts_of)
    postings = np.concatenate(([0], np.cumsum(terms.counts)))
    word_ends = np.cumsum(whole.in_order([part.word_sizes for part in parts_of]))
    columns: dict[str, Column] = whole.columns() | {
        "postings": compact(postings),
        "word_counts": compact(words.counts),
        "memory_word_ends": compact(word_ends),
    }
    made = index_directory.create_columns(
        path,
        {name: (column.dtype, column.shape) for name, column in columns.items()}
        | {
            "documents": (np.dtype(np.int32), [int(terms.counts.sum())]),
            "counts": (np.result_type(np.uint8, *kinds), [int(terms.counts.sum())]),
            "memory_words": (smallest_dtype(len(words)), [int(words.counts.sum())]),
        },
    )
    for name, column in columns.items():
        made[name][...] = column
    for first, last in _blocks(postings):
        _merge_postings(whole, first, last, made)
    for part, number in zip(parts_of, words.numbers, strict=True):
        _copy_words(part, number, word_ends, made["memory_words"])


class _Part:
    """A segment with the new numbers of its memories and texts."""

    def __init__(self, part: LiveSegment) -> None:
        self.segment = part.segment
        live = np.ones(len(part.segment.ids), bool)
        live[part.deleted] = False
        self.live = np.flatnonzero(live)
        self.all_live = not len(part.deleted)
        self.memory_numbers: NDArray[np.int64]
        self.text_numbers: NDArray[np.int64]
        """New number of each text, -1 if deleted."""

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Number of texts of each live memory."""
        starts = self.segment.starts
        if starts is None:
            return np.ones(len(self.live), np.int64)
        return np.diff(starts)[self.live].astype(np.int64)

    @cached_property
    def texts(self) -> NDArray[np.int32]:
        """The live texts."""
        return self.segment.all_texts(self.live)

    @cached_property
    def word_sizes(self) -> NDArray[np.int64]:
        """Number of words of each live memory."""
        ends = self.segment["memory_word_ends"].astype(np.int64)
        return np.diff(np.concatenate([np.zeros(1, np.int64), ends]))[self.live]

    @cached_property
    def term_counts(self) -> NDArray[np.int64]:
        """Number of live texts with each term."""
        postings: NDArray[np.int64] = self.segment["postings"].astype(np.int64)
        documents = self.segment.documents
        # The usual case needs no pass over the postings.
        if self.all_live:
            return postings[1:] - postings[:-1]
        live = np.zeros(self.segment.size, bool)
        live[self.texts] = True
        found = np.zeros(len(postings) - 1, np.int64)
        for first, last in _blocks(postings):
            before = np.concatenate(([0], np.cumsum(live[documents[postings[first] : postings[last]]])))
            found[first:last] = np.diff(before[postings[first : last + 1] - postings[first]])
        return found

    @cached_property
    def word_counts(self) -> NDArray[np.int64]:
        """Number of live memories with each word."""
        return word_counts(self.segment, self.live, self.all_live)

    def place(self, memory_numbers: NDArray[np.int64], starts: NDArray[np.int64]) -> None:
        """Set the new numbers of its memories and texts; `starts` has the first text of each memory."""
        self.memory_numbers = memory_numbers
        self.text_numbers = np.full(self.segment.size, -1, np.int64)
        begins = starts[memory_numbers]
        self.text_numbers[self.texts] = spans(begins, begins + self.sizes)


def word_counts(segment: LexicalSegment, live: NDArray[np.int64], all_live: bool) -> NDArray[np.int64]:
    """Number of the memories `live` with each word of a segment."""
    counts: NDArray[np.int64] = segment["word_counts"].astype(np.int64)
    if all_live:
        return counts
    gone = np.ones(len(segment.ids), bool)
    gone[live] = False
    return counts - np.bincount(segment.words_of(np.flatnonzero(gone)), minlength=len(counts))


class _Union:
    """The distinct terms, or words, of several segments that live memories still use."""

    def __init__(self, texts: Sequence[SortedTexts], counts: Sequence[NDArray[np.int64]]) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        used = [np.flatnonzero(each) for each in counts]
        kept = [
            one.arrow() if len(which) == len(one) else one.arrow().take(pa.array(which))
            for one, which in zip(texts, used, strict=True)
        ]
        found = pc.unique(pa.concat_arrays(kept))
        found = found.take(pc.sort_indices(found))
        self.texts = sorted_texts.from_arrow(found)
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


class _MergedSegment:
    """The merged segment."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self.parts = parts
        ids: pa.Array[Any] = pa.concat_arrays([part.segment.ids.arrow().take(pa.array(part.live)) for part in parts])
        self.order = pc.sort_indices(ids).to_numpy(zero_copy_only=False).astype(np.int64)
        """Sorts the concatenated memories of all parts by id."""
        self.ids = sorted_texts.from_arrow(ids.take(pa.array(self.order)))
        self.sizes = self.in_order([part.sizes for part in parts])
        starts = np.cumsum(self.sizes) - self.sizes
        numbers = np.empty(len(self.order), np.int64)
        numbers[self.order] = np.arange(len(self.order))
        before = 0
        for part in parts:
            part.place(numbers[before : before + len(part.live)], starts)
            before += len(part.live)
        self.size = int(self.sizes.sum())
        self.terms = _Union([part.segment.terms for part in parts], [part.term_counts for part in parts])
        self.words = _Union([part.segment.words for part in parts], [part.word_counts for part in parts])

    def in_order(self, columns: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Values of the memories of each part, sorted by memory id."""
        values: NDArray[np.int64] = np.concatenate(columns)[self.order]
        return values

    def of_texts(self, columns: Sequence[Column], shape: tuple[int, ...] = ()) -> Column:
        """Values of the texts of each part, in their new order."""
        found = np.empty((self.size, *shape), np.int32)
        for part, column in zip(self.parts, columns, strict=True):
            found[part.text_numbers[part.texts]] = column[part.texts]
        return found

    def columns(self) -> dict[str, Column]:
        """All columns except the postings and the words of memories."""
        labels: dict[str, dict[str | None, int]] = {"projects": {}, "scopes": {}}
        filters = []
        for part in self.parts:
            own = np.empty(part.segment["filters"].shape, np.int32)
            for column, (name, codes) in enumerate(labels.items()):
                new = [codes.setdefault(value, len(codes)) for value in part.segment.labels[name]]
                own[:, column] = np.array(new, np.int32)[part.segment["filters"][:, column]]
            filters.append(own)
        none = [part.segment["seqs"] for part in self.parts]
        seqs = [
            each if len(each) else np.full(part.segment.size, WHOLE_MEMORY)
            for each, part in zip(none, self.parts, strict=True)
        ]
        return assemble_columns(
            ids=self.ids,
            sizes=self.sizes,
            seqs=self.of_texts(seqs),
            lengths=self.of_texts([part.segment.lengths for part in self.parts]),
            filters=self.of_texts(filters, (2,)),
            labels=json.dumps({name: list(codes) for name, codes in labels.items()}, ensure_ascii=False),
            terms=self.terms.texts,
            words=self.words.texts,
        )


def _blocks(postings: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of terms of about BLOCK_POSTINGS each, at least one term."""
    first, count = 0, len(postings) - 1
    while first < count:
        last = int(np.searchsorted(postings, postings[first] + BLOCK_POSTINGS, side="right")) - 1
        last = min(count, max(last, first + 1))
        yield first, last
        first = last


def _merge_postings(whole: _MergedSegment, first: int, last: int, made: dict[str, Column]) -> None:
    """Write the postings of the terms from `first` up to `last`."""
    keys, counts = [], []
    for part, numbers in zip(whole.parts, whole.terms.numbers, strict=True):
        used = np.flatnonzero((numbers >= first) & (numbers < last))
        if not len(used):
            continue
        # Unused terms in between only have postings of deleted texts.
        own, end = int(used[0]), int(used[-1]) + 1
        postings = part.segment["postings"][own : end + 1].astype(np.int64)
        texts = part.text_numbers[part.segment.documents[postings[0] : postings[-1]]]
        found = np.repeat(numbers[own:end] - first, np.diff(postings)) * whole.size + texts
        occurs = part.segment.counts[postings[0] : postings[-1]]
        keys.append(found if part.all_live else found[texts >= 0])
        counts.append(occurs if part.all_live else occurs[texts >= 0])
    if not keys:
        return
    key = np.concatenate(keys)
    order = np.argsort(key, kind="stable")  # each part is in order already
    # Blocks are written straight to their place, so memory holds one block at a time.
    place = int(made["postings"][first])
    made["documents"][place : place + len(key)] = key[order] % whole.size
    made["counts"][place : place + len(key)] = np.concatenate(counts)[order]


def _copy_words(part: _Part, numbers: NDArray[np.int64], ends: NDArray[np.int64], made: Column) -> None:
    """Write the words of a part's memories to their new positions."""
    # By the longest memory, so that no block exceeds BLOCK_POSTINGS words.
    step = max(1, BLOCK_POSTINGS // max(1, int(part.word_sizes.max(initial=1))))
    for start in range(0, len(part.live), step):
        some = slice(start, start + step)
        end = ends[part.memory_numbers[some]]
        made[spans(end - part.word_sizes[some], end)] = numbers[part.segment.words_of(part.live[some])]


PROGRESS_LABEL = "indexing words"
MAX_TOKENS = 6_000_000
"""Terms and words held in memory until a segment is written: about 75,000 memories of 40 words, 300 MB."""
FANOUT = 8
MIN_MERGE_LIMIT = 30_000
"""Texts that even the smallest change may merge, in half a second."""
MAX_SEGMENTS = 40
"""With more segments, any pending merge is done."""


def build(
    directory: Path,
    documents: Iterable[Document],
    total: int,
    content_version: int,
    progress: Progress,
    identity: str = "",
    language: str = ENGLISH,
) -> Manifest:
    """Build the index of `documents`, the content with this identity, in a language, and replace the previous one.

    Raises what `progress` raises (Cancelled), and StoreError if it cannot be written; the previous index then stays current.
    """
    return update(directory, (), (), documents, total, content_version, progress, identity, language)


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
    """Remove the memories `changed` from `segments` and add `documents` (in any order, `total` of them).

    Raises as `build` does.
    """

    def write() -> tuple[list[Segment], int]:
        before = [
            delete_more(directory, each, open_segment(directory / each.name).ids.find_all(changed)) for each in segments
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
            made.append(_write_segment(directory, draft))
            draft = SegmentDraft(language)
    if len(draft):
        made.append(_write_segment(directory, draft))
    progress(PROGRESS_LABEL, done, total)
    return made


def _write_segment(directory: Path, draft: SegmentDraft) -> Segment:
    segment = new_segment()
    draft.write(directory / segment.name)
    return segment


def _live(directory: Path, segment: Segment) -> LiveSegment:
    return LiveSegment(open_segment(directory / segment.name), read_deleted(directory, segment))


def _live_texts(directory: Path, segment: Segment) -> int:
    """Number of texts that are not deleted."""
    live = _live(directory, segment)
    return live.segment.size - len(live.segment.all_texts(live.deleted))


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
        merge(directory / segment.name, [_live(directory, each) for each in choice])
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
    return next(([each] for each in kept if open_segment(directory / each.name).size > 2 * sizes[each]), [])
