"""Vocabulary of a store: the words of its live memories with their document frequency.

Words are the plain words of lexical_segment.py: lower-cased, not stemmed, letters only, limited length. The lexical index stores
each memory's words, so only memories that changed since are read. Without an index all memories are counted (about 2 s for 100,000 of
40 words).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from cems_workbench.errors import StoreError
from cems_workbench.store import memories
from cems_workbench.store.database import Database
from cems_workbench.store.rows import read_content_version
from cems_workbench.store.search.directory import Manifest, segments_of
from cems_workbench.store.search.entries import documents_of, live_ids
from cems_workbench.store.search.lexical_index import LexicalIndex
from cems_workbench.store.search.lexical_segment import plain_words
from cems_workbench.store.search.tokenizer import chunks, normalised

MAX_OPEN_ATTEMPTS = 3
"""Attempts to open the lexical index while another process replaces it."""


class Vocabulary(dict[str, int]):
    """Word in lower case → number of live memories that contain it; not to be changed, also indexed by word length."""

    def of_length(self, shortest: int, longest: int) -> list[str]:
        """The words of `shortest` to `longest` letters (inclusive) that are valid typo corrections."""
        longest = min(longest, max(self._by_length, default=0))
        return [word for length in range(shortest, longest + 1) for word in self._by_length.get(length, ())]

    @cached_property
    def _by_length(self) -> dict[int, list[str]]:
        by_length: dict[int, list[str]] = {}
        for word in self:
            # A correction must be found again when it is searched, so it must be in normal form.
            if word.isalpha() and normalised(word).lower() == word:
                by_length.setdefault(len(word), []).append(word)
        return by_length


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
                    words = count_words(each.text for each in documents_of(self._database, live_ids(self._database)))
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
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(plain_words(chunks(text)))
    return dict(counts)
