"""Terms of a sparse BM25 vector: the words of a text, without stop words, stemmed if asked.

Two tokenizers are known:

    identifiers   ASCII letters and digits, `_` and a capital after a small letter part words   getUserById   get user by id
    words         runs of letters, digits and `_` of every alphabet                            getUserById   getuserbyid

Both lower first what they compare. A stop word, or a word shorter or longer than the limits, is no term; stems are made afterwards.
The stemmer is Snowball's English as it stood before 2019, which fastembed's still is ("added" is "ad", "organized" is "organiz").

Source: ACE 0.8.0 (identifiers, stop words, at least 2 letters); fastembed 0.9.1, model Qdrant/bm25 (words, NLTK's English stop words, at
most 40 letters, stems).
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

SparseTokens = Literal["identifiers", "words"]
SparseStems = Literal["none", "english"]

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

    def terms(self, text: str) -> list[str]:
        """The terms of a text, in order, with repetitions."""
        kept = [word for word in split_words(text, self.tokens) if self._counts(word)]
        if self.stems == "none":
            return kept
        from pg_text_search.parser import stem

        return [stem(word, whole_doubles=False) for word in kept]

    def _counts(self, word: str) -> bool:
        return (
            word not in self.stop_words
            and (self.min_length is None or len(word) >= self.min_length)
            and (self.max_length is None or len(word) <= self.max_length)
        )


def split_words(text: str, tokens: SparseTokens) -> list[str]:
    """The words of a text in lower case, in order."""
    if tokens == "identifiers":
        return _ASCII.findall(_BORDER.sub(" ", text).lower())
    # `_` can be part of a word and is no word alone.
    return [word for word in _WORD.findall(text.lower()) if word != "_"]
