"""ts_rank evidence: the lexemes of a query in a text, and their share of its ts_rank.

    ts_rank(text) = 1/n * sum over the query's n lexemes of gain(its count in the text)
    gain(c) = 0.1 * (1 + 1/4 + 1/9 + ... + 1/c²) / 1.64493, so 0.0608 for once and at most 1.64 times that

Neither the rarity of a lexeme nor the length of the text counts. A query that PostgreSQL reads as a phrase, or as words that must all
occur, is ranked by their distances instead: its lexemes have no parts.

Source: pg_text_search/ts_rank.py, which computes it as the server does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cems_workbench.analysis.text_evidence import Match
from cems_workbench.store.search.postgres.ts_rank_index import TsRankIndex
from pg_text_search.ts_rank import GAINS, lexemes, or_query, ts_rank


@dataclass(frozen=True, slots=True)
class LexemeEvidence:
    """One lexeme of the query: `words` are the query's words it comes from.

    count: times in the text; chunks: chunks of the store that have it; `part`: its summand of the rank, 0 without any.
    """

    lexeme: str
    words: tuple[str, ...]
    count: int
    chunks: int
    part: float


@dataclass(frozen=True, slots=True)
class RankEvidence:
    """All lexemes of one query variant against the chunk of a memory that they rank highest; `chunk` None is the whole memory."""

    lexemes: tuple[LexemeEvidence, ...]
    stop_words: tuple[str, ...]
    score: float
    by_distance: bool
    """Whether it is ranked by the distances of words, so that no lexeme has a part."""
    chunk: int | None = None

    @property
    def matched(self) -> tuple[LexemeEvidence, ...]:
        """The lexemes that the text has, the largest part first."""
        return tuple(sorted((found for found in self.lexemes if found.count), key=lambda found: -found.part))

    @property
    def unmatched(self) -> tuple[LexemeEvidence, ...]:
        """The lexemes that the text lacks, in the order of the query."""
        return tuple(found for found in self.lexemes if not found.count)

    def share(self, found: LexemeEvidence) -> float:
        """The lexeme's share of the rank, 0..1."""
        return found.part / self.score if self.score > 0 else 0.0


WORD = re.compile(r"[^\W_]+(?:[-'’._/@:][^\W_]+)*")
"""A word marked in a text: what PostgreSQL may parse as one token, without the marks around it."""


def rank_evidence(index: TsRankIndex, query: str, texts: Mapping[int | None, str]) -> RankEvidence:
    """The part of each lexeme of `query` in the rank of the best of `texts`, a memory's searched texts (`store.indexes.texts`).

    Raises TsQueryError if the server would reject the query.
    """
    asked = or_query(query)
    documents = {chunk: lexemes(text) for chunk, text in texts.items()}
    best = max(documents, key=lambda chunk: ts_rank(documents[chunk], asked), default=None)
    inside = documents.get(best, {})
    words: dict[str, list[str]] = {}
    stop_words: list[str] = []
    for match in WORD.finditer(query):
        found = lexemes(match[0])
        for lexeme in found:
            words.setdefault(lexeme, []).append(match[0])
        if not found:
            stop_words.append(match[0])
    n = len(asked.terms)
    met = [
        LexemeEvidence(
            term.lexeme,
            tuple(dict.fromkeys(words.get(term.lexeme, [term.lexeme]))),
            count := len(inside.get(term.lexeme, ())),
            index.chunks_with(term.lexeme),
            0.0 if asked.ranks_pairs else float(GAINS[count]) / n,
        )
        for term in asked.terms
    ]
    place = {lexeme: i for i, lexeme in enumerate(words)}
    met.sort(key=lambda found: place.get(found.lexeme, len(place)))
    score = ts_rank(inside, asked) if any(found.count for found in met) else 0.0
    return RankEvidence(tuple(met), tuple(dict.fromkeys(stop_words)), score, asked.ranks_pairs, best)


def lexeme_matches(text: str, wanted: Collection[str]) -> list[Match]:
    """Occurrences of these lexemes in `text`, in order, without overlaps: the words that yield them."""
    asked = set(wanted)
    found = []
    for match in WORD.finditer(text):
        met = tuple(lexeme for lexeme in lexemes(match[0]) if lexeme in asked)
        if met:
            found.append(Match(match.start(), match.end(), met))
    return found
