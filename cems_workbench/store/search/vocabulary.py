"""The words of a store, as its live memories write them, and in how many memories each stands.

Words are the plain words of lexical_refresh.py: lower-cased, not stemmed, letters only, at most MAX_WORD of them. The lexical
index keeps them of the content it was built from, which takes milliseconds to read; when that is not the present content,
the memories are read and counted (about 2 s for 100,000 of 40 words).
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from cems_workbench.store import memories
from cems_workbench.store.database import Database
from cems_workbench.store.language import language
from cems_workbench.store.meta import content_identity, content_version
from cems_workbench.store.search import lexical_index
from cems_workbench.store.search.index_directory import IndexHome
from cems_workbench.store.search.lexical_refresh import plain_words
from cems_workbench.store.search.tokenizer import chunks, normalised
from cems_workbench.store.search.tokenizer import version as tokenizer_version


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

    def __init__(self, lexical: IndexHome, database: Database) -> None:
        self._lexical = lexical
        self._database = database
        self._computing = threading.Lock()
        self._known: tuple[int, Vocabulary] | None = None

    def read(self) -> Vocabulary:
        """The vocabulary of the content as it is now; the same object as long as that does not change."""
        with self._computing:
            with self._database.reading() as cursor:
                version, identity = content_version(cursor), content_identity(cursor)
                tokenizer = tokenizer_version(language(cursor))
            if self._known is None or self._known[0] != version:
                indexed = _indexed_words(self._lexical, version, identity, tokenizer)
                if indexed is None:
                    indexed = count_words(text for _, text, _, _ in memories.documents(self._database))
                self._known = version, Vocabulary(indexed)
            return self._known[1]


def count_words(texts: Iterable[str]) -> dict[str, int]:
    """The plain words of `texts`, each with the number of texts it stands in."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(plain_words(chunks(text)))
    return dict(counts)


def _indexed_words(lexical: IndexHome, version: int, identity: str, tokenizer: str) -> dict[str, int] | None:
    """The words of the lexical index, None when it is not of this content or just being replaced."""
    manifest = lexical.found(version, identity, tokenizer).manifest
    if manifest is None or manifest.content_version != version:
        return None
    try:
        words: dict[str, int] = json.loads((lexical.path / manifest.directory / lexical_index.WORDS).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return words
