"""Refresh of the quantized vectors: writes a segment for changed memories and marks the replaced ones as deleted.

Vectors are read back from Chroma, which may round them. A segment is merged only with segments that are no larger than the merge so
far, so a vector is rewritten about once each time its segment doubles, and a small change never rewrites a large segment.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cems_workbench.progress import Progress
from cems_workbench.store.database import Database
from cems_workbench.store.search.directory import column_file
from cems_workbench.store.search.directory.column_file import Column
from cems_workbench.store.search.directory.index_directory import Manifest
from cems_workbench.store.search.directory.segment_directory import (
    Segment,
    new_segment,
    publish,
    read_deleted,
    write_deleted,
)
from cems_workbench.store.search.entries import WHOLE_MEMORY, entry_id, key_of
from cems_workbench.store.search.lexical import sorted_texts
from cems_workbench.store.search.vectors import chroma, embedded
from cems_workbench.store.search.vectors.quantized_vectors import LiveSegment, QuantizedVectors, open_segment, quantize

if TYPE_CHECKING:
    import pyarrow as pa
    from chromadb.api.models.Collection import Collection

VERSION = "1"
PROGRESS_LABEL = "reading vectors"
MERGE_BLOCK_ROWS = 50_000
"""Vectors copied at a time in a merge."""


def manifest_version(collection: str) -> str:
    """The `tokenizer` field of the manifest: the format version and the collection's Chroma id."""
    return f"{VERSION}:{collection}"


def open_vectors(directory: Path, segments: Sequence[Segment]) -> QuantizedVectors:
    """The quantized vectors of these segments. Raises StoreError."""
    return QuantizedVectors([_live(directory, each) for each in segments])


def update(
    directory: Path,
    segments: Sequence[Segment],
    changed: Sequence[str] | None,
    database: Database,
    collection: Collection,
    content_version: int,
    identity: str,
    progress: Progress,
) -> Manifest:
    """Replace the vectors of the memories `changed` in `segments`; all vectors if `changed` is None.

    Raises what `progress` raises, and StoreError; the previous segments then stay current.
    """
    name = str(collection.id)

    def write() -> tuple[list[Segment], int]:
        with database.reading() as cursor:
            rows = embedded.labels(cursor, name, changed)
        before = [] if changed is None else [_delete(directory, each, changed) for each in segments]
        new_segments = [_write_segment(directory, rows, collection, progress)] if rows.num_rows else []
        merged = _merge_small(directory, [*before, *new_segments])
        return merged, sum(_live_rows(directory, each) for each in merged)

    return publish(directory, content_version, manifest_version(name), identity, write)


def _write_segment(directory: Path, rows: pa.Table, collection: Collection, progress: Progress) -> Segment:
    """Write a segment of these entries (`embedded.labels`) with their vectors."""
    import pyarrow.compute as pc

    names, seqs = rows["memory_id"], rows["seq"].to_numpy().astype(np.int32)
    entry_ids = [entry_id(*each) for each in zip(names.to_pylist(), seqs.tolist(), strict=True)]
    labels: dict[str, list[Any]] = {}
    filters = np.empty((len(entry_ids), 2), np.int32)
    for column, (plural, source) in enumerate([("projects", "project"), ("scopes", "scope")]):
        batch = pc.unique(rows[source])
        labels[plural] = batch.to_pylist()
        filters[:, column] = pc.index_in(rows[source], value_set=batch).to_numpy()
    first = [i for i, entry_id in enumerate(entry_ids) if not i or entry_id[0] != entry_ids[i - 1][0]]
    columns = _columns([entry_ids[i][0] for i in first], np.diff(first, append=len(entry_ids)), seqs, filters, labels)
    keys = [key_of(entry_id) for entry_id in entry_ids]
    segment = new_segment()
    arrays: dict[str, Column] = {}
    row_of = {name: row for row, name in enumerate(keys)}
    for start in range(0, len(keys), chroma.BATCH_SIZE):
        progress(PROGRESS_LABEL, start, len(keys))
        batch = list(chroma.read_vectors(collection, keys[start : start + chroma.BATCH_SIZE]))
        if not batch:
            continue
        if not arrays:
            # Only the first batch tells the dimension.
            arrays = _create_file(directory / segment.name, columns, len(keys), len(batch[0][1]))
        target_rows = [row_of[name] for name, _ in batch]
        arrays["codes"][target_rows], arrays["steps"][target_rows] = quantize(np.stack([vector for _, vector in batch]))
    if not arrays:
        arrays = _create_file(directory / segment.name, columns, len(keys), 1)
    progress(PROGRESS_LABEL, len(keys), len(keys))
    return segment


def _columns(
    ids: Sequence[str],
    sizes: NDArray[np.int64],
    seqs: NDArray[np.int32],
    filters: NDArray[np.int32],
    labels: dict[str, list[Any]],
) -> dict[str, Column]:
    """The columns of a segment except the codes; `sizes` is the number of vectors of each memory."""
    blob, ends = sorted_texts.columns(ids)
    nothing = np.zeros(0, np.int64)
    return {
        "ids": blob,
        "id_ends": ends,
        "starts": nothing if len(ids) == len(seqs) else np.concatenate(([0], np.cumsum(sizes))),
        "seqs": nothing.astype(np.int32) if (seqs == WHOLE_MEMORY).all() else seqs,
        "filters": filters,
        "labels": column_file.as_bytes(json.dumps(labels, ensure_ascii=False)),
    }


def _create_file(path: Path, columns: dict[str, Column], rows: int, dimension: int) -> dict[str, Column]:
    """Create a segment's file with these columns and zeroed codes and steps."""
    specs: dict[str, Any] = {name: (column.dtype, column.shape) for name, column in columns.items()}
    arrays = column_file.create(path, specs | {"codes": (np.int8, (rows, dimension)), "steps": (np.float32, (rows,))})
    for name, column in columns.items():
        arrays[name][...] = column
    return arrays


def _live(directory: Path, segment: Segment) -> LiveSegment:
    return LiveSegment(open_segment(directory / segment.name), read_deleted(directory, segment))


def _live_rows(directory: Path, segment: Segment) -> int:
    """Number of vectors that are not deleted."""
    return len(QuantizedVectors([_live(directory, segment)]))


def _delete(directory: Path, segment: Segment, changed: Sequence[str]) -> Segment:
    """The segment with these memories marked as deleted."""
    deleted = read_deleted(directory, segment)
    all_deleted = np.union1d(deleted, open_segment(directory / segment.name).ids.find_all(changed))
    return segment if len(all_deleted) == len(deleted) else write_deleted(directory, segment, all_deleted)


def _merge_small(directory: Path, segments: Sequence[Segment]) -> list[Segment]:
    """Merge the newest segments with those that are no larger; rewrite a segment that is more than half deleted."""
    sized = [(each, size) for each in segments if (size := _live_rows(directory, each))]
    last = len(sized)
    total = 0
    while last and (not total or sized[last - 1][1] <= total):
        last -= 1
        total += sized[last][1]
    small = [each for each, _ in sized[last:]]
    if len(small) > 1:
        sized = [*sized[:last], (_merge(directory, small), total)]
    return [
        _merge(directory, [each]) if len(open_segment(directory / each.name).codes) > 2 * size else each
        for each, size in sized
    ]


def _merge(directory: Path, segments: Sequence[Segment]) -> Segment:
    """Merge the live vectors of these segments into a new one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = [_live(directory, each) for each in segments]
    alive = [np.setdiff1d(np.arange(len(part.segment.ids)), part.deleted) for part in parts]
    rows = [part.segment.all_rows(own) for part, own in zip(parts, alive, strict=True)]
    ids: pa.Array[Any] = pa.concat_arrays(
        [part.segment.ids.arrow().take(pa.array(own)) for part, own in zip(parts, alive, strict=True)]
    )
    order = pc.sort_indices(ids).to_numpy(zero_copy_only=False).astype(np.int64)
    sizes = np.concatenate([_sizes(part, own) for part, own in zip(parts, alive, strict=True)])
    begins = np.empty(len(order), np.int64)
    begins[order] = np.cumsum(sizes[order]) - sizes[order]
    # The new row of each vector, in the order of the parts.
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    new = np.repeat(begins, sizes) + within
    labels: dict[str, dict[str | None, int]] = {"projects": {}, "scopes": {}}
    filters, seqs = np.empty((len(new), 2), np.int32), np.full(len(new), WHOLE_MEMORY, np.int32)
    written = 0
    for part, selected in zip(parts, rows, strict=True):
        target = new[written : written + len(selected)]
        written += len(selected)
        for column, (name, numbers) in enumerate(labels.items()):
            codes = [numbers.setdefault(value, len(numbers)) for value in part.segment.labels[name]]
            filters[target, column] = np.array(codes, np.int32)[part.segment.columns["filters"][selected, column]]
        if len(part.segment.columns["seqs"]):
            seqs[target] = part.segment.columns["seqs"][selected]
    names = [name.decode() for name in ids.take(pa.array(order)).to_pylist()]
    listed = {name: list(numbers) for name, numbers in labels.items()}
    columns = _columns(names, sizes[order], seqs, filters, listed)
    segment = new_segment()
    arrays = _create_file(directory / segment.name, columns, len(new), parts[0].segment.codes.shape[1])
    written = 0
    for part, selected in zip(parts, rows, strict=True):
        for start in range(0, len(selected), MERGE_BLOCK_ROWS):
            block = selected[start : start + MERGE_BLOCK_ROWS]
            target = new[written + start : written + start + len(block)]
            arrays["codes"][target], arrays["steps"][target] = part.segment.codes[block], part.segment.steps[block]
        written += len(selected)
    return segment


def _sizes(part: LiveSegment, memories: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of vectors of each of these memories."""
    starts = part.segment.starts
    if starts is None:
        return np.ones(len(memories), np.int64)
    sizes: NDArray[np.int64] = np.diff(starts)[memories]
    return sizes
