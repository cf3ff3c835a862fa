"""Terms of a sparse BM25 vector: the words of a text, without stop words, stemmed if asked.

Three tokenizers are known:

    identifiers   ASCII letters and digits, `_` and a capital after a small letter part words   getUserById   get user by id
    words         runs of letters, digits and `_` of every alphabet                            getUserById   getuserbyid
    ascii         runs of a to z and 0 to 9; a text without any is parted at white space       get_user      get user

All lower first what they compare. A stop word, or a word shorter or longer than the limits, is no term; stems are made afterwards.
The stemmer `english` is Snowball's English as it stood before 2019, which fastembed's still is ("added" is "ad", "organized" is "organiz");
`porter` is Porter's of 1980 with later rules, as natural of npm has it; `suffixes` takes one ending off a word of 4 letters or more, the
first of SUFFIXES that fits. With `keep_ing` a word in -ing stays beside its stem.

Source: ACE 0.8.0 (identifiers, stop words, at least 2 letters); fastembed 0.9.1, model Qdrant/bm25 (words, NLTK's English stop words, at
most 40 letters, stems); mem0ai 3.3.1 of npm (ascii, suffixes, words in -ing).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

SparseTokens = Literal["identifiers", "words", "ascii"]
SparseStems = Literal["none", "english", "porter", "suffixes"]

SUFFIXES = (
    ("ies", 5, 3, "i"),
    ("sses", 4, 2, ""),
    ("ness", 4, 4, ""),
    ("ment", 6, 4, ""),
    ("ation", 7, 5, "e"),
    ("ing", 6, 3, ""),
    ("ed", 5, 2, ""),
    ("ly", 5, 2, ""),
    ("er", 5, 2, ""),
    ("est", 5, 3, ""),
    ("ss", 4, 0, ""),
    ("s", 4, 1, ""),
)
"""Endings, the letters that a word must have, how many are cut off, and what takes their place."""

_BORDER = re.compile(r"(?<=[a-z])(?=[A-Z])|_")
_ASCII = re.compile(r"[a-z0-9]+")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class SparseAnalysis:
    """How a text becomes terms; lengths are in characters, None is no limit."""

    tokens: SparseTokens = "words"
    stems: SparseStems = "none"
    stop_words: Set[str] = frozenset()
    min_length: int | None = None
    max_length: int | None = None
    keep_ing: bool = False

    def terms(self, text: str) -> list[str]:
        """The terms of a text, in order, with repetitions."""
        kept = [word for word in split_words(text, self.tokens) if self._counts(word)]
        if self.stems == "none" or (self.tokens == "ascii" and not _ASCII.search(text.lower())):
            return kept
        stemmed = map(_stemmer(self.stems), kept)
        if not self.keep_ing:
            return [stem for stem in stemmed if stem]
        both = (
            (stem, word if word.endswith("ing") and word != stem else "")
            for stem, word in zip(stemmed, kept, strict=True)
        )
        return [term for pair in both for term in pair if term]

    def _counts(self, word: str) -> bool:
        return (
            word not in self.stop_words
            and (self.min_length is None or len(word) >= self.min_length)
            and (self.max_length is None or len(word) <= self.max_length)
        )


def _stemmer(stems: SparseStems) -> Callable[[str], str]:
    if stems == "suffixes":
        return without_suffix
    if stems == "porter":
        return porter
    from pg_text_search.parser import stem

    return partial(stem, whole_doubles=False)


@lru_cache(maxsize=100_000)
def porter(word: str) -> str:
    """Porter's stem with his later rules: two letters stay, and -logi and -bli are endings."""
    from Stemmer import Stemmer

    stem: Callable[[str], str] = Stemmer("porter").stemWord  # a stemmer serves one thread
    found = stem(word) if len(word) > 2 else word
    return found[:-1] if found.endswith("logi") else stem(f"{word[:-1]}e") if found.endswith("bli") else found


def without_suffix(word: str) -> str:
    """A word without the first of SUFFIXES that fits; "ness" is nothing."""
    for ending, letters, cut, instead in SUFFIXES:
        if word.endswith(ending) and len(word) >= letters:
            return word[: len(word) - cut] + instead
    return word


def split_words(text: str, tokens: SparseTokens) -> list[str]:
    """The words of a text in lower case, in order."""
    if tokens == "identifiers":
        return _ASCII.findall(_BORDER.sub(" ", text).lower())
    if tokens == "ascii":
        return _ASCII.findall(text.lower()) or text.lower().split()
    # `_` can be part of a word and is no word alone.
    return [word for word in _WORD.findall(text.lower()) if word != "_"]
