"""Texts in the order of their UTF-8 bytes, which is that of their characters, one behind the other: a text is found by halving.

A million of them are opened at once, because none is read before it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa


class SortedTexts:
    """Distinct texts in order; position i is the i-th."""

    def __init__(self, blob: NDArray[np.uint8], ends: NDArray[Any]) -> None:
        """`blob` has their bytes, `ends` where each ends."""
        self._blob, self._ends = blob, ends
        self._bytes, self._places = blob.data, ends.data  # one number of an array takes three times as long

    @classmethod
    def of(cls, texts: Iterable[str]) -> SortedTexts:
        """These texts, which are in order."""
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
        """The position of a text, -1 where it is not among them."""
        place = self.place(text)
        return place if place < len(self) and self._at(place) == text.encode("utf-8", "surrogatepass") else -1

    def place(self, text: str) -> int:
        """How many of them stand before a text."""
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
        """The positions of those of `texts` that are among them, ascending."""
        if len(texts) * len(self).bit_length() > len(self):
            import pyarrow as pa
            import pyarrow.compute as pc

            among = pc.is_in(self.arrow(), value_set=pa.array(texts, pa.large_string()).cast(pa.large_binary()))
            return np.flatnonzero(among.to_numpy(zero_copy_only=False)).astype(np.int64)
        found = [position for text in texts if (position := self.find(text)) >= 0]
        return np.array(sorted(found), np.int64)

    def arrow(self) -> pa.Array[Any]:
        """They as an Arrow array of bytes, without a copy of them."""
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
    """Their bytes and where each ends."""
    encoded = [text.encode() for text in texts]
    blob = np.frombuffer(b"".join(encoded), np.uint8)
    return blob, np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), dtype=np.int64)


def from_arrow(texts: pa.Array[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The same of an Arrow array of bytes."""
    _, places, blob = texts.buffers()
    if not len(texts):
        return np.zeros(0, np.uint8), np.zeros(0, np.int64)
    ends = np.frombuffer(places, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(blob, np.uint8)[ends[0] : ends[-1]], ends[1:] - ends[0]
