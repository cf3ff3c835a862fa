"""Column file: named arrays in one memory-mapped file.

The first line is JSON with the type, shape and offset of each array. Arrays start at multiples of 64 bytes, in native byte order. The
file has no checksum; the manifest that names it has.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Column = NDArray[Any]
ALIGNMENT_BYTES = 64
MAX_HEADER_BYTES = 1_000_000


def create(path: Path, columns: Mapping[str, tuple[DTypeLike, Sequence[int]]]) -> dict[str, Column]:
    """Create a file for these columns (type and shape); returns writable arrays mapped onto it.

    Raises OSError if the disk is full.
    """
    specs = {name: (np.dtype(kind), tuple(shape)) for name, (kind, shape) in columns.items()}
    offsets: dict[str, int] = {}
    header = b""
    for _ in range(8):  # the offsets depend on the header's length, and vice versa
        offset = _align(len(header))
        before = dict(offsets)
        for name, (kind, shape) in specs.items():
            offsets[name] = offset
            offset = _align(offset + kind.itemsize * int(np.prod(shape, dtype=np.int64)))
        layout = {name: [kind.str, list(shape), offsets[name]] for name, (kind, shape) in specs.items()}
        header = json.dumps(layout, separators=(",", ":")).encode() + b"\n"
        if offsets == before:
            break
    with path.open("w+b") as file:
        if hasattr(os, "posix_fallocate"):
            # A disk that is full only at a later write through the map would kill the process (SIGBUS).
            os.posix_fallocate(file.fileno(), 0, offset)
        else:
            file.truncate(offset)
        file.write(header)
        file.flush()
        mapped = mmap.mmap(file.fileno(), offset)
    return {name: _array(mapped, kind, shape, offsets[name]) for name, (kind, shape) in specs.items()}


def write(path: Path, columns: Mapping[str, Column]) -> None:
    """Write these arrays to a file. Raises OSError."""
    arrays = create(path, {name: (column.dtype, column.shape) for name, column in columns.items()})
    for name, column in columns.items():
        arrays[name][...] = column


def read(path: Path) -> dict[str, Column]:
    """The arrays of a file, read-only. Raises OSError, and ValueError for a file of another format."""
    with path.open("rb") as file:
        header = file.readline(MAX_HEADER_BYTES)
        layout = json.loads(header)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if not isinstance(layout, dict):
        raise ValueError("it has no header")
    return {
        str(name): _array(mapped, np.dtype(kind), tuple(shape), int(offset))
        for name, (kind, shape, offset) in layout.items()
    }


def _array(mapped: mmap.mmap, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int) -> Column:
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.zeros(shape, dtype)
    return np.frombuffer(mapped, dtype, count, offset).reshape(shape)


def _align(offset: int) -> int:
    return -(-offset // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def as_bytes(text: str) -> Column:
    """A text as a column."""
    return np.frombuffer(text.encode(), np.uint8)


def compact(numbers: Column) -> Column:
    """These non-negative numbers in the smallest type that fits."""
    return numbers.astype(smallest_dtype(int(numbers.max(initial=0))))


def smallest_dtype(maximum: int) -> np.dtype[Any]:
    """The smallest type for numbers from 0 to `maximum`."""
    return np.min_scalar_type(maximum)
