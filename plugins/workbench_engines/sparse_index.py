"""Sparse BM25: every text is a vector with a weight per term, the query is one too, and the score is their dot product.

    weight(t) = f (k1 + 1) / (f + k1 (1 - b + b L / mean)),   t occurs f times in a text of L terms
    score     = Σ over the query's terms  q(t) * idf(t) * weight(t)
    q(t)      = 1, or the weight that t has in the query read as a text
    idf(t)    = 1, or ln(1 + (N - n + 0.5) / (n + 0.5)),  n of N texts have t

Against BM25 of a search engine (`lexical_index.py`): the encoder sees one text at a time, so the mean length is a constant that the
encoder assumes, and idf is the engine's own addition, which a collection may lack; then a common word counts as much as a rare one.
Weights, and the sum in the order of the terms' numbers, are in single precision, as in a vector engine, so that scores that are equal
there are equal here. A term's number is the first 32 bits of its SHA-256.

Source: ACE 0.8.0 (k1 1.5, b 0.75, mean 50, no idf, query as a text); fastembed 0.9.1 Qdrant/bm25 as mem0 2.2.1 calls it (k1 1.2, b 0.75,
mean 256, idf, query as a text).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Float32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SparseWeighting:
    """How terms are weighted; `mean_length` None is the true mean of the texts."""

    k1: float = 1.2
    b: float = 0.75
    mean_length: float | None = None
    idf: Literal["none", "lucene"] = "lucene"
    query_weight: Literal["one", "document"] = "one"

    def weight(self, frequency: int, length: int, mean: float) -> float:
        """The weight of a term that occurs `frequency` times in a text of `length` terms."""
        norm = self.k1 * (1 - self.b + self.b * length / mean) if mean else self.k1
        return frequency * (self.k1 + 1) / (frequency + norm)


class SparseIndex:
    """The vectors of a number of texts, by term; a text is called by its row, from 0."""

    def __init__(self, texts: Iterable[Sequence[str]], weighting: SparseWeighting) -> None:
        """Index over the terms of each text."""
        self._weighting = weighting
        numbers: dict[str, int] = {}
        rows: list[int] = []
        terms: list[int] = []
        counts: list[int] = []
        lengths: list[int] = []
        for row, words in enumerate(texts):
            lengths.append(len(words))
            for word, count in Counter(words).items():
                rows.append(row)
                terms.append(numbers.setdefault(word, len(numbers)))
                counts.append(count)
        self.size = len(lengths)
        """The number of texts, of which some may have no term."""
        self.mean_length = weighting.mean_length or (sum(lengths) / len(lengths) if lengths else 0.0)
        """The mean length that the weights assume, in terms."""
        length = np.array(lengths, np.float64)[rows] if rows else np.zeros(0)
        weights = weighting.weight(np.array(counts, np.float64), length, self.mean_length)  # type: ignore[arg-type]
        order = np.argsort(np.array(terms, np.int64), kind="stable")
        self._rows: NDArray[np.int32] = np.array(rows, np.int32)[order]
        self._weights: Float32 = np.asarray(weights, np.float32)[order]
        self._starts = np.concatenate(([0], np.cumsum(np.bincount(terms, minlength=len(numbers))))).astype(np.int64)
        self._numbers = numbers

    def document_frequency(self, term: str) -> int:
        """The number of texts that have a term."""
        return len(self._posting(term)[0])

    def query_weights(self, terms: Sequence[str]) -> dict[str, float]:
        """The weight of each term of a query that some text has, idf included, in the order in which they are added."""
        found: dict[str, float] = {}
        for term, count in sorted(Counter(terms).items(), key=lambda item: term_number(item[0])):
            frequency = self.document_frequency(term)
            if not frequency:
                continue
            own = 1.0
            if self._weighting.query_weight == "document":
                own = self._weighting.weight(count, len(terms), self.mean_length)
            if self._weighting.idf == "lucene":
                own *= log(1 + (self.size - frequency + 0.5) / (frequency + 0.5))
            found[term] = own
        return found

    def search(self, terms: Sequence[str]) -> tuple[Rows, Float32]:
        """(rows, scores) of every text that has a term of the query, best first, equal scores by row."""
        scores = np.zeros(self.size, np.float32)
        matched = np.zeros(self.size, bool)
        for term, own in self.query_weights(terms).items():
            rows, weights = self._posting(term)
            scores[rows] += np.float32(own) * weights
            matched[rows] = True
        found = np.flatnonzero(matched)
        found = found[np.argsort(-scores[found], kind="stable")]
        return found, scores[found]

    def contributions(self, row: int, terms: Sequence[str]) -> Mapping[str, float]:
        """What each term of a query adds to the score of a text; missing terms are absent."""
        found = {}
        for term, own in self.query_weights(terms).items():
            rows, weights = self._posting(term)
            place = int(np.searchsorted(rows, row))
            if place < len(rows) and rows[place] == row:
                found[term] = float(np.float32(own) * weights[place])
        return found

    def _posting(self, term: str) -> tuple[NDArray[np.int32], Float32]:
        """The rows with a term, ascending, and its weight in each."""
        number = self._numbers.get(term)
        if number is None:
            return self._rows[:0], self._weights[:0]
        place = slice(self._starts[number], self._starts[number + 1])
        return self._rows[place], self._weights[place]


def term_number(term: str) -> int:
    """The number of a term in a sparse vector."""
    return int.from_bytes(hashlib.sha256(term.encode()).digest()[:4], "big")
