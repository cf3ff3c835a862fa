"""What the files of indexes are made of: named arrays in one memory-mapped file, and sorted tables of texts in such arrays.

The first line of a file is JSON with the type, shape and offset of each array, which start at multiples of 64 bytes, in native byte order.
It has no checksum; the manifest that names the file has.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

if TYPE_CHECKING:
    import pyarrow as pa

Column = NDArray[Any]
ALIGNMENT_BYTES = 64
MAX_HEADER_BYTES = 1_000_000


def create_columns(
    path: Path, columns: Mapping[str, Column], reserved: Mapping[str, tuple[DTypeLike, Sequence[int]]] | None = None
) -> dict[str, Column]:
    """Write a file of these columns, and of zeros for the `reserved` ones (type and shape); returns writable arrays
    mapped onto it. Raises OSError if the disk is full."""
    specs = {name: (column.dtype, column.shape) for name, column in columns.items()}
    specs |= {name: (np.dtype(kind), tuple(shape)) for name, (kind, shape) in (reserved or {}).items()}
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
    arrays = {name: _array(mapped, kind, shape, offsets[name]) for name, (kind, shape) in specs.items()}
    for name, column in columns.items():
        arrays[name][...] = column
    return arrays


def read_columns(path: Path) -> dict[str, Column]:
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
    return np.frombuffer(text.encode(), np.uint8)


def compact(numbers: Column) -> Column:
    """These non-negative numbers in the smallest type that fits."""
    return numbers.astype(smallest_dtype(int(numbers.max(initial=0))))


def smallest_dtype(maximum: int) -> np.dtype[Any]:
    """The smallest type for numbers from 0 to `maximum`."""
    return np.min_scalar_type(maximum)


def spans(begins: Column, ends: Column) -> NDArray[np.int64]:
    """The concatenated ranges from each begin to its end."""
    lengths = (ends - begins).astype(np.int64)
    shift = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
    return shift + np.arange(len(shift), dtype=np.int64)


Texts = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""The bytes and end offsets of a table of texts."""


class SortedTexts:
    """Distinct texts in UTF-8 byte order in one blob, found by binary search; opening it reads nothing."""

    def __init__(self, blob: NDArray[np.uint8], ends: NDArray[Any]) -> None:
        """`blob` has the texts' bytes, `ends` their end offsets."""
        self._blob, self._ends = blob, ends
        self._bytes, self._places = blob.data, ends.data  # indexing an array takes three times as long

    @classmethod
    def of(cls, texts: Iterable[str]) -> SortedTexts:
        """A table of these texts, which are sorted already."""
        return cls(*text_columns(texts))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, position: int) -> str:
        return str(self._at(position), "utf-8")

    def __iter__(self) -> Iterator[str]:
        blob, start = self._blob.tobytes(), 0
        for end in self._ends.tolist():
            yield blob[start:end].decode()
            start = end

    def find(self, text: str) -> int:
        """The position of a text, -1 if absent."""
        place = self.place(text)
        return place if place < len(self) and self._at(place) == text.encode("utf-8", "surrogatepass") else -1

    def place(self, text: str) -> int:
        """The number of texts before this one."""
        # A query may contain a lone surrogate; it then matches nothing.
        wanted = text.encode("utf-8", "surrogatepass")
        first, last = 0, len(self)
        while first < last:
            middle = (first + last) // 2
            if self._at(middle) < wanted:
                first = middle + 1
            else:
                last = middle
        return first

    def find_all(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """The positions of the present ones of `texts`, ascending."""
        # From here on one pass over the table is cheaper than a binary search for each text.
        if len(texts) * len(self).bit_length() > len(self):
            import pyarrow as pa
            import pyarrow.compute as pc

            among = pc.is_in(self.arrow(), value_set=pa.array(texts, pa.large_string()).cast(pa.large_binary()))
            return np.flatnonzero(among.to_numpy(zero_copy_only=False)).astype(np.int64)
        found = [position for text in texts if (position := self.find(text)) >= 0]
        return np.array(sorted(found), np.int64)

    def arrow(self) -> pa.Array[Any]:
        """The texts as an Arrow array of bytes, without copying."""
        import pyarrow as pa

        places = np.zeros(len(self) + 1, np.int64)
        places[1:] = self._ends
        blob = self._blob if len(self._blob) else np.zeros(1, np.uint8)
        buffers = [None, pa.py_buffer(places), pa.py_buffer(blob)]
        return pa.Array.from_buffers(pa.large_binary(), len(self), buffers)

    def _at(self, position: int) -> bytes:
        start = self._places[position - 1] if position else 0
        return bytes(self._bytes[start : self._places[position]])


def text_columns(texts: Iterable[str]) -> Texts:
    encoded = [text.encode() for text in texts]
    blob = np.frombuffer(b"".join(encoded), np.uint8)
    return blob, np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), dtype=np.int64)


def from_arrow(texts: pa.Array[Any]) -> Texts:
    """The bytes and end offsets of an Arrow array of bytes."""
    _, places, blob = texts.buffers()
    if not len(texts):
        return np.zeros(0, np.uint8), np.zeros(0, np.int64)
    # An Arrow slice shares the buffers of the whole array.
    ends = np.frombuffer(places, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(blob, np.uint8)[ends[0] : ends[-1]], ends[1:] - ends[0]
