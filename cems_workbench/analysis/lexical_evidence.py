"""Which words of a query met which memory, and what each of them is worth in the memory's BM25 score.

    BM25(memory) = sum over the query's terms t, as often as the query has them, of part(t)
    part(t) = idf(t) * tf / (tf + k1 * (1 - b + b * length / mean length)),  idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5))

The parts are read from the index, so that they add up to the score in the list; tf is counted in the text, df and N are the index's.

Source: Robertson and Zaragoza 2009; the variant of Lucene, as bm25s computes it (store/lexical_index.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import log

from cems_workbench.records import Memory, indexed_text
from cems_workbench.store.lexical_index import LexicalIndex
from cems_workbench.store.tokenizer import chunks, normalised, terms_of, tokenize


@dataclass(frozen=True, slots=True)
class TermEvidence:
    """One search term of the query: `words` are the query's words it comes from, `asked` how often it is in the query.

    tf: times in the memory; df: memories that have it; `part`: its summand of the memory's BM25, all askings together.
    """

    term: str
    words: tuple[str, ...]
    asked: int
    tf: int
    df: int
    idf: float
    part: float


@dataclass(frozen=True, slots=True)
class LexicalEvidence:
    """All terms of one query variant against one memory; `documents` is the N of the idf."""

    documents: int
    terms: tuple[TermEvidence, ...]
    stop_words: tuple[str, ...]

    @property
    def score(self) -> float:
        """The memory's BM25 for this variant, 0 without a term in common."""
        return sum(found.part for found in self.terms)

    @property
    def matched(self) -> tuple[TermEvidence, ...]:
        """The terms that the memory has, the largest part first."""
        return tuple(sorted((found for found in self.terms if found.part > 0), key=lambda found: -found.part))

    @property
    def unmatched(self) -> tuple[TermEvidence, ...]:
        """The terms that the memory lacks, in the order of the query."""
        return tuple(found for found in self.terms if found.part <= 0)

    def share(self, found: TermEvidence) -> float:
        """The term's share of the score, 0..1."""
        return found.part / self.score if self.score > 0 else 0.0


def lexical_evidence(index: LexicalIndex, query: str, memory: Memory) -> LexicalEvidence:
    """What each term of `query` gives `memory` in the index as it is."""
    words: dict[str, list[str]] = {}
    stop_words: list[str] = []
    asked: dict[str, int] = {}
    for chunk in chunks(query):
        terms = terms_of(chunk)
        if not terms:
            stop_words.append(chunk)
        for term in terms:
            words.setdefault(term, []).append(chunk)
            asked[term] = asked.get(term, 0) + 1
    parts = index.parts(memory.id, list(words))
    inside = tokenize(indexed_text(memory))
    found = [
        TermEvidence(
            term, tuple(dict.fromkeys(words[term])), asked[term], inside.count(term), df := index.document_frequency(term),
            idf(df, index.document_count), asked[term] * parts.get(term, 0.0),
        )
        for term in words
    ]  # fmt: skip
    return LexicalEvidence(index.document_count, tuple(found), tuple(dict.fromkeys(stop_words)))


def idf(df: int, documents: int) -> float:
    """ln(1 + (N - df + 0.5) / (df + 0.5)): how rare a term is among N memories."""
    return log(1 + (documents - df + 0.5) / (df + 0.5))


@dataclass(frozen=True, slots=True)
class Match:
    """A stretch text[start:end] that gives these search terms."""

    start: int
    end: int
    terms: tuple[str, ...]


def matches(text: str, terms: Collection[str]) -> list[Match]:
    """Where `text` has one of `terms`, in order, without overlaps: the words and identifiers that give them.

    A text that NFKC changes is cut at its spaces instead, so that positions are those of the text as it stands.
    """
    wanted = set(terms)
    pieces: Sequence[str] = chunks(text) if normalised(text) == text else text.split()
    found, at = [], 0
    for piece in pieces:
        start = text.index(piece, at)
        at = start + len(piece)
        met = tuple(dict.fromkeys(term for term in tokenize(piece) if term in wanted))
        if met:
            found.append(Match(start, at, met))
    return found
