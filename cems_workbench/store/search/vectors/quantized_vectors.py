"""Scalar-quantized (int8) vectors: candidate search under filters, with rescoring in single precision.

An HNSW search finds too few vectors that pass a filter, and a filtered HNSW search first lists all that pass. A scan of all int8 codes
takes 7 ms per 500,000 vectors on one core, with any filter; the nearest are rescored from Chroma's vectors.

A unit vector v is stored as codes c in -127…127 and a step s, with v ≈ s c; so is the query. The error of a dot product is a sum of
many errors, each uniform within half a step: its standard deviation is sqrt((s² + s_query²) / 12). A vector more than RESCORE_SIGMAS
of these below the k-th best is not among the k best; the error of the k-th best itself shrinks with k.

The codes are stored in segments (segment_directory.py); a refresh writes only changed vectors.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import StoreError
from cems_workbench.models.protocol import Float32
from cems_workbench.store.filter import ANY, Filter
from cems_workbench.store.search.directory import column_file
from cems_workbench.store.search.directory.column_file import Column
from cems_workbench.store.search.entries import WHOLE_MEMORY, EntryId
from cems_workbench.store.search.filter_masks import FilterMasks
from cems_workbench.store.search.lexical.sorted_texts import SortedTexts

MAX_CODE = 127
RESCORE_SIGMAS = 5.0
"""Assumed maximum error of a quantized cosine, in standard deviations of the rounding error."""
MAX_COPY_SHARE = 0.5
"""Up to this share of passing rows, a copy of them is cached and scanned: for 380,000 of a million, 36 ms once, then 6 ms instead of 16."""
MAX_CACHED_FILTERS = 16
"""Cached filters; their copies never have more rows in total than the segments."""
MIN_RESCORE_LIMIT = 4_000
"""At most this many candidates, or ten times k, are rescored; only a large set of equal vectors has more."""
SEARCH_THREADS = min(4, os.cpu_count() or 1)
SINGLE_THREAD_ROWS = 300_000
"""Up to this many rows a single thread scans (4 ms): several threads wait for the slowest, 8 ms on a busy machine."""

COLUMNS = {
    "ids": "the ids of its memories, in order, as bytes",
    "id_ends": "where each id ends",
    "starts": "the first vector of each memory, and the number of vectors; empty where each memory has one",
    "seqs": "the number of the chunk that each vector is of, -1 for a whole memory; empty where all are",
    "filters": "project and scope of each vector, as numbers of the labels, shape (vectors, 2)",
    "labels": "the projects and scopes, as JSON",
    "codes": "the vectors, int8, shape (vectors, dimension)",
    "steps": "what one unit of each vector's codes is worth",
}
"""The arrays in a segment's file."""


def quantize(vectors: Float32) -> tuple[NDArray[np.int8], Float32]:
    """Codes (rows, dimension) and steps (rows) of the normalised vectors; zeros for a zero vector."""
    lengths = np.linalg.norm(vectors, axis=1)
    largest = np.abs(vectors).max(axis=1, initial=0)
    # A zero vector has no direction, and gets zeros.
    scale = np.where(largest > 0, largest, 1)
    codes = np.rint(vectors * (MAX_CODE / scale)[:, None]).astype(np.int8)
    return codes, np.asarray(largest / MAX_CODE / np.where(lengths > 0, lengths, 1), np.float32)


class QuantizedSegment:
    """An open segment: some memories with all their vectors, in the order of their ids and chunks."""

    def __init__(self, path: Path) -> None:
        """Open a segment's file. Raises StoreError if it is missing or damaged."""
        try:
            columns = column_file.read(path)
            self.columns: dict[str, Column] = {name: columns[name] for name in COLUMNS}
            self.labels: dict[str, list[str | None]] = json.loads(self.columns["labels"].tobytes())
            self.masks = FilterMasks(self.columns["filters"], self.labels)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"quantized vectors {path} are damaged ({error}); doctor --repair rebuilds them"
            ) from error
        self.ids = SortedTexts(self.columns["ids"], self.columns["id_ends"])
        self.codes: NDArray[np.int8] = self.columns["codes"]
        self.steps: Float32 = self.columns["steps"]
        self.starts: NDArray[np.int64] | None = self.columns["starts"] if len(self.columns["starts"]) else None

    @cached_property
    def max_step(self) -> float:
        """The largest step."""
        return float(self.steps.max(initial=0))

    def rows_of(self, memory: int) -> range:
        """The rows of a memory, by its number."""
        if self.starts is None:
            return range(memory, memory + 1)
        return range(int(self.starts[memory]), int(self.starts[memory + 1]))

    def all_rows(self, memories: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of these memories."""
        if self.starts is None:
            return memories
        rows = [np.arange(self.starts[memory], self.starts[memory + 1]) for memory in memories.tolist()]
        return np.concatenate(rows) if rows else memories

    def memories_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The memory number of each row."""
        return rows if self.starts is None else np.searchsorted(self.starts, rows, side="right") - 1

    def chunk_of(self, row: int) -> int | None:
        """The chunk number of a row; None for a whole memory."""
        seqs = self.columns["seqs"]
        return int(seqs[row]) if len(seqs) and seqs[row] != WHOLE_MEMORY else None


_open_segments: weakref.WeakValueDictionary[tuple[str, int], QuantizedSegment] = weakref.WeakValueDictionary()


def open_segment(path: Path) -> QuantizedSegment:
    """The segment of a file, one shared object per file: names are never reused. Raises StoreError."""
    try:
        key = str(path), path.stat().st_ino
    except OSError as error:
        raise StoreError(f"quantized vectors {path} are missing; doctor --repair rebuilds them") from error
    segment = _open_segments.get(key)
    if segment is None:
        segment = _open_segments[key] = QuantizedSegment(path)
    return segment


@dataclass(frozen=True, slots=True, eq=False)
class LiveSegment:
    """A segment and its deleted memories' numbers, ascending."""

    segment: QuantizedSegment
    deleted: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _FilteredRows:
    """The rows of a segment that pass a filter."""

    count: int
    memories: int
    mask: NDArray[np.bool_] | None
    """Shape (rows); None if all pass."""
    rows: NDArray[np.int64] | None
    """The passing row numbers if they are few, else None."""
    codes: NDArray[np.int8]
    """Those of `rows`, or all."""
    steps: Float32
    ceiling: Float32 | None
    """If many rows pass: an upper bound of each cosine, -inf for a row that does not pass; ten times faster than the mask."""


class QuantizedVectors:
    """The quantized vectors of one embedder, as of the last refresh."""

    def __init__(self, segments: Sequence[LiveSegment]) -> None:
        self._segments = segments
        self._filtered_cache: dict[Filter, list[_FilteredRows]] = {}
        self._cache_lock = threading.Lock()

    def __len__(self) -> int:
        """Number of vectors."""
        return self.count(ANY)

    @property
    def dimension(self) -> int | None:
        """The vectors' dimension; None without vectors."""
        return self._segments[0].segment.codes.shape[1] if self._segments else None

    def count(self, where: Filter) -> int:
        """How many vectors pass."""
        return sum(each.count for each in self._filtered(where))

    def memories(self, where: Filter) -> int:
        """How many memories have a vector that passes."""
        return sum(each.memories for each in self._filtered(where))

    def passes(self, entry_id: EntryId, where: Filter) -> bool:
        """Whether this entry has a vector that passes."""
        for live, passing in zip(self._segments, self._filtered(where), strict=True):
            memory = live.segment.ids.find(entry_id[0])
            if memory < 0 or _contains(memory, live.deleted):
                continue
            for row in live.segment.rows_of(memory):
                if live.segment.chunk_of(row) == entry_id[1]:
                    return passing.mask is None or bool(passing.mask[row])
        return False

    def chunks_of(self, memory_id: str) -> list[int | None]:
        """The chunk numbers of a memory (None: whole); empty if it has no vector."""
        for live in self._segments:
            memory = live.segment.ids.find(memory_id)
            if memory >= 0 and not _contains(memory, live.deleted):
                return [live.segment.chunk_of(row) for row in live.segment.rows_of(memory)]
        return []

    def ids(self, where: Filter) -> list[str]:
        """The memories with a vector that passes, unordered."""
        ids: list[str] = []
        for live, passing in zip(self._segments, self._filtered(where), strict=True):
            if passing.mask is None:
                ids += live.segment.ids
            else:
                memories = np.unique(live.segment.memories_of(np.flatnonzero(passing.mask)))
                ids += [live.segment.ids[i] for i in memories.tolist()]
        return ids

    def candidates(self, query: Float32, k: int, where: Filter) -> list[EntryId]:
        """Passing entries that include the k memories nearest to `query` (shape (dimension,)), each with its nearest chunks.

        Unordered; all entries that may rank at or above the k-th memory's best one are included.
        """
        codes, step = quantize(query[None, :])
        scored = [_cosines(passing, codes, float(step[0])) for passing in self._filtered(where)]
        best = [_best_per_memory(part.segment, *each) for part, each in zip(self._segments, scored, strict=True)]
        kth_best = kth_largest(np.concatenate(best) if len(best) > 1 else best[0], k) if best else -np.inf
        max_step = max((part.segment.max_step for part in self._segments), default=0)
        deviation = np.sqrt((max_step**2 + float(step[0]) ** 2) / 12)
        threshold = kth_best - RESCORE_SIGMAS * (1 + 1 / np.sqrt(max(1, k))) * deviation
        near = [
            np.flatnonzero(cosines >= threshold) if threshold > -np.inf else np.flatnonzero(cosines > -np.inf)
            for _, cosines in scored
        ]
        limit = max(MIN_RESCORE_LIMIT, 10 * k)
        if sum(map(len, near)) > limit:
            # Only a large set of equal vectors exceeds the limit.
            threshold = kth_largest(
                np.concatenate([cosines[own] for (_, cosines), own in zip(scored, near, strict=True)]), limit
            )
            near = [own[cosines[own] >= threshold][:limit] for (_, cosines), own in zip(scored, near, strict=True)]
        entry_ids: list[EntryId] = []
        for part, (rows, _), rows_near in zip(self._segments, scored, near, strict=True):
            numbers = rows_near if rows is None else rows[rows_near]
            memories = part.segment.memories_of(numbers).tolist()
            entry_ids += [
                (part.segment.ids[memory], part.segment.chunk_of(row))
                for memory, row in zip(memories, numbers.tolist(), strict=True)
            ]
        return entry_ids

    def _filtered(self, where: Filter) -> list[_FilteredRows]:
        where = ANY if where.trivial else where
        filtered = self._filtered_cache.get(where)
        if filtered is None:
            # Outside the lock: two threads may compute the same, which is harmless.
            filtered = [_filter_rows(part, where) for part in self._segments]
            room = sum(len(part.segment.codes) for part in self._segments) - _copied_rows(filtered)
            with self._cache_lock:
                while self._filtered_cache and (
                    len(self._filtered_cache) >= MAX_CACHED_FILTERS
                    or sum(map(_copied_rows, self._filtered_cache.values())) > room
                ):
                    del self._filtered_cache[next(iter(self._filtered_cache))]
                self._filtered_cache[where] = filtered
        return filtered


def _filter_rows(live: LiveSegment, where: Filter) -> _FilteredRows:
    segment = live.segment
    mask = segment.masks.mask(where)
    if len(live.deleted):
        # A copy: the mask is cached and shared with the segment's other users.
        mask = np.ones(len(segment.codes), bool) if mask is None else mask.copy()
        mask[segment.all_rows(live.deleted)] = False
    codes, steps = segment.codes, segment.steps
    if mask is None:
        return _FilteredRows(len(codes), len(segment.ids), None, None, codes, steps, None)
    count = memories = int(np.count_nonzero(mask))
    rows = ceiling = None
    if count <= MAX_COPY_SHARE * len(mask):
        rows = np.flatnonzero(mask)
        # mode="clip" skips the bounds check: ten times faster.
        codes, steps = np.take(codes, rows, axis=0, mode="clip"), steps[rows]
    else:
        ceiling = np.where(mask, np.float32(np.inf), np.float32(-np.inf))
    if segment.starts is not None:
        memories = int(np.count_nonzero(np.logical_or.reduceat(mask, segment.starts[:-1]))) if len(mask) else 0
    return _FilteredRows(count, memories, mask, rows, codes, steps, ceiling)


def _copied_rows(parts: Sequence[_FilteredRows]) -> int:
    """The number of copied rows."""
    return sum(0 if part.rows is None else len(part.rows) for part in parts)


def _cosines(passing: _FilteredRows, query: NDArray[np.int8], step: float) -> tuple[NDArray[np.int64] | None, Float32]:
    """The scanned rows (None: all) and their quantized cosines; -inf for a row that does not pass."""
    import simsimd

    if not passing.count:
        return np.zeros(0, np.int64), np.zeros(0, np.float32)
    threads = 1 if len(passing.codes) <= SINGLE_THREAD_ROWS else SEARCH_THREADS
    products = np.asarray(simsimd.cdist(query, passing.codes, "dot", threads=threads))[0]
    cosines = products.astype(np.float32) * passing.steps * np.float32(step)
    if passing.ceiling is not None:
        np.minimum(cosines, passing.ceiling, out=cosines)
    return passing.rows, cosines


def _best_per_memory(segment: QuantizedSegment, rows: NDArray[np.int64] | None, cosines: Float32) -> Float32:
    """The best cosine of each memory in these rows."""
    if segment.starts is None or not len(cosines):
        return cosines
    if rows is None:
        best: Float32 = np.maximum.reduceat(cosines, segment.starts[:-1])
        return best
    first = np.flatnonzero(np.diff(segment.memories_of(rows), prepend=-1))
    return np.maximum.reduceat(cosines, first)


def kth_largest(values: Float32, k: int) -> float:
    """The k-th largest value, or -inf if there are fewer."""
    if k > len(values):
        return -np.inf
    block = len(values) // (8 * k)
    if block > 1:
        # The k-th largest block maximum is a lower bound of the k-th largest value.
        largest = values[: len(values) // block * block].reshape(-1, block).max(axis=1)
        values = values[values >= np.partition(largest, len(largest) - k)[len(largest) - k]]
    return float(np.partition(values, len(values) - k)[len(values) - k])


def _contains(number: int, numbers: NDArray[np.int64]) -> bool:
    position = int(np.searchsorted(numbers, number))
    return position < len(numbers) and int(numbers[position]) == number
