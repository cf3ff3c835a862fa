"""ts_rank and ts_rank_cd of many texts at once, from an inverted index; to the last bit what comparing each text with the query gives.

A posting is a lexeme's frequency in a text, which is all that ts_rank needs; positions are stored for phrases. Texts keep their input
order: where it is the row order of a server's table (`ORDER BY ctid`), `tie_order.py` orders equal ranks as the server does.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pg_text_search.cover_density import single_covers, ts_rank_cd
from pg_text_search.ts_rank import (
    GAINS,
    LAST_POSITION,
    Lexemes,
    Phrase,
    Term,
    TextQuery,
    matches,
    ts_rank,
)

COLUMNS = {
    "starts": "where each term's postings begin, and the end, int64",
    "documents": "the text of each posting, int32",
    "counts": "how often the term occurs there, uint8",
    "places": "where each posting's positions begin, and the end, int64",
    "positions": "the positions, uint16",
}
"""The arrays of an index."""

Columns = Mapping[str, NDArray[Any]]
Ranks = tuple[NDArray[np.float32], NDArray[np.bool_]]
"""The rank of every text, and which texts match, both of shape (texts,)."""


class InvertedIndex:
    """An index of texts by their lexemes."""

    def __init__(self, terms: Sequence[str], columns: Columns, size: int) -> None:
        """`terms`: the lexemes in order of their bytes; `columns`: the arrays of `COLUMNS`; `size`: number of texts."""
        self.terms, self.columns, self.size = terms, columns, size
        self._numbers = {term: number for number, term in enumerate(terms)}

    def texts_with(self, lexeme: str) -> int:
        """Number of texts that have a lexeme."""
        return len(self._postings(lexeme)[0])

    def ts_rank(self, query: TextQuery) -> Ranks:
        """ts_rank of every text, and which texts match."""
        scores, found = self._nothing()
        alternatives = query.alternatives
        if alternatives is None or query.ranks_pairs or any(term.prefix or term.weights for term in query.terms):
            for row, document in self._documents_with(query).items():
                found[row] = matches(document, query)
                scores[row] = ts_rank(document, query)
            return scores, found
        for term in query.terms:
            rows, counts = self._postings(term.lexeme)
            scores[rows] = scores[rows] + GAINS[counts]  # Added in double and rounded to single precision, as there.
        scores /= np.float32(max(len(query.terms), 1))
        for node in alternatives:
            if isinstance(node, Term):
                found[self._postings(node.lexeme)[0]] = True
        for node in alternatives:
            if isinstance(node, Phrase):
                self._add_phrase(node, found)
        return scores, found

    def ts_rank_cd(self, query: TextQuery, normalization: int = 0) -> Ranks:
        """ts_rank_cd of every text, and which texts match."""
        scores, found = self._nothing()
        lengths, distinct = self._sizes
        alternatives = query.alternatives
        plain = alternatives and all(
            isinstance(node, Term) and not node.prefix and not node.weights for node in alternatives
        )
        # Every place is one cover, unless the server puts the last ones of a long text on one position.
        if not normalization and plain and int(lengths.max(initial=0)) < LAST_POSITION:
            places = np.zeros(self.size, np.int64)
            for term in query.terms:
                rows, counts = self._postings(term.lexeme)
                places[rows] += counts
            found = places > 0
            scores[found] = single_covers(int(places.max(initial=0)))[places[found]]
            return scores, found
        for row, document in self._documents_with(query).items():
            found[row] = matches(document, query)
            if found[row]:
                scores[row] = ts_rank_cd(document, query, normalization, int(lengths[row]), int(distinct[row]))
        return scores, found

    def _nothing(self) -> Ranks:
        return np.zeros(self.size, np.float32), np.zeros(self.size, bool)

    @cached_property
    def _sizes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions and distinct lexemes of each text."""
        rows, counts = self.columns["documents"], self.columns["counts"]
        lengths = np.bincount(rows, counts, minlength=self.size).astype(np.int64)
        return lengths, np.bincount(rows, minlength=self.size)

    def _add_phrase(self, phrase: Phrase, found: NDArray[np.bool_]) -> None:
        """Mark the texts that contain the phrase; often none, because its words must match too."""
        # Texts found by a single term need no look at positions.
        rows = np.flatnonzero(~found)
        for term in phrase.terms:
            rows = rows[np.isin(rows, self._postings(term.lexeme)[0])]
            if not len(rows):
                return
        alone = TextQuery(phrase)
        for row in rows.tolist():
            document = {term.lexeme: self._positions(term.lexeme, row) for term in phrase.terms}
            found[row] = matches(document, alone)

    def _documents_with(self, query: TextQuery) -> dict[int, Lexemes]:
        """Text → its lexemes, as far as the query asks for them, of all texts with at least one."""
        documents: dict[int, Lexemes] = {}
        for term in query.terms:
            for lexeme in self._expanded(term):
                for row in self._postings(lexeme)[0].tolist():
                    documents.setdefault(row, {})[lexeme] = self._positions(lexeme, row)
        return documents

    def _expanded(self, term: Term) -> Sequence[str]:
        if not term.prefix:
            return [term.lexeme]
        start = bisect_left(self.terms, term.lexeme.encode(), key=str.encode)
        end = start
        while end < len(self.terms) and self.terms[end].startswith(term.lexeme):
            end += 1
        return self.terms[start:end]

    def _postings(self, lexeme: str) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """The texts with a lexeme, and its frequency in each."""
        number = self._numbers.get(lexeme)
        starts = self.columns["starts"]
        span = slice(0, 0) if number is None else slice(starts[number], starts[number + 1])
        return self.columns["documents"][span], self.columns["counts"][span]

    def _positions(self, lexeme: str, row: int) -> tuple[int, ...]:
        start = int(self.columns["starts"][self._numbers[lexeme]])
        posting = start + int(np.searchsorted(self._postings(lexeme)[0], row))
        first, last = self.columns["places"][posting : posting + 2].tolist()
        return tuple(self.columns["positions"][first:last].tolist())


def inverted_index(documents: Iterable[Lexemes]) -> InvertedIndex:
    """The index of texts given by their lexemes (`ts_rank.lexemes`), in this order."""
    terms: dict[str, int] = {}
    postings, counts, positions, sizes = array("i"), array("B"), array("H"), array("i")
    for document in documents:
        sizes.append(len(document))
        for lexeme, places in document.items():
            postings.append(terms.setdefault(lexeme, len(terms)))
            counts.append(len(places))
            positions.extend(places)
    # By bytes, as PostgreSQL: a prefix search is then one range.
    ordered = sorted(terms, key=str.encode)
    columns = _inverted(
        np.array([terms[term] for term in ordered], np.int64),
        np.frombuffer(postings, np.int32),
        np.repeat(np.arange(len(sizes), dtype=np.int32), np.frombuffer(sizes, np.int32)),
        np.frombuffer(counts, np.uint8),
        np.frombuffer(positions, np.uint16),
    )
    return InvertedIndex(ordered, columns, len(sizes))


def _inverted(
    ordered: NDArray[np.int64],
    postings: NDArray[np.int32],
    documents: NDArray[np.int32],
    counts: NDArray[np.uint8],
    positions: NDArray[np.uint16],
) -> Columns:
    """The postings by term, in the order of `ordered` (numbers of terms), each term's by text."""
    place_of = np.empty(len(ordered), np.int64)
    place_of[ordered] = np.arange(len(ordered))
    term = place_of[postings]
    order = np.argsort(term, kind="stable")
    begins = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))[:-1][order]
    lengths = counts[order].astype(np.int64)
    places = np.concatenate(([0], np.cumsum(lengths)))
    # Position i of the result comes from where its posting's positions began, plus how far into the posting it is.
    moved = np.repeat(begins - places[:-1], lengths) + np.arange(len(positions))
    starts = np.concatenate(([0], np.cumsum(np.bincount(term, minlength=len(ordered)))))
    return {
        "starts": starts.astype(np.int64),
        "documents": documents[order],
        "counts": counts[order],
        "places": places,
        "positions": positions[moved],
    }
