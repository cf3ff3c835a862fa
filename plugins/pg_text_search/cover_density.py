"""PostgreSQL's `ts_rank_cd`, cover density ranking, computed without a server.

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
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pg_text_search.ts_rank import TextQuery, matches

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
