"""Why a memory's text matches a query: by words (BM25, ts_rank), by tokens (late interaction), and by which chunk.

    BM25(memory)  = sum over the query's terms t, as often as the query has them, of
                    idf(t) * tf / (tf + k1 * (1 - b + b * length / mean length)),  idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5))
    ts_rank(text) = 1/n * sum over the query's n lexemes of gain(its count c in the text),
                    gain(c) = 0.1 * (1 + 1/4 + 1/9 + ... + 1/c²) / 1.64493
    strength(s)   = max over query tokens t of idf(t) * max(0, cos(t, s)) / largest idf   0..1, of text token s; of one t its cosine

BM25's parts are read from the index, so that they add up to the score in the list; a text that it does not hold is scored with its
statistics unchanged. A query that PostgreSQL reads as a phrase, or as words that must all occur, is ranked by distances: its lexemes have
no parts. A query token matches the text token nearest to it; only these matches make the score.

The chunk that a memory was found by is the one with the best score if the config counts the text that scored best (`assembly.text:
version`), else the one with the best rank in a list that takes part; a reranker reads the one with the best rank in any list, since its
scores serve every config. `seed_overlap` appends a ". " to what it reads, which the content may not have there. A model cuts a text after
its last token; the cut is given as the end of the last whole word before it.

Source: Robertson and Zaragoza 2009, as bm25s computes it; pg_text_search/ts_rank.py; ColBERT's MaxSim (Khattab & Zaharia 2020).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.models.late_interaction import TokenCosines
from cems_workbench.models.protocol import QueryEmbedder
from cems_workbench.pipeline import Evidence, Trace
from cems_workbench.pipeline.list_sources import LIST_SOURCES, list_label, ordinal
from cems_workbench.pipeline.scoring import given_chunks
from cems_workbench.pipeline.stages import RERANK
from cems_workbench.pipeline.stages.lists import LISTS, ListEntry
from cems_workbench.records import ENGLISH, Chunk, Memory
from cems_workbench.store.search.lexical_index import LexicalIndex
from cems_workbench.store.search.tokenizer import Language, chunks, normalised, terms_of, tokenize
from cems_workbench.store.text_rule import searched_text

if TYPE_CHECKING:
    from cems_workbench.store.search.postgres import TsRankIndex


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
    from pg_text_search.ts_rank import GAINS, lexemes, or_query, ts_rank

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
    from pg_text_search.ts_rank import lexemes

    asked = set(wanted)
    found = []
    for match in WORD.finditer(text):
        met = tuple(lexeme for lexeme in lexemes(match[0]) if lexeme in asked)
        if met:
            found.append(Match(match.start(), match.end(), met))
    return found


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


_BY_NAME = {source.name: source for source in LIST_SOURCES}


@dataclass(frozen=True, slots=True)
class FoundChunk:
    """The chunk, of how many, and which list it was found in; `others` are lists that found another one, by its `seq`."""

    chunk: Chunk
    count: int
    list: str
    others: tuple[tuple[str, int], ...] = ()

    @property
    def words(self) -> str:
        """ "2nd of 3 chunks"."""
        return numbered(self.chunk.seq, self.count)

    @property
    def meaning(self) -> str:
        """What the words mean."""
        others = "".join(f"; {list_label(name)} by the {ordinal(seq + 1)}" for name, seq in self.others)
        return f"The memory is searched in {self.count} chunks; {list_label(self.list)} found it by this one{others}"


def found_chunk(trace: Trace, memory_id: str) -> FoundChunk | None:
    """The chunk by which a candidate was found; None for one that was found as a whole, or is in no list that takes part."""
    row = trace.stage(LISTS).by_id.get(memory_id)
    chunks = {chunk.seq: chunk for chunk in trace.evidence.chunks.get(memory_id, ())}
    entries = (
        [entry for entry in row.lists if entry.kept and _finds(entry, trace)] if row is not None and chunks else []
    )
    if not entries:
        return None
    if trace.config.assembly.text == "version":
        best = max(entries, key=lambda entry: entry.normalized or 0.0)
    else:
        best = min(entries, key=lambda entry: entry.rank)
    chunk = None if best.chunk is None else chunks.get(best.chunk)
    if chunk is None:
        return None
    others = tuple(
        (entry.list, entry.chunk) for entry in entries if entry.chunk is not None and entry.chunk != best.chunk
    )
    return FoundChunk(chunk, len(chunks), best.list, others)


def chunks_read(trace: Trace) -> dict[str, int | None]:
    """By id, of the memories with chunks that the reranker scored, the `seq` of the chunk that it read; None for the whole memory."""
    chunks = trace.evidence.chunks
    if not chunks:
        return {}
    given = given_chunks(trace.evidence, trace.config)
    scored = [row.memory_id for row in trace.stage(RERANK).rows if row.outcome == "scored" and row.memory_id in chunks]
    return {memory_id: given[memory_id].seq if memory_id in given else None for memory_id in scored}


def _finds(entry: ListEntry, trace: Trace) -> bool:
    source = _BY_NAME[entry.list.partition(":")[0]]
    version = trace.config.assembly.text == "version" and trace.config.fusion.blend_with == "all"
    return source.relevance if version else source.per_variant


def numbered(seq: int, count: int) -> str:
    """ "2nd of 3 chunks"."""
    return f"{ordinal(seq + 1)} of {count} chunk{'s' if count != 1 else ''}"


def chunk_words(evidence: Evidence, memory_id: str, seq: int | None) -> str:
    """ "2nd of 3 chunks"; empty for a memory that was found as a whole."""
    return "" if seq is None else numbered(seq, max(len(evidence.chunks.get(memory_id, ())), seq + 1))


def chunk_span(content: str, chunk: Chunk) -> tuple[int, int] | None:
    """(start, end) of the chunk in the content, in characters; None if the content does not contain it verbatim."""
    start = chunk.start if chunk.start is not None else content.find(chunk.text)
    end = start + len(chunk.text)
    return (start, end) if start >= 0 and content[start:end] == chunk.text else None
