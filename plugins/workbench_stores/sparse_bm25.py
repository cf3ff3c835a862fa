"""Sparse BM25 vectors as fastembed's model Qdrant/bm25 makes them: the query's, and whether stored ones are such vectors.

    text -> words in lower case -> without stop words and words of more than 40 letters -> stems -> numbers |murmur3(stem)|
    weight of a stored word   f (k1 + 1) / (f + k1 (1 - b + b L / 256)),   k1 1.2, b 0.75; f times in a text of L words
    weight of a query's word  1, however often it occurs (query_embed: LangChain), or that of a stored one (embed: mem0)

The rarity of a word is not in the vectors: the collection has it multiplied in (modifier idf), or has not.

Source: fastembed 0.9.1, fastembed/sparse/bm25.py, compared by running (tests/recordings/fastembed_bm25.json).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

import mmh3

from cems_workbench.platform.sparse_terms import SparseAnalysis

QueryWeight = Literal["one", "document"]
K1, B, MEAN_LENGTH, MAX_WORD_LENGTH = 1.2, 0.75, 256.0, 40
CLOSE = 1e-4
"""Relative difference of two weights that count as equal: engines keep them in single precision or less."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """How many of the stored vectors are those of their texts: with the same words, and with the same weights too."""

    compared: int
    words: int
    weights: int

    @property
    def known(self) -> bool:
        """Whether every stored vector has the words of its text, so that a query's vector can be made."""
        return 0 < self.compared == self.words


@cache
def _analysis() -> SparseAnalysis:
    from bm25s.stopwords import STOPWORDS_EN_PLUS  # NLTK's, as fastembed's file english.txt

    return SparseAnalysis("words", "english", frozenset(STOPWORDS_EN_PLUS), max_length=MAX_WORD_LENGTH)


def word_number(term: str) -> int:
    """The number of a term in a vector: the absolute value of its signed 32-bit murmur3 hash."""
    return abs(mmh3.hash(term))


def document_vector(text: str) -> dict[int, float]:
    """The weights of a text's words by number; empty if no word is left."""
    terms = _analysis().terms(text)
    norm = K1 * (1 - B + B * len(terms) / MEAN_LENGTH)
    return {word_number(term): count * (K1 + 1) / (count + norm) for term, count in Counter(terms).items()}


def query_vector(text: str, weight: QueryWeight) -> dict[int, float]:
    """The weights of a query's words by number; empty if no word is left."""
    found = document_vector(text)
    return found if weight == "document" else dict.fromkeys(found, 1.0)


def reproduced(stored: Iterable[tuple[str, Mapping[int, float]]]) -> Reproduction:
    """Compare stored vectors with those of their texts; a text of which no word is left is not compared."""
    compared = words = weights = 0
    for text, vector in stored:
        own = document_vector(text)
        if not own:
            continue
        compared += 1
        if own.keys() == vector.keys():
            words += 1
            weights += all(abs(vector[number] - value) <= CLOSE * value for number, value in own.items())
    return Reproduction(compared, words, weights)
