"""Vectors in 8 bits beside Chroma, for an exact search of whatever a filter lets pass.

A graph that is searched for the nearest of all finds too few of those that pass a filter, and a graph that is searched among those that
pass first lists them. Reading all vectors in 8 bits takes 7 ms for each 500,000 on one core, whatever passes. Of the nearest by their
codes so many are read again in single precision that none can be missed.

A vector v of length 1 is kept as numbers c from -127 to 127 and a step s, with v ≈ s c; so is the query. The product of two is off by
a sum of many small errors, each of them uniform within half a step: its standard deviation is sqrt((s² + s_query²) / 12). What is
further below the k-th best than `DEVIATIONS` of these is not among the k best; the k-th best by codes is itself off by less, the
larger k is, because the errors of many even out.

The codes are kept in segments (segment_home.py): a refresh writes those of what changed since the last one.
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
from cems_workbench.store.search.entries import WHOLE, Place
from cems_workbench.store.search.filter_masks import FilterMasks
from cems_workbench.store.search.lexical.sorted_texts import SortedTexts

LEVELS = 127
DEVIATIONS = 5.0
"""Standard deviations of the error of rounding that a cosine by codes is taken to be off by, at most."""
TAKEN = 0.5
"""Up to this share of the rows a copy of those that pass is read, once it is made: 380,000 of a million are copied in 36 ms and read in 6,
where reading all takes 16."""
FILTERS = 16
"""Filters whose rows are known at once, and copies of no more rows than there are."""
MOST = 4_000
"""Candidates that are read again, at most, or ten for each memory that is asked for: of equal vectors no more are told apart."""
THREADS = min(4, os.cpu_count() or 1)
ALONE = 300_000
"""Up to so many rows one thread reads them (4 ms): several wait for the slowest of them, 8 ms where the machine does other work too."""

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
"""The arrays of a segment's file."""


def encoded(vectors: Float32) -> tuple[NDArray[np.int8], Float32]:
    """Codes (rows, dimension) and steps (rows) of the directions of vectors; of one of zeros, zeros."""
    lengths = np.linalg.norm(vectors, axis=1)
    largest = np.abs(vectors).max(axis=1, initial=0)
    there = np.where(largest > 0, largest, 1)
    codes = np.rint(vectors * (LEVELS / there)[:, None]).astype(np.int8)
    return codes, np.asarray(largest / LEVELS / np.where(lengths > 0, lengths, 1), np.float32)


class CodesSegment:
    """An open segment: some memories with all their vectors, in the order of their ids and chunks."""

    def __init__(self, path: Path) -> None:
        """Open the segment in a file; raises StoreError when that is missing or damaged."""
        try:
            columns = column_file.read(path)
            self.columns: dict[str, Column] = {name: columns[name] for name in COLUMNS}
            self.labels: dict[str, list[str | None]] = json.loads(self.columns["labels"].tobytes())
            self.masks = FilterMasks(self.columns["filters"], self.labels)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"vectors in 8 bits {path} are damaged ({error}); doctor --repair builds them anew"
            ) from error
        self.ids = SortedTexts(self.columns["ids"], self.columns["id_ends"])
        self.codes: NDArray[np.int8] = self.columns["codes"]
        self.steps: Float32 = self.columns["steps"]
        self.starts: NDArray[np.int64] | None = self.columns["starts"] if len(self.columns["starts"]) else None

    @cached_property
    def coarsest(self) -> float:
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
        """The number of the memory of each row."""
        return rows if self.starts is None else np.searchsorted(self.starts, rows, side="right") - 1

    def chunk_of(self, row: int) -> int | None:
        """The number of the chunk that a row is of; None for a whole memory."""
        seqs = self.columns["seqs"]
        return int(seqs[row]) if len(seqs) and seqs[row] != WHOLE else None


_open: weakref.WeakValueDictionary[tuple[str, int], CodesSegment] = weakref.WeakValueDictionary()


def opened(path: Path) -> CodesSegment:
    """The segment of a file, the same object as long as somebody has it: its name is never given twice. Raises StoreError."""
    try:
        key = str(path), path.stat().st_ino
    except OSError as error:
        raise StoreError(f"vectors in 8 bits {path} are missing; doctor --repair builds them anew") from error
    segment = _open.get(key)
    if segment is None:
        segment = _open[key] = CodesSegment(path)
    return segment


@dataclass(frozen=True, slots=True, eq=False)
class LiveSegment:
    """A segment and the numbers of the memories in it that are not to be found there any more, ascending."""

    segment: CodesSegment
    deleted: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Passing:
    """What of a segment passes a filter: how many rows and memories, and which rows, by number where they are few."""

    count: int
    memories: int
    mask: NDArray[np.bool_] | None
    """Shape (rows); None where all pass."""
    rows: NDArray[np.int64] | None
    """None where they are many."""
    codes: NDArray[np.int8]
    """Of `rows`, or of all."""
    steps: Float32
    most: Float32 | None
    """Of many: the most that a cosine counts as, -inf for a row that does not pass: quicker than the mask, 0.4 ms to 4."""


class VectorCodes:
    """The codes of one embedder's vectors, as a refresh left them."""

    def __init__(self, parts: Sequence[LiveSegment]) -> None:
        self._parts = parts
        self._known: dict[Filter, list[_Passing]] = {}
        self._changing = threading.Lock()

    def __len__(self) -> int:
        """Number of vectors."""
        return self.count(ANY)

    @property
    def dimension(self) -> int | None:
        """Length of a vector; None where there is none."""
        return self._parts[0].segment.codes.shape[1] if self._parts else None

    def count(self, where: Filter) -> int:
        """How many vectors pass."""
        return sum(each.count for each in self._passing(where))

    def memories(self, where: Filter) -> int:
        """How many memories have a vector that passes."""
        return sum(each.memories for each in self._passing(where))

    def passes(self, place: Place, where: Filter) -> bool:
        """Whether there is a vector of this entry, and it passes."""
        for part, passing in zip(self._parts, self._passing(where), strict=True):
            memory = part.segment.ids.find(place[0])
            if memory < 0 or _among(memory, part.deleted):
                continue
            for row in part.segment.rows_of(memory):
                if part.segment.chunk_of(row) == place[1]:
                    return passing.mask is None or bool(passing.mask[row])
        return False

    def chunks_of(self, memory_id: str) -> list[int | None]:
        """The numbers of the chunks of a memory, None for a whole one; empty where it has no vector."""
        for part in self._parts:
            memory = part.segment.ids.find(memory_id)
            if memory >= 0 and not _among(memory, part.deleted):
                return [part.segment.chunk_of(row) for row in part.segment.rows_of(memory)]
        return []

    def ids(self, where: Filter) -> list[str]:
        """The memories with a vector that passes, in no order."""
        found: list[str] = []
        for part, passing in zip(self._parts, self._passing(where), strict=True):
            if passing.mask is None:
                found += part.segment.ids
            else:
                memories = np.unique(part.segment.memories_of(np.flatnonzero(passing.mask)))
                found += [part.segment.ids[i] for i in memories.tolist()]
        return found

    def candidates(self, query: Float32, k: int, where: Filter) -> list[Place]:
        """Entries that pass among which are all of the k memories nearest to `query` (shape (dimension,)), each with its nearest chunks.

        Down to the one that brings the k-th memory, and what might be before it.
        """
        codes, step = encoded(query[None, :])
        found = [_cosines(passing, codes, float(step[0])) for passing in self._passing(where)]
        best = [_best(part.segment, *each) for part, each in zip(self._parts, found, strict=True)]
        lowest = kth_largest(np.concatenate(best) if len(best) > 1 else best[0], k) if best else -np.inf
        coarsest = max((part.segment.coarsest for part in self._parts), default=0)
        deviation = np.sqrt((coarsest**2 + float(step[0]) ** 2) / 12)
        cut = lowest - DEVIATIONS * (1 + 1 / np.sqrt(max(1, k))) * deviation
        near = [
            np.flatnonzero(cosines >= cut) if cut > -np.inf else np.flatnonzero(cosines > -np.inf)
            for _, cosines in found
        ]
        most = max(MOST, 10 * k)
        if sum(map(len, near)) > most:
            cut = kth_largest(
                np.concatenate([cosines[own] for (_, cosines), own in zip(found, near, strict=True)]), most
            )
            near = [own[cosines[own] >= cut][:most] for (_, cosines), own in zip(found, near, strict=True)]
        places: list[Place] = []
        for part, (rows, _), own in zip(self._parts, found, near, strict=True):
            numbers = own if rows is None else rows[own]
            memories = part.segment.memories_of(numbers).tolist()
            places += [
                (part.segment.ids[memory], part.segment.chunk_of(row))
                for memory, row in zip(memories, numbers.tolist(), strict=True)
            ]
        return places

    def _passing(self, where: Filter) -> list[_Passing]:
        where = ANY if where.trivial else where
        known = self._known.get(where)
        if known is None:
            known = [_passing(part, where) for part in self._parts]
            room = sum(len(part.segment.codes) for part in self._parts) - _copied(known)
            with self._changing:
                while self._known and (len(self._known) >= FILTERS or sum(map(_copied, self._known.values())) > room):
                    del self._known[next(iter(self._known))]
                self._known[where] = known
        return known


def _passing(part: LiveSegment, where: Filter) -> _Passing:
    segment = part.segment
    mask = segment.masks.of(where)
    if len(part.deleted):
        mask = np.ones(len(segment.codes), bool) if mask is None else mask.copy()
        mask[segment.all_rows(part.deleted)] = False
    codes, steps = segment.codes, segment.steps
    if mask is None:
        return _Passing(len(codes), len(segment.ids), None, None, codes, steps, None)
    count = memories = int(np.count_nonzero(mask))
    rows = most = None
    if count <= TAKEN * len(mask):
        rows = np.flatnonzero(mask)
        # Clipping what is never outside is ten times quicker than looking whether it is.
        codes, steps = np.take(codes, rows, axis=0, mode="clip"), steps[rows]
    else:
        most = np.where(mask, np.float32(np.inf), np.float32(-np.inf))
    if segment.starts is not None:
        memories = int(np.count_nonzero(np.logical_or.reduceat(mask, segment.starts[:-1]))) if len(mask) else 0
    return _Passing(count, memories, mask, rows, codes, steps, most)


def _copied(parts: Sequence[_Passing]) -> int:
    """How many rows were copied."""
    return sum(0 if part.rows is None else len(part.rows) for part in parts)


def _cosines(passing: _Passing, query: NDArray[np.int8], step: float) -> tuple[NDArray[np.int64] | None, Float32]:
    """Which rows were read, None for all, and their cosines by codes; -inf for a row that does not pass."""
    import simsimd

    if not passing.count:
        return np.zeros(0, np.int64), np.zeros(0, np.float32)
    threads = 1 if len(passing.codes) <= ALONE else THREADS
    products = np.asarray(simsimd.cdist(query, passing.codes, "dot", threads=threads))[0]
    cosines = products.astype(np.float32) * passing.steps * np.float32(step)
    if passing.most is not None:
        np.minimum(cosines, passing.most, out=cosines)
    return passing.rows, cosines


def _best(segment: CodesSegment, rows: NDArray[np.int64] | None, cosines: Float32) -> Float32:
    """The best cosine of each memory among these rows."""
    if segment.starts is None or not len(cosines):
        return cosines
    if rows is None:
        best: Float32 = np.maximum.reduceat(cosines, segment.starts[:-1])
        return best
    first = np.flatnonzero(np.diff(segment.memories_of(rows), prepend=-1))
    return np.maximum.reduceat(cosines, first)


def kth_largest(values: Float32, k: int) -> float:
    """The k-th largest value, or -inf where there are fewer; many values are looked at in blocks first."""
    if k > len(values):
        return -np.inf
    block = len(values) // (8 * k)
    if block > 1:
        # At least k values are no smaller than the k-th largest of the blocks' largest ones.
        largest = values[: len(values) // block * block].reshape(-1, block).max(axis=1)
        values = values[values >= np.partition(largest, len(largest) - k)[len(largest) - k]]
    return float(np.partition(values, len(values) - k)[len(values) - k])


def _among(number: int, numbers: NDArray[np.int64]) -> bool:
    place = int(np.searchsorted(numbers, number))
    return place < len(numbers) and int(numbers[place]) == number
