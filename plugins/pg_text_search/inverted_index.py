"""ts_rank and ts_rank_cd of many texts at once, from an inverted index; to the last bit what comparing each text with the query gives.

A posting is a lexeme's frequency in a text, which is all that ts_rank needs; positions are stored for phrases. Texts keep their input
order: where it is the row order of a server's table (`ORDER BY ctid`), equal ranks are ordered as the server does.

The server's sort is not stable, but deterministic: a full sort is the quicksort of Bentley and McIlroy ("Engineering a Sort Function",
1993): the middle of three as pivot, of three such middles above 40 rows, insertion below 7; a stretch that is already in order stays.
With a LIMIT, and more than twice as many rows, a heap of that many rows is kept whose root is the worst, and read backwards. Both swap
rows that do not compare, so the order of ties depends on the rows around them. Known limit: rows that outgrow `work_mem` are merged from
a file, in another order.

PostgreSQL's `ts_rank_cd`, cover density ranking, computed without a server.

    ts_rank_cd = sum over covers of  0.1 / (1 + words between)

A cover is a shortest stretch of the text that satisfies the query; the next one begins after the start of the last. Words between are
positions within it that hold nothing of the query. So for words joined by OR, every place of one counts 0.1, however rare the word;
for AND, 0.1 for each stretch that holds all words, less the wider it is; a text that lacks one has no cover and 0. Weights are those of
texts without labels (D, 0.1).

`normalization` is a sum of flags, applied in this order: 1 divides by ln(1 + length), 2 by the length, 4 by the harmonic mean of
distances between covers, 8 by the number of distinct lexemes, 16 by log2(1 + distinct lexemes), 32 takes rank / (rank + 1).

Source: PostgreSQL 18, "Controlling Text Search"; Clarke, Cormack & Tudhope, Relevance Ranking for One to Three Term Queries, 1999.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pg_text_search.ts_rank import GAINS, LAST_POSITION, Lexemes, Phrase, Term, TextQuery, matches, ts_rank

WEIGHT = float(np.float32(0.1))
LOG_LENGTH, LENGTH, DISTANCE, DISTINCT, LOG_DISTINCT, TO_ONE = 1, 2, 4, 8, 16, 32

Positions = Mapping[str, tuple[int, ...]]


def ts_rank_cd(
    document: Positions,
    query: TextQuery,
    normalization: int = 0,
    length: int | None = None,
    distinct: int | None = None,
) -> float:
    """`ts_rank_cd(document, query, normalization)`, exactly representable in single precision; 0 where the query does not match.

    A document of the query's lexemes alone is enough with its `length`, the number of all its positions, and its `distinct` lexemes.
    """
    places = _places(document, query)
    rank, spread, count, previous = 0.0, 0.0, 0, 0.0
    start = 0
    while (cover := _cover(places, query, start)) is not None:
        first, last = cover
        holding = last - first + 1
        width = places[last][0] - places[first][0]
        between = max(width - (last - first), 0)
        # The mean weight of the places, as the server forms it.
        rank += holding / (holding * (1 / WEIGHT)) / (1 + between)
        middle = (places[first][0] + places[last][0]) / 2
        if count and middle > previous:
            spread += 1 / (middle - previous)
        previous, count, start = middle, count + 1, first + 1
    length = sum(map(len, document.values())) if length is None else length
    distinct = len(document) if distinct is None else distinct
    if normalization & LOG_LENGTH and distinct:
        rank /= math.log(length + 1)
    if normalization & LENGTH and length:
        rank /= length
    if normalization & DISTANCE and count and spread > 0:
        rank /= count / spread
    if normalization & DISTINCT and distinct:
        rank /= distinct
    if normalization & LOG_DISTINCT and distinct:
        rank /= math.log(distinct + 1) / math.log(2)
    if normalization & TO_ONE:
        rank /= rank + 1
    return float(np.float32(rank))


def single_covers(most: int) -> NDArray[np.float32]:
    """(most + 1) the rank of a text with so many covers of one place each, as of words joined by OR."""
    ranks = np.concatenate(([0.0], np.cumsum(np.full(most, 1 / (1 / WEIGHT)))))
    return ranks.astype(np.float32)


def _places(document: Positions, query: TextQuery) -> list[tuple[int, tuple[str, ...]]]:
    """(position, the query's lexemes there) of each position that has one, ascending."""
    held: dict[int, list[str]] = {}
    for term in query.terms:
        if not term.findable:
            continue
        for lexeme, positions in document.items():
            if lexeme == term.lexeme or (term.prefix and lexeme.startswith(term.lexeme)):
                for position in positions:
                    lexemes = held.setdefault(position, [])
                    if lexeme not in lexemes:
                        lexemes.append(lexeme)
    return [(position, tuple(held[position])) for position in sorted(held)]


def _cover(places: list[tuple[int, tuple[str, ...]]], query: TextQuery, start: int) -> tuple[int, int] | None:
    """(first, last) of the next cover among the places from `start`: the earliest end, then the latest begin before it."""
    seen: dict[str, tuple[int, ...]] = {}
    for last in range(start, len(places)):
        position, lexemes = places[last]
        for lexeme in lexemes:
            seen[lexeme] = (*seen.get(lexeme, ()), position)
        if matches(seen, query):
            break
    else:
        return None
    seen = {}
    for first in range(last, start - 1, -1):
        position, lexemes = places[first]
        for lexeme in lexemes:
            seen[lexeme] = (position, *seen.get(lexeme, ()))
        if matches(seen, query):
            return first, last
    # Only a query with NOT matches forwards and not backwards; the server then begins one place further on.
    return _cover(places, query, start + 1)


def full_order(scores: NDArray[np.float32], k: int) -> list[int]:
    """Places of the first k of `scores` (in heap order) after `ORDER BY score DESC`."""
    keys = _keys(scores)
    places = list(range(len(keys)))
    _quicksort(places, keys, k)
    return places[:k]


def limited_order(scores: NDArray[np.float32], k: int) -> list[int]:
    """Places of the first k of `scores` (in heap order) after `ORDER BY score DESC LIMIT k`."""
    if k <= 0:
        return []
    # The server sorts fully unless there are more than twice as many rows as the limit.
    if len(scores) <= 2 * k:
        return full_order(scores, k)
    return _bounded_heap(_keys(scores), k)


def _keys(scores: NDArray[np.float32]) -> list[int]:
    """Ascending keys for descending scores; whole numbers compare faster."""
    return [int(key) for key in np.unique(-scores, return_inverse=True)[1].tolist()]


def _quicksort(rows: list[int], keys: Sequence[int], wanted: int) -> None:
    """Sort `rows` by their keys in place; ranges that begin after `wanted` stay unsorted."""
    pending = [(0, len(rows))]
    while pending:
        start, count = pending.pop()
        # Rows after `wanted` do not affect the order of those before.
        if start >= wanted or count < 2:
            continue
        if count < 7:
            _insertion_sort(rows, keys, start, count)
        elif not _in_order(rows, keys, start, count):
            less, greater = _partition(rows, keys, start, count)
            pending.append((start, less))
            pending.append((start + count - greater, greater))


def _insertion_sort(rows: list[int], keys: Sequence[int], start: int, count: int) -> None:
    for place in range(start + 1, start + count):
        row, key = rows[place], keys[rows[place]]
        while place > start and keys[rows[place - 1]] > key:
            rows[place] = rows[place - 1]
            place -= 1
        rows[place] = row


def _in_order(rows: list[int], keys: Sequence[int], start: int, count: int) -> bool:
    last = keys[rows[start]]
    for row in rows[start + 1 : start + count]:
        if keys[row] < last:
            return False
        last = keys[row]
    return True


def _partition(rows: list[int], keys: Sequence[int], start: int, count: int) -> tuple[int, int]:
    """Smaller rows to the left, equal ones into the middle, greater ones to the right; how many are smaller and greater."""
    end = start + count
    middle = _pivot(rows, keys, start, count)
    rows[start], rows[middle] = rows[middle], rows[start]
    pivot = keys[rows[start]]
    # Rows equal to the pivot gather at both ends, [start, equal_left) and (equal_right, end), and move to the middle after.
    equal_left = left = start + 1
    equal_right = right = end - 1
    while True:
        while left <= right and (key := keys[rows[left]]) <= pivot:
            if key == pivot:
                rows[equal_left], rows[left] = rows[left], rows[equal_left]
                equal_left += 1
            left += 1
        while left <= right and (key := keys[rows[right]]) >= pivot:
            if key == pivot:
                rows[right], rows[equal_right] = rows[equal_right], rows[right]
                equal_right -= 1
            right -= 1
        if left > right:
            break
        rows[left], rows[right] = rows[right], rows[left]
        left += 1
        right -= 1
    less, greater = left - equal_left, equal_right - right
    _exchange(rows, start, left, min(equal_left - start, less))
    _exchange(rows, left, end, min(greater, end - 1 - equal_right))
    return less, greater


def _exchange(rows: list[int], start: int, end: int, count: int) -> None:
    """Swap the first `count` rows from `start` with the last `count` before `end`."""
    if count:
        rows[start : start + count], rows[end - count : end] = rows[end - count : end], rows[start : start + count]


def _pivot(rows: list[int], keys: Sequence[int], start: int, count: int) -> int:
    left, middle, right = start, start + count // 2, start + count - 1
    if count > 40:
        step = count // 8
        left = _middle_of(rows, keys, left, left + step, left + 2 * step)
        middle = _middle_of(rows, keys, middle - step, middle, middle + step)
        right = _middle_of(rows, keys, right - 2 * step, right - step, right)
    return middle if count == 7 else _middle_of(rows, keys, left, middle, right)


def _middle_of(rows: list[int], keys: Sequence[int], a: int, b: int, c: int) -> int:
    """Which of three places holds the middle key; among equal ones, the server's choice."""
    first, second, third = keys[rows[a]], keys[rows[b]], keys[rows[c]]
    if first < second:
        return b if second < third else (c if first < third else a)
    return b if second > third else (a if first < third else c)


def _bounded_heap(keys: Sequence[int], size: int) -> list[int]:
    """The `size` smallest keys' places, best first, out of a heap with the worst at its root."""
    heap: list[int] = []
    for row, key in enumerate(keys):
        if len(heap) < size:
            _push(heap, row, keys)
        elif key < keys[heap[0]]:
            _sift_down(heap, row, keys)
    backwards = []
    while len(heap) > 1:
        backwards.append(heap[0])
        last = heap.pop()
        _sift_down(heap, last, keys)
    return heap + backwards[::-1]


def _push(heap: list[int], row: int, keys: Sequence[int]) -> None:
    place = len(heap)
    heap.append(row)
    while place and keys[heap[(place - 1) // 2]] < keys[row]:
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = row


def _sift_down(heap: list[int], row: int, keys: Sequence[int]) -> None:
    place, count, key = 0, len(heap), keys[row]
    while (child := 2 * place + 1) < count:
        if child + 1 < count and keys[heap[child]] < keys[heap[child + 1]]:
            child += 1
        if key >= keys[heap[child]]:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = row


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
