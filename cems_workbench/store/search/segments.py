"""What the segments of words and of vectors have in common: memories in the order of their ids, each with a row for each of its texts.

A memory is in one segment with all its rows: one a chunk, or one for a memory without chunks. Segments are immutable (directory.py); what
is deleted in one is a list beside it, and a merge writes what is left of several into a new one.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import StoreError
from cems_workbench.store.search import columns as arrays
from cems_workbench.store.search.directory import Segment, read_deleted
from cems_workbench.store.search.entries import WHOLE_MEMORY, EntryId, FilterMasks, Labels, entry_id

SHARED_COLUMNS = {
    "ids": "the ids of its memories, in order, as bytes",
    "id_ends": "where each id ends",
    "starts": "the first row of each memory, and the number of rows; empty where each memory has one",
    "seqs": "the number of the chunk that each row is of, -1 for a whole memory; empty where all are",
    "filters": "project and scope of each row, as numbers of the labels, shape (rows, 2)",
    "labels": "the projects and scopes, as JSON",
}
"""The arrays that every segment's file has."""


class SegmentFile:
    """An open segment."""

    COLUMNS: ClassVar[Mapping[str, str]]
    """The arrays in its file."""
    KIND: ClassVar[str]
    """What a message calls it."""

    def __init__(self, path: Path, columns: Mapping[str, arrays.Column] | None = None) -> None:
        """Open a segment's file, or take its columns. Raises StoreError if the file is missing or damaged."""
        self.path = path
        try:
            columns = arrays.read_columns(path) if columns is None else columns
            self.columns: dict[str, arrays.Column] = {name: columns[name] for name in self.COLUMNS}
            self.labels: dict[str, list[str | None]] = json.loads(self.columns["labels"].tobytes())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{self.KIND} {path} is damaged ({error}); doctor --repair rebuilds it") from error
        self.ids = arrays.SortedTexts(self.columns["ids"], self.columns["id_ends"])
        self.starts: arrays.Column | None = self.columns["starts"] if len(self.columns["starts"]) else None
        self.size = len(self.columns["filters"])
        """Number of rows."""
        self.masks = FilterMasks(self.columns["filters"], self.labels, partial(_rows_of, self.ids, self.starts))

    def rows_of(self, memory: int) -> range:
        """The rows of a memory, by its number."""
        return range(memory, memory + 1) if self.starts is None else range(*map(int, self.starts[memory : memory + 2]))

    def all_rows(self, memories: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of these memories, in the same order."""
        return _all_rows(self.starts, memories)

    def sizes(self, memories: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.starts is None:
            return np.ones(len(memories), np.int64)
        sizes: NDArray[np.int64] = np.diff(self.starts)[memories].astype(np.int64)
        return sizes

    def memories_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows if self.starts is None else np.searchsorted(self.starts, rows, side="right") - 1

    def chunk_of(self, row: int) -> int | None:
        """The chunk number of a row; None for a whole memory."""
        seqs = self.columns["seqs"]
        return int(seqs[row]) if len(seqs) and seqs[row] != WHOLE_MEMORY else None

    def entries_at(self, rows: NDArray[np.int64]) -> list[EntryId]:
        ids, seqs, memories = self.ids, self.columns["seqs"], self.memories_of(rows).tolist()
        if not len(seqs):
            return [(ids[memory], None) for memory in memories]
        return [entry_id(ids[memory], seq) for memory, seq in zip(memories, seqs[rows].tolist(), strict=True)]


def _all_rows(starts: arrays.Column | None, memories: NDArray[np.int64]) -> NDArray[np.int64]:
    return memories if starts is None else arrays.spans(starts[memories], starts[memories + 1])


def _rows_of(ids: arrays.SortedTexts, starts: arrays.Column | None, wanted: Set[str]) -> NDArray[np.int64]:
    return _all_rows(starts, ids.find_all(list(wanted)))


_open_segments: weakref.WeakValueDictionary[tuple[type, str, int], SegmentFile] = weakref.WeakValueDictionary()
File = TypeVar("File", bound=SegmentFile)


def open_segment(kind: type[File], path: Path) -> File:
    """The segment of a file, one shared object per file: names are never reused. Raises StoreError."""
    try:
        key = kind, str(path), path.stat().st_ino
    except OSError as error:
        raise StoreError(f"{kind.KIND} {path} is missing; doctor --repair rebuilds it") from error
    segment = _open_segments.get(key)
    if not isinstance(segment, kind):
        segment = _open_segments[key] = kind(path)
    return segment


@dataclass(frozen=True, slots=True, eq=False)
class LiveSegment(Generic[File]):
    """A segment and the numbers of the memories in it that are deleted, ascending."""

    segment: File
    deleted: NDArray[np.int64]

    @property
    def memories(self) -> NDArray[np.int64]:
        """The memories that are not deleted."""
        return np.setdiff1d(np.arange(len(self.segment.ids)), self.deleted, assume_unique=True)

    @property
    def size(self) -> int:
        """The number of rows of these."""
        return self.segment.size - len(self.segment.all_rows(self.deleted))

    def is_deleted(self, memory: int) -> bool:
        """Whether the memory with this number is deleted."""
        place = int(np.searchsorted(self.deleted, memory))
        return place < len(self.deleted) and bool(self.deleted[place] == memory)


def live_segment(kind: type[File], directory: Path, segment: Segment) -> LiveSegment[File]:
    """A segment of a directory, opened. Raises StoreError."""
    return LiveSegment(open_segment(kind, directory / segment.name), read_deleted(directory, segment))


def shared_columns(
    ids: arrays.Texts, sizes: arrays.Column, seqs: arrays.Column, filters: arrays.Column, labels: Labels
) -> dict[str, arrays.Column]:
    """The SHARED_COLUMNS of a segment; `sizes` is the number of rows of each memory, `filters` has the numbers of `labels`."""
    nothing = np.zeros(0, np.int32)
    starts = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    return {
        "ids": ids[0],
        "id_ends": arrays.compact(ids[1]),
        "starts": nothing if len(sizes) == len(seqs) else starts,
        "seqs": nothing if (seqs == WHOLE_MEMORY).all() else seqs.astype(np.int32),
        "filters": arrays.compact(filters.reshape(-1, 2)),
        "labels": arrays.as_bytes(json.dumps(labels.listed, ensure_ascii=False)),
    }


class Merge(Generic[File]):
    """The live memories of several segments, in the order of their ids, and the new rows of each part."""

    def __init__(self, parts: Sequence[LiveSegment[File]]) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self.segments = [part.segment for part in parts]
        self.memories = [part.memories for part in parts]
        """The live memories of each part."""
        live = list(zip(self.segments, self.memories, strict=True))
        ids: pa.Array[Any] = pa.concat_arrays([part.ids.arrow().take(pa.array(own)) for part, own in live])
        self.order = pc.sort_indices(ids).to_numpy(zero_copy_only=False).astype(np.int64)
        """Sorts the concatenated memories of all parts by id."""
        self.ids = arrays.from_arrow(ids.take(pa.array(self.order)))
        self.sizes = self.in_order([part.sizes(own) for part, own in live])
        starts = np.cumsum(self.sizes) - self.sizes
        numbers = np.empty(len(self.order), np.int64)
        numbers[self.order] = np.arange(len(self.order))
        ends = np.cumsum([len(own) for own in self.memories])
        self.numbers = np.split(numbers, ends[:-1])
        """The new numbers of these memories."""
        self.rows = [part.all_rows(own) for part, own in live]
        """The live rows of each part."""
        self.new_rows = [arrays.spans(starts[new], starts[new] + self.sizes[new]) for new in self.numbers]
        self.size = int(self.sizes.sum())

    def in_order(self, columns: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Values of the live memories of each part, sorted by memory id."""
        values: NDArray[np.int64] = np.concatenate(columns)[self.order]
        return values

    def of_rows(self, columns: Sequence[arrays.Column], shape: tuple[int, ...] = ()) -> arrays.Column:
        """Values of the rows of each part, in their new order."""
        found = np.empty((self.size, *shape), np.int32)
        for rows, new, column in zip(self.rows, self.new_rows, columns, strict=True):
            found[new] = column[rows]
        return found

    def columns(self) -> dict[str, arrays.Column]:
        """The SHARED_COLUMNS of the merged segment."""
        labels = Labels()
        filters, seqs = [], []
        for part in self.segments:
            own, new = part.columns["filters"], np.empty((part.size, 2), np.int32)
            for column, (name, codes) in enumerate(labels.codes.items()):
                numbers = [codes.setdefault(value, len(codes)) for value in part.labels[name]]
                new[:, column] = np.array(numbers, np.int32)[own[:, column]]
            filters.append(new)
            seqs.append(part.columns["seqs"] if len(part.columns["seqs"]) else np.full(part.size, WHOLE_MEMORY))
        return shared_columns(self.ids, self.sizes, self.of_rows(seqs), self.of_rows(filters, (2,)), labels)
