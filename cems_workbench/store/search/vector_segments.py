"""Vectors of one embedder in memory-mapped segments: what a search reads, in single precision, with int8 codes of large segments.

A scan of all codes takes 7 ms per 500,000 vectors on one core, with any filter; the nearest by their codes are rescored in single
precision, so the result is exact.

A unit vector v is stored as codes c in -127…127 and a step s, with v ≈ s c; so is the query. The error of a dot product is a sum of
many errors, each uniform within half a step: its standard deviation is sqrt((s² + s_query²) / 12). A vector more than RESCORE_SIGMAS
of these below the k-th best is not among the k best; the error of the k-th best itself shrinks with k.

A refresh writes new rows to a new segment, and marks the memories that they replace as deleted in earlier ones. Segments of similar size
are merged FAN_IN at a time, so a vector is rewritten once each time its segment grows by that factor, and a small change never rewrites a
large segment.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cems_workbench.models.protocol import Float32
from cems_workbench.store.filter import ANY, Filter
from cems_workbench.store.search import entries
from cems_workbench.store.search.columns import Column, create_columns, text_columns
from cems_workbench.store.search.directory import Segment, delete_more, new_segment
from cems_workbench.store.search.segments import (
    SHARED_COLUMNS,
    LiveSegment,
    Merge,
    SegmentFile,
    live_segment,
    open_segment,
    shared_columns,
)

MAX_CODE = 127
RESCORE_SIGMAS = 5.0
"""Assumed maximum error of a quantized cosine, in standard deviations of the rounding error."""
MAX_COPY_SHARE = 0.5
"""Up to this share of passing rows, a copy of them is cached and scanned: for 380,000 of a million, 36 ms once, then 6 ms instead of 16."""
MAX_CACHED_FILTERS = 16
"""Cached filters; their copies never have more rows in total than the segments."""
RESCORE_ROWS = 8_192
"""Candidates that are read in single precision at a time: many equal vectors, or many chunks of few memories, are many candidates."""
SEARCH_THREADS = min(4, os.cpu_count() or 1)
SINGLE_THREAD_ROWS = 300_000
"""Up to this many rows a single thread scans (4 ms): several threads wait for the slowest, 8 ms on a busy machine."""

VERSION = "2"
FAN_IN = 8
"""Segments of similar size that are merged into one."""
MIN_CODED_ROWS = 10_000
"""A segment of fewer vectors has no codes in its file: they are computed in 15 ms when they are first searched."""
MERGE_BLOCK_ROWS = 50_000
"""Vectors copied at a time in a merge."""


_NO_VECTORS: Float32 = np.empty((0, 0), np.float32)


def quantize(vectors: Float32) -> tuple[NDArray[np.int8], Float32]:
    """Codes (rows, dimension) and steps (rows) of the normalised vectors; zeros for a zero vector."""
    lengths = np.linalg.norm(vectors, axis=1)
    largest = np.abs(vectors).max(axis=1, initial=0)
    # A zero vector has no direction, and gets zeros.
    scale = np.where(largest > 0, largest, 1)
    codes = np.rint(vectors * (MAX_CODE / scale)[:, None]).astype(np.int8)
    return codes, np.asarray(largest / MAX_CODE / np.where(lengths > 0, lengths, 1), np.float32)


class VectorSegment(SegmentFile):
    """An open segment: some memories with all their vectors, which are its rows, in the order of their ids and chunks."""

    KIND = "vector index"
    COLUMNS = SHARED_COLUMNS | {
        "vectors": "the vectors, float32, shape (vectors, dimension)",
        "codes": "the same as int8; empty in a small segment",
        "steps": "what one unit of each vector's codes is worth; empty in a small segment",
    }

    @property
    def vectors(self) -> Float32:
        return self.columns["vectors"]

    @cached_property
    def quantized(self) -> tuple[NDArray[np.int8], Float32]:
        """The vectors as codes and steps: those of the file, or computed once for a small segment (1.5 µs a vector)."""
        codes, steps = self.columns["codes"], self.columns["steps"]
        return (codes, steps) if len(steps) == len(self.vectors) else quantize(self.vectors)

    @cached_property
    def max_step(self) -> float:
        return float(self.quantized[1].max(initial=0))


@dataclass(frozen=True, slots=True, eq=False)
class VectorRows:
    """Vectors with their entries and filter labels, shape (rows, dimension)."""

    entry_ids: list[entries.EntryId]
    projects: list[str | None]
    scopes: list[str | None]
    vectors: Float32

    def __len__(self) -> int:
        return len(self.entry_ids)

    def labels(self, row: int) -> tuple[str | None, str | None]:
        return self.projects[row], self.scopes[row]

    def take(self, rows: Sequence[int]) -> VectorRows:
        return VectorRows(
            [self.entry_ids[row] for row in rows],
            [self.projects[row] for row in rows],
            [self.scopes[row] for row in rows],
            self.vectors[list(rows)],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Vectors sorted by memory id and chunk; `starts` has the first row of each memory, None if each has one row."""

    ids: list[str]
    chunks: list[int | None]
    starts: NDArray[np.intp] | None
    vectors: Float32


class _FilteredRows:
    def __init__(self, live: LiveSegment[VectorSegment], where: Filter) -> None:
        segment = live.segment
        mask = segment.masks.mask(where)
        if len(live.deleted):
            # A copy: the mask is cached and shared with the segment's other users.
            mask = np.ones(len(segment.vectors), bool) if mask is None else mask.copy()
            mask[segment.all_rows(live.deleted)] = False
        self.segment = segment
        self.mask: NDArray[np.bool_] | None = mask
        """Shape (rows); None if all pass."""
        self.count = self.memories = len(segment.vectors) if mask is None else int(np.count_nonzero(mask))
        self.copied = mask is not None and self.count <= MAX_COPY_SHARE * len(mask)
        """Whether a scan copies the passing codes."""
        if segment.starts is not None and self.count:
            passing = np.ones(len(segment.vectors), bool) if mask is None else mask
            self.memories = int(np.count_nonzero(np.logical_or.reduceat(passing, segment.starts[:-1])))

    def row_numbers(self) -> NDArray[np.int64]:
        if self.mask is None:
            return np.arange(len(self.segment.vectors))
        return np.flatnonzero(self.mask).astype(np.int64)

    @cached_property
    def scan(self) -> tuple[NDArray[np.int64] | None, NDArray[np.int8], Float32, Float32 | None]:
        """What a scan reads: the row numbers (None: all), their codes and steps, and an upper bound of each cosine or
        None. The bound is -inf for a row that does not pass; it is ten times faster than the mask."""
        codes, steps = self.segment.quantized
        if self.mask is None:
            return None, codes, steps, None
        if self.copied:
            rows = self.row_numbers()
            # mode="clip" skips the bounds check: ten times faster.
            return rows, np.take(codes, rows, axis=0, mode="clip"), steps[rows], None
        return None, codes, steps, np.where(self.mask, np.float32(np.inf), np.float32(-np.inf))


class SegmentVectors:
    """The vectors of one embedder, as of the last refresh."""

    def __init__(self, segments: Sequence[LiveSegment[VectorSegment]]) -> None:
        self._segments = segments
        self._filtered_cache: dict[Filter, list[_FilteredRows]] = {}
        self._cache_lock = threading.Lock()

    def __len__(self) -> int:
        return self.count(ANY)

    @property
    def dimension(self) -> int | None:
        """The vectors' dimension; None without vectors."""
        return int(self._segments[0].segment.vectors.shape[1]) if self._segments else None

    def count(self, where: Filter) -> int:
        return sum(each.count for each in self._filtered(where))

    def memories(self, where: Filter) -> int:
        return sum(each.memories for each in self._filtered(where))

    def keeps(self, memory_id: str) -> bool:
        """Whether its files have a vector of a memory, deleted or not."""
        return any(part.segment.ids.find(memory_id) >= 0 for part in self._segments)

    def by_memory(self, ids: Sequence[str]) -> dict[str, dict[int | None, Float32]]:
        """By memory id its vectors by chunk number (None: whole memory); ids without a vector are absent."""
        found: dict[str, dict[int | None, Float32]] = {}
        for memory_id in ids:
            for live in self._segments:
                memory = live.segment.ids.find(memory_id)
                if memory >= 0 and not live.is_deleted(memory):
                    rows = live.segment.rows_of(memory)
                    # Copies: a view would keep the whole file mapped.
                    found[memory_id] = {live.segment.chunk_of(row): live.segment.vectors[row].copy() for row in rows}
                    break
        return found

    def rows_of(self, ids: Sequence[str]) -> VectorRows:
        """All vectors of these memories, unordered."""
        parts = [
            rows_at(live.segment, live.segment.all_rows(np.setdiff1d(live.segment.ids.find_all(ids), live.deleted)))
            for live in self._segments
        ]
        return concatenate(parts)

    def blocks(self, rows: int) -> Iterator[VectorRows]:
        """All vectors, at most `rows` at a time."""
        for live, passing in zip(self._segments, self._filtered(ANY), strict=True):
            numbers = passing.row_numbers()
            for start in range(0, len(numbers), rows):
                yield rows_at(live.segment, numbers[start : start + rows])

    def matrix(self, where: Filter) -> Matrix:
        """Every passing vector, copied into one array."""
        parts = [
            (live.segment, part.row_numbers()) for live, part in zip(self._segments, self._filtered(where), strict=True)
        ]
        entry_ids = [entry_id for segment, rows in parts for entry_id in segment.entries_at(rows)]
        order = sorted(range(len(entry_ids)), key=lambda i: entries.sort_key(entry_ids[i]))
        vectors = np.concatenate([segment.vectors[rows] for segment, rows in parts])[order] if parts else _NO_VECTORS
        ids = [entry_ids[i][0] for i in order]
        return Matrix(ids, [entry_ids[i][1] for i in order], entries.group_starts(ids), vectors)

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

    def search(self, unit: Float32, k: int, where: Filter) -> entries.ChunkHits:
        """The exact cosines of the nearest chunks with `unit` (shape (dimension,), length 1), as many as cover k
        memories. Best first, ties by id and chunk."""
        hits: entries.ChunkHits = []
        for segment, rows in self.candidates(unit, k, where):
            cosines = np.empty(len(rows), np.float32)
            for start in range(0, len(rows), RESCORE_ROWS):
                matrix = segment.vectors[rows[start : start + RESCORE_ROWS]]
                lengths = np.maximum(np.linalg.norm(matrix, axis=1), 1e-12)
                cosines[start : start + RESCORE_ROWS] = (matrix @ unit) / lengths
            best = entries.top_memories(cosines, None if segment.starts is None else _first_rows(segment, rows), k)
            hits += [
                (memory_id, cosine, seq)
                for (memory_id, seq), cosine in zip(segment.entries_at(rows[best]), cosines[best].tolist(), strict=True)
            ]
        return entries.truncate_to_memories(
            sorted(hits, key=lambda hit: (-hit[1], *entries.sort_key((hit[0], hit[2])))), k
        )

    def candidates(self, query: Float32, k: int, where: Filter) -> list[tuple[VectorSegment, NDArray[np.int64]]]:
        """Passing rows that include the k memories nearest to `query` (shape (dimension,)), each with its nearest
        chunks. Unordered; all rows that may rank at or above the k-th memory's best one are included."""
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
        return [
            (part.segment, rows_near if rows is None else rows[rows_near])
            for part, (rows, _), rows_near in zip(self._segments, scored, near, strict=True)
            if len(rows_near)
        ]

    def _filtered(self, where: Filter) -> list[_FilteredRows]:
        where = ANY if where.trivial else where
        filtered = self._filtered_cache.get(where)
        if filtered is None:
            # Outside the lock: two threads may compute the same, which is harmless.
            filtered = [_FilteredRows(part, where) for part in self._segments]
            room = sum(len(part.segment.vectors) for part in self._segments) - _copied_rows(filtered)
            with self._cache_lock:
                while self._filtered_cache and (
                    len(self._filtered_cache) >= MAX_CACHED_FILTERS
                    or sum(map(_copied_rows, self._filtered_cache.values())) > room
                ):
                    del self._filtered_cache[next(iter(self._filtered_cache))]
                self._filtered_cache[where] = filtered
        return filtered


def _copied_rows(parts: Sequence[_FilteredRows]) -> int:
    return sum(part.count for part in parts if part.copied)


def _cosines(passing: _FilteredRows, query: NDArray[np.int8], step: float) -> tuple[NDArray[np.int64] | None, Float32]:
    """The scanned rows (None: all) and their quantized cosines; -inf for a row that does not pass."""
    import simsimd

    if not passing.count:
        return np.zeros(0, np.int64), np.zeros(0, np.float32)
    rows, codes, steps, ceiling = passing.scan
    threads = 1 if len(codes) <= SINGLE_THREAD_ROWS else SEARCH_THREADS
    products = np.asarray(simsimd.cdist(query, codes, "dot", threads=threads))[0]
    cosines = products.astype(np.float32) * steps * np.float32(step)
    if ceiling is not None:
        np.minimum(cosines, ceiling, out=cosines)
    return rows, cosines


def rows_at(segment: VectorSegment, rows: NDArray[np.int64]) -> VectorRows:
    """These rows, copied."""
    projects, scopes = segment.labels["projects"], segment.labels["scopes"]
    labels = segment.columns["filters"][rows].tolist()
    return VectorRows(
        segment.entries_at(rows),
        [projects[project] for project, _ in labels],
        [scopes[scope] for _, scope in labels],
        segment.vectors[rows],
    )


def concatenate(parts: Sequence[VectorRows]) -> VectorRows:
    vectors = [part.vectors for part in parts if len(part)]
    return VectorRows(
        [entry_id for part in parts for entry_id in part.entry_ids],
        [project for part in parts for project in part.projects],
        [scope for part in parts for scope in part.scopes],
        np.concatenate(vectors) if vectors else _NO_VECTORS,
    )


def _best_per_memory(segment: VectorSegment, rows: NDArray[np.int64] | None, cosines: Float32) -> Float32:
    """The best cosine of each memory in these rows."""
    if segment.starts is None or not len(cosines):
        return cosines
    if rows is None:
        best: Float32 = np.maximum.reduceat(cosines, segment.starts[:-1])
        return best
    return np.maximum.reduceat(cosines, _first_rows(segment, rows))


def _first_rows(segment: VectorSegment, rows: NDArray[np.int64]) -> NDArray[np.intp]:
    """The positions in `rows` at which another memory starts."""
    return np.flatnonzero(np.diff(segment.memories_of(rows), prepend=-1))


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


def manifest_version(collection: str) -> str:
    """The `tokenizer` field of the manifest: the format version and the id under which the vectors are recorded."""
    return f"{VERSION}:{collection}"


def open_vectors(directory: Path, segments: Sequence[Segment]) -> SegmentVectors:
    """The vectors of these segments. Raises StoreError."""
    return SegmentVectors([live_segment(VectorSegment, directory, each) for each in segments])


def replace_rows(
    directory: Path, segments: Sequence[Segment], replaced: Sequence[str], rows: VectorRows, kept: int = 2
) -> tuple[list[Segment], int]:
    """The segments with all vectors of the memories `replaced` deleted and `rows` added, and their number of vectors. Those are written
    again that have more than `kept` times as many vectors as are not deleted."""
    before = list(segments)
    if replaced:
        before = [
            delete_more(directory, each, open_segment(VectorSegment, directory / each.name).ids.find_all(replaced))
            for each in segments
        ]
    added = [_write_segment(directory, rows)] if len(rows) else []
    merged = _merge_similar(directory, [*before, *added], kept)
    return merged, sum(_live_rows(directory, each) for each in merged)


def _write_segment(directory: Path, rows: VectorRows) -> Segment:
    order = sorted(range(len(rows)), key=lambda i: entries.sort_key(rows.entry_ids[i]))
    entry_ids = [rows.entry_ids[i] for i in order]
    seqs = np.array([entries.sort_key(entry_id)[1] for entry_id in entry_ids], np.int32)
    labels = entries.Labels()
    filters = np.array([labels.numbers(rows.projects[i], rows.scopes[i]) for i in order], np.int32)
    first = [i for i, entry_id in enumerate(entry_ids) if not i or entry_id[0] != entry_ids[i - 1][0]]
    ids, sizes = text_columns(entry_ids[i][0] for i in first), np.diff(first, append=len(entry_ids))
    columns = shared_columns(ids, sizes, seqs, filters, labels)
    segment, arrays = _create_segment(directory, columns, len(rows), rows.vectors.shape[1])
    arrays["vectors"][...] = rows.vectors[order]
    if len(arrays["steps"]):
        arrays["codes"][...], arrays["steps"][...] = quantize(arrays["vectors"])
    return segment


def _create_segment(
    directory: Path, columns: dict[str, Column], rows: int, dimension: int
) -> tuple[Segment, dict[str, Column]]:
    """A new segment's file with these columns, and its arrays with zeroed vectors, codes and steps."""
    segment, coded = new_segment(), rows if rows >= MIN_CODED_ROWS else 0
    arrays: dict[str, Any] = {"vectors": (np.float32, (rows, dimension))}
    arrays |= {"codes": (np.int8, (coded, dimension)), "steps": (np.float32, (coded,))}
    return segment, create_columns(directory / segment.name, columns, arrays)


def _live_rows(directory: Path, segment: Segment) -> int:
    return live_segment(VectorSegment, directory, segment).size


def _merge_similar(directory: Path, segments: Sequence[Segment], kept: int) -> list[Segment]:
    """Merge the newest segments if FAN_IN of them are of similar size; rewrite those of which too much is deleted."""
    sized = [(each, size) for each in segments if (size := _live_rows(directory, each))]
    while sized:
        tier = _tier(sized[-1][1])
        small = next((i for i, (_, size) in enumerate(reversed(sized)) if _tier(size) > tier), len(sized))
        if small < FAN_IN:
            break
        merged = _merge(directory, [each for each, _ in sized[-small:]])
        sized[-small:] = [(merged, _live_rows(directory, merged))]
    return [
        _merge(directory, [each]) if open_segment(VectorSegment, directory / each.name).size > kept * size else each
        for each, size in sized
    ]


def _tier(rows: int) -> int:
    """Segments of the same tier are of similar size: FAN_IN of one make one of the next."""
    tier = 0
    while rows >= FAN_IN:
        rows, tier = rows // FAN_IN, tier + 1
    return tier


def _merge(directory: Path, segments: Sequence[Segment]) -> Segment:
    whole = Merge([live_segment(VectorSegment, directory, each) for each in segments])
    dimension = whole.segments[0].vectors.shape[1]
    segment, arrays = _create_segment(directory, whole.columns(), whole.size, dimension)
    for part, rows, new in zip(whole.segments, whole.rows, whole.new_rows, strict=True):
        for start in range(0, len(rows), MERGE_BLOCK_ROWS):
            block, target = rows[start : start + MERGE_BLOCK_ROWS], new[start : start + MERGE_BLOCK_ROWS]
            arrays["vectors"][target] = part.vectors[block]
            if len(arrays["steps"]):
                codes, steps = part.quantized
                arrays["codes"][target], arrays["steps"][target] = codes[block], steps[block]
    return segment
