"""Why a memory's text matches a query: by words (BM25, ts_rank) and by tokens (late interaction), and how far models read it.

    BM25(memory)  = sum over the query's terms t, as often as the query has them, of
                    idf(t) * tf / (tf + k1 * (1 - b + b * length / mean length)),  idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5))
    ts_rank(text) = 1/n * sum over the query's n lexemes of gain(its count c in the text),
                    gain(c) = 0.1 * (1 + 1/4 + 1/9 + ... + 1/c²) / 1.64493
    strength(s)   = max over query tokens t of idf(t) * max(0, cos(t, s)) / largest idf   0..1, of text token s; of one t its cosine

BM25's parts are read from the index, so that they add up to the score in the list. A query that PostgreSQL reads as a phrase, or as words
that must all occur, is ranked by distances: its lexemes have no parts. A query token matches the text token nearest to it; only these
matches make the score. `seed_overlap` appends a ". " to what a reranker reads, which the content may not have there. A model cuts a text
after its last token; the cut is given as the end of the last whole word before it.

Source: Robertson and Zaragoza 2009, as bm25s computes it; pg_text_search/ts_rank.py; ColBERT's MaxSim (Khattab & Zaharia 2020).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cems_workbench.analysis.text_evidence import Match, idf
from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.models.late_interaction import TokenCosines
from cems_workbench.models.protocol import QueryEmbedder
from cems_workbench.records import Memory
from cems_workbench.store.search.lexical_index import LexicalIndex
from cems_workbench.store.search.tokenizer import chunks, terms_of, tokenize
from cems_workbench.store.text_rule import searched_text

if TYPE_CHECKING:
    from cems_workbench.store.search.postgres import TsRankIndex


@dataclass(frozen=True, slots=True)
class Term:
    """One search term or lexeme of the query: `words` are the query's words it comes from, `asked` how often it is in
    the query. `count`: times in the text; `holding`: memories (of ts_rank: chunks) of the store that have it; `part`:
    its summand of the score, all occurrences together; `idf` is None for ts_rank."""

    term: str
    words: tuple[str, ...]
    count: int
    holding: int
    part: float
    asked: int = 1
    idf: float | None = None


@dataclass(frozen=True, slots=True)
class WordsInCommon:
    """All terms of one query variant against one memory, and its score for them, 0 without one in common. `chunk` is
    the chunk that was scored, by its `seq`, of a memory that has any: its best. `by_distance`: ranked by the distances
    of words, so that no term has a part."""

    terms: tuple[Term, ...]
    stop_words: tuple[str, ...]
    score: float
    chunk: int | None = None
    by_distance: bool = False

    @property
    def matched(self) -> tuple[Term, ...]:
        """The terms that the memory has, the largest part first."""
        return tuple(sorted((found for found in self.terms if self._has(found)), key=lambda found: -found.part))

    @property
    def unmatched(self) -> tuple[Term, ...]:
        """The terms that the memory lacks, in the order of the query."""
        return tuple(found for found in self.terms if not self._has(found))

    def _has(self, found: Term) -> bool:
        return found.count > 0 if self.by_distance else found.part > 0

    def share(self, found: Term) -> float:
        """The term's share of the score, 0..1."""
        return found.part / self.score if self.score > 0 else 0.0


def _origins(
    words: Sequence[str], terms: Callable[[str], Collection[str]]
) -> tuple[dict[str, list[str]], tuple[str, ...]]:
    """The words that each term comes from, as often as they are there, and the words that give none."""
    of: dict[str, list[str]] = {}
    for word in words:
        for term in terms(word):
            of.setdefault(term, []).append(word)
    return of, tuple(dict.fromkeys(word for word in words if not terms(word)))


def lexical_evidence(
    index: LexicalIndex, query: str, memory: Memory, texts: Mapping[int | None, str] | None = None
) -> WordsInCommon:
    """The part of each term of `query` in the BM25 of `memory` in the current index; for a memory with chunks, of its
    best chunk. `texts` are the searched texts of the memory (`store.indexes.texts`); without them it is searched whole,
    by the default text rule."""
    words, stop_words = _origins(chunks(query), lambda word: terms_of(word, index.language))
    by_chunk = index.chunk_contributions(memory.id, list(words))

    def parts(chunk: int | None) -> dict[str, float]:
        return {term: len(words[term]) * by_chunk.get(chunk, {}).get(term, 0.0) for term in words}

    best = max(by_chunk, key=lambda chunk: sum(parts(chunk).values()), default=None)
    inside = tokenize((texts or {}).get(best, searched_text(memory)), index.language)
    found = []
    for term, part in parts(best).items():
        df, of = index.document_frequency(term), words[term]
        rare = idf(df, index.document_count)
        found.append(Term(term, tuple(dict.fromkeys(of)), inside.count(term), df, part, len(of), rare))
    return WordsInCommon(tuple(found), stop_words, sum(term.part for term in found), best)


WORD = re.compile(r"[^\W_]+(?:[-'’._/@:][^\W_]+)*")
"""A word marked in a text: what PostgreSQL may parse as one token, without the marks around it."""


def rank_evidence(index: TsRankIndex, query: str, texts: Mapping[int | None, str]) -> WordsInCommon:
    """The part of each lexeme of `query` in the ts_rank of the best of `texts`, a memory's searched texts
    (`store.indexes.texts`). Raises TsQueryError if the server would reject the query."""
    from pg_text_search.ts_rank import GAINS, lexemes, or_query, ts_rank

    asked = or_query(query)
    documents = {chunk: lexemes(text) for chunk, text in texts.items()}
    best = max(documents, key=lambda chunk: ts_rank(documents[chunk], asked), default=None)
    inside = documents.get(best, {})
    words, stop_words = _origins([match[0] for match in WORD.finditer(query)], lexemes)
    met = []
    for name in (term.lexeme for term in asked.terms):
        count = len(inside.get(name, ()))
        part = 0.0 if asked.ranks_pairs else float(GAINS[count]) / len(asked.terms)
        met.append(Term(name, tuple(dict.fromkeys(words.get(name, [name]))), count, index.chunks_with(name), part))
    place = {lexeme: i for i, lexeme in enumerate(words)}
    met.sort(key=lambda found: place.get(found.term, len(place)))
    score = ts_rank(inside, asked) if any(found.count for found in met) else 0.0
    return WordsInCommon(tuple(met), stop_words, score, best, asked.ranks_pairs)


def lexeme_matches(text: str, wanted: Collection[str]) -> list[Match]:
    """Occurrences of these lexemes in `text`, in order, without overlaps: the words that yield them."""
    from pg_text_search.ts_rank import lexemes

    asked = set(wanted)
    found = []
    for match in WORD.finditer(text):
        met = tuple(lexeme for lexeme in lexemes(match[0]) if lexeme in asked)
        if met:
            found.append(Match(match.start(), match.end(), met))
    return found


WHOLE_WORD = re.compile(r"\S+")
JOINT = ". "
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
    for joint in ("", JOINT[0], JOINT):
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
    ends = [word.end() for word in WHOLE_WORD.finditer(text)]
    fits, past = 0, len(ends)
    while past - fits > 1:  # the first `fits` words fit, the first `past` do not
        middle = (fits + past) // 2
        if room.count(text[: ends[middle - 1]]) <= room.tokens:
            fits = middle
        else:
            past = middle
    return ends[fits - 1] if fits else 0


@dataclass(frozen=True, eq=False)
class TokenSimilarity:
    """Per text token (S): strength 0..1, the query token of that strength and their cosine; `met_by`: query tokens that matched it."""

    strength: NDArray[np.float64]
    nearest: NDArray[np.int64]
    cosine: NDArray[np.float64]
    met_by: tuple[tuple[int, ...], ...]


def token_similarity(cosines: TokenCosines, only: int | None = None) -> TokenSimilarity:
    """The heat of every query token together, or of the one at place `only`. Query and text have at least one token each."""
    warm = np.maximum(cosines.cosine, 0.0)
    if only is None:
        most = float(cosines.idf.max())
        weighted = warm * (cosines.idf / most if most > 0 else np.zeros(len(cosines.idf)))[:, None]
    else:
        weighted = np.where(np.arange(len(warm))[:, None] == only, warm, -1.0)
    nearest = weighted.argmax(axis=0)
    places = np.arange(weighted.shape[1])
    met = cosines.cosine.argmax(axis=1)
    asked = range(len(met)) if only is None else (only,)
    met_by = tuple(tuple(t for t in asked if met[t] == s) for s in places)
    return TokenSimilarity(
        np.clip(weighted[nearest, places], 0.0, 1.0), nearest, cosines.cosine[nearest, places], met_by
    )
