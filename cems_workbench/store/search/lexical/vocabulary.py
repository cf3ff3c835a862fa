"""The words of a store, as its live memories write them, and in how many memories each stands.

Words are the plain words of lexical_segment.py: lower-cased, not stemmed, letters only, at most MAX_WORD of them. The lexical index
keeps those of each memory, so that what changed since it was brought up to date is all that has to be read. Where there is no index
of this content all memories are read and counted (about 2 s for 100,000 of 40 words).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from cems_workbench.errors import StoreError
from cems_workbench.store import memories
from cems_workbench.store.database import Database
from cems_workbench.store.meta import content_version
from cems_workbench.store.search.directory.index_directory import Manifest
from cems_workbench.store.search.directory.segment_directory import segments_of
from cems_workbench.store.search.entries import documents_of
from cems_workbench.store.search.lexical.lexical_index import LexicalIndex
from cems_workbench.store.search.lexical.lexical_segment import plain_words
from cems_workbench.store.search.lexical.tokenizer import chunks, normalised

TRIES = 3
"""How often the lexical index is opened while another process replaces it."""


class Vocabulary(Mapping[str, int]):
    """Word → number of live memories that contain it; immutable, and its words can be had by their length."""

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
        """The words of `shortest` to `longest` letters, both included; only those a text can be corrected to."""
        by_length = self._by_length
        return [
            word for length in range(shortest, min(longest, self._longest) + 1) for word in by_length.get(length, ())
        ]

    @cached_property
    def _by_length(self) -> dict[int, list[str]]:
        by_length: dict[int, list[str]] = {}
        for word in self._frequencies:
            if word.isalpha() and normalised(word).lower() == word:
                by_length.setdefault(len(word), []).append(word)
        return by_length

    @cached_property
    def _longest(self) -> int:
        return max(self._by_length, default=0)


class CurrentVocabulary:
    """The vocabulary of a store's present content, computed once per content version."""

    def __init__(self, lexical: Callable[[], tuple[Path, Manifest | None]], database: Database) -> None:
        """`lexical` gives the home of the lexical index and its manifest, where that is of this store and its language."""
        self._lexical = lexical
        self._database = database
        self._computing = threading.Lock()
        self._known: tuple[int, Vocabulary] | None = None

    def read(self) -> Vocabulary:
        """The vocabulary of the content as it is now; the same object as long as that does not change."""
        with self._computing:
            with self._database.reading() as cursor:
                version = content_version(cursor)
            if self._known is None or self._known[0] != version:
                words = self._indexed()
                if words is None:
                    words = count_words(text for _, text, _, _ in memories.documents(self._database))
                self._known = version, Vocabulary(words)
            return self._known[1]

    def _indexed(self) -> Mapping[str, int] | None:
        """The words of the lexical index, and of what has changed since; None where there is none to be read."""
        for _ in range(TRIES):
            home, manifest = self._lexical()
            if manifest is None:
                return None
            with suppress(StoreError):  # it is just being replaced
                return self._words(LexicalIndex.open(home, segments_of(manifest)), manifest.content_version)
        return None

    def _words(self, index: LexicalIndex, version: int) -> Mapping[str, int]:
        """The words of an index of a content version, and of what has changed since."""
        with self._database.reading() as cursor:
            changed = memories.changed_since(cursor, version)
        if not changed:
            return index.words
        words = Counter(index.words)
        words.subtract(index.words_of(changed))
        words.update(count_words(document.text for document in documents_of(self._database, changed)))
        return {word: count for word, count in words.items() if count > 0}


def count_words(texts: Iterable[str]) -> dict[str, int]:
    """The plain words of `texts`, each with the number of texts it stands in."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(plain_words(chunks(text)))
    return dict(counts)
