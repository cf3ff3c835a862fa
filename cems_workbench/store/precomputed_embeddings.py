"""Precomputed vectors of memories, made by the store's embedder, from a Parquet or `.npy` file.

    PrecomputedVectors    vectors by memory id, and the number used
    read_vectors          reads a file and reports invalid rows

Parquet needs a column `id` (text) and a column `vector` (a list of numbers); an `.npy` has one row per memory, in import order. Vectors
are normalised. `PrecomputedVectors.take` re-embeds a sample of each batch for comparison, because wrong vectors would go unnoticed later.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import InputError, one_line
from cems_workbench.models.protocol import Embedder, Float32
from cems_workbench.records import RowError
from cems_workbench.store.search.entries import Entry, EntryId


class KnownVectors(Protocol):
    """Vectors of texts that need no embedding."""

    def of(self, entries: Sequence[Entry], embedder: Embedder) -> dict[EntryId, Float32]:
        """The unit vectors of those of these entries that are known, by entry."""


ID_COLUMN, VECTOR_COLUMN = "id", "vector"
PARQUET_SUFFIX, NPY_SUFFIX = ".parquet", ".npy"
MIN_COSINE = 0.9
"""The minimum cosine between a precomputed vector and the embedder's; rounding, or embedding without the title, stays above it."""
FIRST_SAMPLE, LATER_SAMPLE = 8, 1
"""Vectors checked in the first batch, and in each later one."""


class PrecomputedVectors:
    """Unit vectors by memory id; `rows` is (N, dimension), float32."""

    def __init__(self, source: str, ids: Sequence[str], rows: Float32) -> None:
        self.source = source
        self._rows = rows
        self._row_of = {memory_id: row for row, memory_id in enumerate(ids)}
        self.used = 0
        """Number of vectors used instead of embedding a text."""

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, memory_id: str) -> bool:
        return memory_id in self._row_of

    def restrict_to(self, ids: Sequence[str]) -> PrecomputedVectors:
        there = [memory_id for memory_id in dict.fromkeys(ids) if memory_id in self._row_of]
        if len(there) == len(self._row_of):
            return self
        return PrecomputedVectors(self.source, there, self._rows[[self._row_of[memory_id] for memory_id in there]])

    def of(self, entries: Sequence[Entry], embedder: Embedder) -> dict[EntryId, Float32]:
        """The vectors of the whole memories among these entries, by entry. Raises InputError as `take` does."""
        ready = [entry for entry in entries if entry.id[1] is None and entry.id[0] in self._row_of]
        if not ready:
            return {}
        rows = self.take([entry.id[0] for entry in ready], [entry.text for entry in ready], embedder)
        return dict(zip((entry.id for entry in ready), rows, strict=True))

    def take(self, ids: Sequence[str], texts: Sequence[str], embedder: Embedder) -> Float32:
        """The vectors of these memories, (len(ids), dimension), after a spot check. Raises InputError if one does not match its text."""
        rows = self._rows[[self._row_of[memory_id] for memory_id in ids]]
        sample = np.unique(
            np.linspace(0, len(ids) - 1, min(len(ids), LATER_SAMPLE if self.used else FIRST_SAMPLE)).astype(int)
        )
        encoded = embedder.encode([texts[i] for i in sample])
        for i, vector in zip(sample.tolist(), encoded, strict=True):
            cosine = float(rows[i] @ vector)
            if cosine < MIN_COSINE:
                raise InputError(
                    f"{self.source}: the vector of {one_line(ids[i], 80)} does not match that of {embedder.model_id}: their "
                    f"cosine is {cosine:.2f}, the minimum {MIN_COSINE}"
                )
        self.used += len(ids)
        return rows


def require_file(path: Path) -> None:
    """Raise InputError if the file does not exist or has neither suffix."""
    if path.suffix not in (PARQUET_SUFFIX, NPY_SUFFIX):
        raise InputError(f"--vectors {path}: the suffix must be {PARQUET_SUFFIX} or {NPY_SUFFIX}")
    if not path.is_file():
        raise InputError(f"--vectors {path}: no such file")


def read_vectors(path: Path, memory_ids: Sequence[str], dimension: int) -> tuple[PrecomputedVectors, list[RowError]]:
    """The vectors of a file for these memories, which is the row order of an `.npy`, and the errors of its invalid
    rows. Raises InputError for an unreadable file, missing columns, or a wrong number of rows or dimension."""
    require_file(path)
    ids: list[str | None]
    if path.suffix == NPY_SUFFIX:
        ids, rows = list(memory_ids), _read_npy(path, len(memory_ids), dimension)
        sizes = np.full(len(ids), dimension)
    else:
        ids, rows, sizes = _read_parquet(path, dimension)
    lengths = np.linalg.norm(rows, axis=1)
    usable, errors, seen = list[int](), list[RowError](), set[str]()
    for row, memory_id in enumerate(ids):
        field, reason = VECTOR_COLUMN, ""
        if memory_id is None:
            field, reason = ID_COLUMN, "is missing"
        elif sizes[row] != dimension:
            reason = f"it has {sizes[row]} values; the embedder's have {dimension}"
        elif not np.isfinite(lengths[row]) or not lengths[row]:
            reason = "it is all zeros" if lengths[row] == 0 else "a value is not finite"
        elif memory_id in seen:
            field, reason = ID_COLUMN, f"a second vector of {one_line(memory_id, 80)}"
        else:
            seen.add(memory_id)
            usable.append(row)
        if reason:
            errors.append(RowError(path.name, row + 1, reason, field))
    kept = [str(ids[row]) for row in usable]
    return PrecomputedVectors(path.name, kept, rows[usable] / lengths[usable, None]), errors


def _read_npy(path: Path, memories: int, dimension: int) -> Float32:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"--vectors {path}: it is no .npy file of numbers ({one_line(str(error), 120)})") from None
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind != "f":
        raise InputError(f"--vectors {path}: must be a table of floating point numbers, one row per memory")
    if array.shape[1] != dimension:
        raise InputError(f"--vectors {path}: its vectors have {array.shape[1]} values; the embedder's have {dimension}")
    if len(array) != memories:
        raise InputError(
            f"--vectors {path}: it has {len(array):,} rows for {memories:,} memories; use Parquet, with ids, if some are missing"
        )
    return np.ascontiguousarray(array, np.float32)


def _read_parquet(path: Path, dimension: int) -> tuple[list[str | None], Float32, NDArray[np.int64]]:
    """Ids, vectors (zeros where the size is another) and the sizes of the vectors in the file."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"--vectors {path}: it cannot be read as Parquet ({one_line(str(error), 120)})") from None
    schema = file.schema_arrow
    for name in (ID_COLUMN, VECTOR_COLUMN):
        if name not in schema.names:
            raise InputError(f"--vectors {path}: it has no column {name!r}; it has {', '.join(schema.names) or 'none'}")
    kind = schema.field(VECTOR_COLUMN).type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)) or not (
        pa.types.is_floating(kind.value_type)
    ):
        raise InputError(f"--vectors {path}: column {VECTOR_COLUMN!r} is {kind}, not a list of floating point numbers")
    ids: list[str | None] = []
    parts, sizes = [np.empty((0, dimension), np.float32)], [np.empty(0, np.int64)]
    try:
        for batch in file.iter_batches(columns=[ID_COLUMN, VECTOR_COLUMN]):
            ids += batch.column(ID_COLUMN).cast(pa.string()).to_pylist()
            vectors = batch.column(VECTOR_COLUMN).cast(pa.list_(pa.float32()))
            sizes.append(pc.fill_null(pc.list_value_length(vectors), 0).to_numpy(zero_copy_only=False).astype(np.int64))
            rows, fits = np.zeros((len(batch), dimension), np.float32), sizes[-1] == dimension
            rows[fits] = (
                pc.list_flatten(vectors.filter(pa.array(fits))).to_numpy(zero_copy_only=False).reshape(-1, dimension)
            )
            parts.append(rows)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"--vectors {path}: it cannot be read as Parquet ({one_line(str(error), 120)})") from None
    return ids, np.concatenate(parts), np.concatenate(sizes)
