"""Writing of vector segments: new rows get a new segment, and the memories that they replace are marked as deleted in earlier ones.

All vectors of a memory are in one segment. Segments of similar size are merged FAN_IN at a time, so a vector is rewritten once each time
its segment grows by that factor, and a small change never rewrites a large segment.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cems_workbench.store.search import sorted_texts
from cems_workbench.store.search.directory import index_directory
from cems_workbench.store.search.directory.index_directory import Column
from cems_workbench.store.search.directory.segment_directory import Segment, delete_more, new_segment, read_deleted
from cems_workbench.store.search.entries import WHOLE_MEMORY, sort_key
from cems_workbench.store.search.segment_vectors import LiveSegment, SegmentVectors, VectorRows, open_segment, quantize

VERSION = "2"
FAN_IN = 8
"""Segments of similar size that are merged into one."""
MIN_CODED_ROWS = 10_000
"""A segment of fewer vectors has no codes in its file: they are computed in 15 ms when they are first searched."""
MERGE_BLOCK_ROWS = 50_000
"""Vectors copied at a time in a merge."""


def manifest_version(collection: str) -> str:
    """The `tokenizer` field of the manifest: the format version and the id under which the vectors are recorded."""
    return f"{VERSION}:{collection}"


def open_vectors(directory: Path, segments: Sequence[Segment]) -> SegmentVectors:
    """The vectors of these segments. Raises StoreError."""
    return SegmentVectors([_live(directory, each) for each in segments])


def replace_rows(
    directory: Path, segments: Sequence[Segment], replaced: Sequence[str], rows: VectorRows
) -> tuple[list[Segment], int]:
    """The segments with all vectors of the memories `replaced` deleted and `rows` added, and their number of vectors."""
    before = list(segments)
    if replaced:
        before = [
            delete_more(directory, each, open_segment(directory / each.name).ids.find_all(replaced))
            for each in segments
        ]
    added = [_write_segment(directory, rows)] if len(rows) else []
    merged = _merge_similar(directory, [*before, *added])
    return merged, sum(_live_rows(directory, each) for each in merged)


def _write_segment(directory: Path, rows: VectorRows) -> Segment:
    """Write a segment of these rows."""
    order = sorted(range(len(rows)), key=lambda i: sort_key(rows.entry_ids[i]))
    entry_ids = [rows.entry_ids[i] for i in order]
    seqs = np.array([sort_key(entry_id)[1] for entry_id in entry_ids], np.int32)
    labels: dict[str, list[Any]] = {}
    filters = np.empty((len(rows), 2), np.int32)
    for column, (plural, values) in enumerate([("projects", rows.projects), ("scopes", rows.scopes)]):
        numbers: dict[str | None, int] = {}
        filters[:, column] = [numbers.setdefault(values[i], len(numbers)) for i in order]
        labels[plural] = list(numbers)
    first = [i for i, entry_id in enumerate(entry_ids) if not i or entry_id[0] != entry_ids[i - 1][0]]
    columns = _columns([entry_ids[i][0] for i in first], np.diff(first, append=len(entry_ids)), seqs, filters, labels)
    segment = new_segment()
    arrays = _create_file(directory / segment.name, columns, len(rows), rows.vectors.shape[1])
    arrays["vectors"][...] = rows.vectors[order]
    if len(arrays["steps"]):
        arrays["codes"][...], arrays["steps"][...] = quantize(arrays["vectors"])
    return segment


def _columns(
    ids: Sequence[str],
    sizes: NDArray[np.int64],
    seqs: NDArray[np.int32],
    filters: NDArray[np.int32],
    labels: dict[str, list[Any]],
) -> dict[str, Column]:
    """The columns of a segment except vectors and codes; `sizes` is the number of vectors of each memory."""
    blob, ends = sorted_texts.columns(ids)
    nothing = np.zeros(0, np.int64)
    return {
        "ids": blob,
        "id_ends": ends,
        "starts": nothing if len(ids) == len(seqs) else np.concatenate(([0], np.cumsum(sizes))),
        "seqs": nothing.astype(np.int32) if (seqs == WHOLE_MEMORY).all() else seqs,
        "filters": filters,
        "labels": index_directory.as_bytes(json.dumps(labels, ensure_ascii=False)),
    }


def _create_file(path: Path, columns: dict[str, Column], rows: int, dimension: int) -> dict[str, Column]:
    """Create a segment's file with these columns, and zeroed vectors, codes and steps."""
    specs: dict[str, Any] = {name: (column.dtype, column.shape) for name, column in columns.items()}
    coded = rows if rows >= MIN_CODED_ROWS else 0
    specs["vectors"] = (np.float32, (rows, dimension))
    arrays = index_directory.create_columns(
        path, specs | {"codes": (np.int8, (coded, dimension)), "steps": (np.float32, (coded,))}
    )
    for name, column in columns.items():
        arrays[name][...] = column
    return arrays


def _live(directory: Path, segment: Segment) -> LiveSegment:
    return LiveSegment(open_segment(directory / segment.name), read_deleted(directory, segment))


def _live_rows(directory: Path, segment: Segment) -> int:
    """Number of vectors that are not deleted."""
    return len(SegmentVectors([_live(directory, segment)]))


def _merge_similar(directory: Path, segments: Sequence[Segment]) -> list[Segment]:
    """Merge the newest segments if FAN_IN of them are of similar size; rewrite a segment that is more than half deleted."""
    sized = [(each, size) for each in segments if (size := _live_rows(directory, each))]
    while sized:
        tier = _tier(sized[-1][1])
        small = next((i for i, (_, size) in enumerate(reversed(sized)) if _tier(size) > tier), len(sized))
        if small < FAN_IN:
            break
        merged = _merge(directory, [each for each, _ in sized[-small:]])
        sized[-small:] = [(merged, _live_rows(directory, merged))]
    return [
        _merge(directory, [each]) if len(open_segment(directory / each.name).vectors) > 2 * size else each
        for each, size in sized
    ]


def _tier(rows: int) -> int:
    """Segments of the same tier are of similar size: FAN_IN of one make one of the next."""
    tier = 0
    while rows >= FAN_IN:
        rows, tier = rows // FAN_IN, tier + 1
    return tier


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
    arrays = _create_file(directory / segment.name, columns, len(new), parts[0].segment.vectors.shape[1])
    written = 0
    for part, selected in zip(parts, rows, strict=True):
        for start in range(0, len(selected), MERGE_BLOCK_ROWS):
            block = selected[start : start + MERGE_BLOCK_ROWS]
            target = new[written + start : written + start + len(block)]
            arrays["vectors"][target] = part.segment.vectors[block]
            if len(arrays["steps"]):
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
