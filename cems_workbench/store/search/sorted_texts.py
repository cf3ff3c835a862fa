"""Sorted string table: distinct texts in UTF-8 byte order in one blob, found by binary search; opening it reads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa


class SortedTexts:
    """Distinct texts in order."""

    def __init__(self, blob: NDArray[np.uint8], ends: NDArray[Any]) -> None:
        """`blob` has the texts' bytes, `ends` their end offsets."""
        self._blob, self._ends = blob, ends
        self._bytes, self._places = blob.data, ends.data  # indexing an array takes three times as long

    @classmethod
    def of(cls, texts: Iterable[str]) -> SortedTexts:
        """A table of these sorted texts."""
        return cls(*columns(texts))

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


def columns(texts: Iterable[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes and end offsets of these texts."""
    encoded = [text.encode() for text in texts]
    blob = np.frombuffer(b"".join(encoded), np.uint8)
    return blob, np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), dtype=np.int64)


def from_arrow(texts: pa.Array[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes and end offsets of an Arrow array of bytes."""
    _, places, blob = texts.buffers()
    if not len(texts):
        return np.zeros(0, np.uint8), np.zeros(0, np.int64)
    # An Arrow slice shares the buffers of the whole array.
    ends = np.frombuffer(places, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(blob, np.uint8)[ends[0] : ends[-1]], ends[1:] - ends[0]
