"""Vocabulary of a store: the words of its live memories with their document frequency.

Words are the plain words of lexical_segment.py: lower-cased, not stemmed, letters only, limited length. The lexical index stores
each memory's words, so only memories that changed since are read. Without an index all memories are counted (about 2 s for 100,000 of
40 words).

Sorted string table: distinct texts in UTF-8 byte order in one blob, found by binary search; opening it reads nothing.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import StoreError
from cems_workbench.store import memories
from cems_workbench.store.database import Database
from cems_workbench.store.rows import read_content_version
from cems_workbench.store.search.directory.index_directory import Manifest
from cems_workbench.store.search.directory.segment_directory import segments_of
from cems_workbench.store.search.entries import documents_of
from cems_workbench.store.search.lexical.lexical_index import LexicalIndex
from cems_workbench.store.search.lexical.lexical_segment import plain_words
from cems_workbench.store.search.lexical.tokenizer import chunks, normalised

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


MAX_OPEN_ATTEMPTS = 3
"""Attempts to open the lexical index while another process replaces it."""


class Vocabulary(Mapping[str, int]):
    """Word → number of live memories that contain it; immutable, also indexed by word length."""

    def __init__(self, frequencies: Mapping[str, int]) -> None:
        """`frequencies` has words in lower case."""
        self._frequencies = dict(frequencies)

    def __getitem__(self, word: str) -> int:
        return self._frequencies[word]

    def __contains__(self, word: object) -> bool:
        return word in self._frequencies

    def __iter__(self) -> Iterator[str]:
        return iter(self._frequencies)

    def __len__(self) -> int:
        return len(self._frequencies)

    def of_length(self, shortest: int, longest: int) -> list[str]:
        """The words of `shortest` to `longest` letters (inclusive) that are valid typo corrections."""
        by_length = self._by_length
        return [
            word for length in range(shortest, min(longest, self._longest) + 1) for word in by_length.get(length, ())
        ]

    @cached_property
    def _by_length(self) -> dict[int, list[str]]:
        by_length: dict[int, list[str]] = {}
        for word in self._frequencies:
            # A correction must be found again when it is searched, so it must be in normal form.
            if word.isalpha() and normalised(word).lower() == word:
                by_length.setdefault(len(word), []).append(word)
        return by_length

    @cached_property
    def _longest(self) -> int:
        return max(self._by_length, default=0)


class CurrentVocabulary:
    """The vocabulary of the current content, computed once per content version."""

    def __init__(self, lexical: Callable[[], tuple[Path, Manifest | None]], database: Database) -> None:
        """`lexical` returns the lexical index's directory, and its manifest if it belongs to this store and language."""
        self._lexical = lexical
        self._database = database
        self._computing = threading.Lock()
        self._known: tuple[int, Vocabulary] | None = None

    def read(self) -> Vocabulary:
        """The vocabulary of the current content; the same object until that changes."""
        with self._computing:
            version = self._database.read(read_content_version)
            if self._known is None or self._known[0] != version:
                words = self._indexed()
                if words is None:
                    words = count_words(text for _, text, _, _ in memories.documents(self._database))
                self._known = version, Vocabulary(words)
            return self._known[1]

    def _indexed(self) -> Mapping[str, int] | None:
        """The words of the lexical index and of later changes; None without a readable index."""
        for _ in range(MAX_OPEN_ATTEMPTS):
            home, manifest = self._lexical()
            if manifest is None:
                return None
            with suppress(StoreError):  # another process is replacing it
                return self._words(LexicalIndex.open(home, segments_of(manifest)), manifest.content_version)
        return None

    def _words(self, index: LexicalIndex, version: int) -> Mapping[str, int]:
        """The words of an index of a content version and of later changes."""
        changed = self._database.read(memories.changed_since, version)
        if not changed:
            return index.words
        words = Counter(index.words)
        words.subtract(index.words_of(changed))
        words.update(count_words(document.text for document in documents_of(self._database, changed)))
        return {word: count for word, count in words.items() if count > 0}


def count_words(texts: Iterable[str]) -> dict[str, int]:
    """The plain words of `texts` with their document frequency."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(plain_words(chunks(text)))
    return dict(counts)
