"""Lexical evidence: the words of a query in a memory, their share of its BM25 score, and how much of the text a model read.

    BM25(memory) = sum over the query's terms t, as often as the query has them, of part(t)
    part(t) = idf(t) * tf / (tf + k1 * (1 - b + b * length / mean length)),  idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5))

The parts of an indexed memory are read from the index, so that they add up to the score in the list; tf is counted in the text, df and
N are the index's. A text that the index does not hold is scored with the index's statistics unchanged.

A chunk that a reranker read is a stretch of the content; `seed_overlap` appends a ". ", which the content may not have
there. A model cuts a text after its last token; the cut is given as the end of the last whole word before it.

Source: Robertson and Zaragoza 2009; Lucene's variant, as bm25s computes it (store/search/lexical/lexical_index.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.models.protocol import QueryEmbedder
from cems_workbench.records import ENGLISH, Memory
from cems_workbench.store.search.lexical.lexical_index import LexicalIndex
from cems_workbench.store.search.lexical.tokenizer import Language, chunks, normalised, terms_of, tokenize
from cems_workbench.store.text_rule import searched_text


@dataclass(frozen=True, slots=True)
class TermEvidence:
    """One search term of the query: `words` are the query's words it comes from, `asked` how often it is in the query.

    tf: times in the memory; df: memories that have it; `part`: its summand of the memory's BM25, all occurrences together.
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
    """All terms of one query variant against one memory; `documents` is the N of the idf.

    `chunk` is the chunk that was scored, by its `seq`, of a memory that has any: its best.
    """

    documents: int
    terms: tuple[TermEvidence, ...]
    stop_words: tuple[str, ...]
    chunk: int | None = None

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


def lexical_evidence(
    index: LexicalIndex, query: str, memory: Memory, texts: Mapping[int | None, str] | None = None
) -> LexicalEvidence:
    """The part of each term of `query` in the score of `memory` in the current index; for a memory with chunks, of its best chunk.

    `texts` are the searched texts of the memory (`store.indexes.texts`); without them it is searched whole, by the default text rule.
    """
    words: dict[str, list[str]] = {}
    stop_words: list[str] = []
    asked: dict[str, int] = {}
    for chunk in chunks(query):
        terms = terms_of(chunk, index.language)
        if not terms:
            stop_words.append(chunk)
        for term in terms:
            words.setdefault(term, []).append(chunk)
            asked[term] = asked.get(term, 0) + 1
    by_chunk = index.chunk_contributions(memory.id, list(words))
    best = max(
        by_chunk, key=lambda chunk: sum(asked[term] * by_chunk[chunk].get(term, 0.0) for term in words), default=None
    )
    parts = by_chunk.get(best, {})
    inside = tokenize((texts or {}).get(best, searched_text(memory)), index.language)
    found = [
        TermEvidence(
            term,
            tuple(dict.fromkeys(words[term])),
            asked[term],
            inside.count(term),
            df := index.document_frequency(term),
            idf(df, index.document_count),
            asked[term] * parts.get(term, 0.0),
        )
        for term in words
    ]
    return LexicalEvidence(index.document_count, tuple(found), tuple(dict.fromkeys(stop_words)), best)


def idf(df: int, documents: int) -> float:
    """ln(1 + (N - df + 0.5) / (df + 0.5)): how rare a term is among N memories."""
    return log(1 + (documents - df + 0.5) / (df + 0.5))


@dataclass(frozen=True, slots=True)
class Match:
    """A stretch text[start:end] that yields these search terms."""

    start: int
    end: int
    terms: tuple[str, ...]


def matches(text: str, terms: Collection[str], language: Language = ENGLISH) -> list[Match]:
    """Occurrences of `terms` in `text`, in order, without overlaps: the words and identifiers that yield them.

    A text that NFKC changes is cut at its spaces instead, so that positions are those of the original text.
    """
    wanted = set(terms)
    pieces: Sequence[str] = chunks(text) if normalised(text) == text else text.split()
    found, at = [], 0
    for piece in pieces:
        start = text.index(piece, at)
        at = start + len(piece)
        met = tuple(dict.fromkeys(term for term in tokenize(piece, language) if term in wanted))
        if met:
            found.append(Match(start, at, met))
    return found


def score(index: LexicalIndex, query: str, text: str) -> float:
    """The score of `text` for `query` in the index, 0 without a common term, or in an empty index; summed in float32.

    A term of no indexed memory counts as a term of only this text.
    """
    if not index.mean_length:
        return 0.0
    inside = tokenize(text, index.language)
    counts = Counter(inside)
    room = index.k1 * (1 - index.b + index.b * len(inside) / index.mean_length)
    total = np.float32(0)
    for term in sorted(tokenize(query, index.language)):
        tf = counts[term]
        if tf:
            rare = idf(max(1, index.document_frequency(term)), index.document_count)
            total += np.float32(rare * tf / (tf + room))
    return float(total)


_WORDS = re.compile(r"\S+")
_JOINT = ". "
"""Separator of `seed_overlap`."""


@dataclass(frozen=True, slots=True)
class Room:
    """How many tokens a model reads of a text, and how it counts them."""

    tokens: int
    count: Callable[[str], int]


def embedder_room(embedder: QueryEmbedder) -> Room | None:
    """The embedder's (and late interaction's) reach in one text; None for one on a server, because its tokens are unknown."""
    if not isinstance(embedder, TokenEmbedder):
        return None
    return Room(embedder.room, lambda text: len(embedder.wordpieces([text])[0]))


def chunk_place(content: str, chunk: str) -> tuple[int, int] | None:
    """(start, end) of the chunk in the content; None when it is not from this content."""
    for joint in ("", _JOINT[0], _JOINT):
        if chunk.endswith(joint):
            text = chunk[: len(chunk) - len(joint)]
            start = content.find(text)
            if start >= 0:
                return start, start + len(text)
    return None


def read_until(text: str, room: Room) -> int | None:
    """The end of the last whole word that fits; None if the whole text fits."""
    if room.count(text) <= room.tokens:
        return None
    ends = [word.end() for word in _WORDS.finditer(text)]
    fits, past = 0, len(ends)
    while past - fits > 1:  # the first `fits` words fit, the first `past` do not
        middle = (fits + past) // 2
        if room.count(text[: ends[middle - 1]]) <= room.tokens:
            fits = middle
        else:
            past = middle
    return ends[fits - 1] if fits else 0
