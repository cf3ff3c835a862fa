"""BM25 over segments: Lucene's variant (by default k1 1.5, b 0.75), bit-identical to bm25s.

    score  = sum over the query's terms t, as often as the query has them, of idf(t) * tf / (tf + k1 * (1 - b + b * length / mean))
    idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5)),  t occurs tf times in the memory, and in df of N

(Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009.) N, df and the mean length are those of the live texts of all
segments, so that scores do not depend on the history of changes. bm25s stores every score (Lù, "BM25S", 2024), and all of them change
with one memory; here a search computes them: of all texts in single precision, and of the best candidates again as bm25s does. Ties by id.

idf counts the whole store, regardless of filters. Each chunk of a memory counts as a separate text in N, df and lengths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from math import log
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cems_workbench.records import ENGLISH
from cems_workbench.store.filter import ANY, Filter
from cems_workbench.store.search import entries
from cems_workbench.store.search.columns import Column
from cems_workbench.store.search.directory import Segment
from cems_workbench.store.search.lexical_segment import LexicalSegment, SegmentDraft
from cems_workbench.store.search.segments import LiveSegment, live_segment
from cems_workbench.store.search.tokenizer import Language, tokenize

K1, B = 1.5, 0.75
MAX_WEIGHTED = 4
"""Most indexes with another k1 and b that one keeps: each has a number per text."""
BLOCK_TEXTS = 64
"""Texts per block in the search for the best ones."""
SCORE_SLACK = 1e-5
"""Assumed relative error of single precision and of the order of summation; far more than the real one."""


class LexicalIndex:
    """The lexical index of one content version; it stays usable after a newer one replaced it."""

    def __init__(
        self,
        segments: Sequence[LiveSegment[LexicalSegment]] = (),
        hidden: Set[str] = frozenset(),
        language: Language = ENGLISH,
        k1: float = K1,
        b: float = B,
    ) -> None:
        """Index over these segments, built in this language; `hidden` ids are never returned. `k1` and `b` are of the
        scores alone: the segments hold counts."""
        self.language = language
        self.k1, self.b = k1, b
        self.hidden = hidden
        self._segments = segments
        self._weighted: dict[tuple[float, float], LexicalIndex] = {}
        self._parts = [_LiveTexts(part, k1, b) for part in segments]
        self.document_count = sum(part.size for part in self._parts)
        """Number of indexed texts: chunks, and memories without chunks."""
        length = sum(part.length for part in self._parts)
        self.mean_length = length / self.document_count if self.document_count else 0.0
        """Mean number of terms of an indexed text."""
        self._frequencies: dict[str, int] = {}

    @classmethod
    def open(
        cls, directory: Path, segments: Sequence[Segment], hidden: Set[str] = frozenset(), language: Language = ENGLISH
    ) -> LexicalIndex:
        """Open the segments of a manifest. Raises StoreError if files are missing or damaged."""
        return cls([live_segment(LexicalSegment, directory, each) for each in segments], hidden, language)

    def weighted(self, k1: float, b: float) -> LexicalIndex:
        """The same segments, scored with this k1 and b; the last few are kept."""
        if (k1, b) == (self.k1, self.b):
            return self
        found = self._weighted.get((k1, b))
        if found is None:
            found = LexicalIndex(self._segments, self.hidden, self.language, k1, b)
            self._weighted = dict([*self._weighted.items(), ((k1, b), found)][-MAX_WEIGHTED:])
        return found

    def replaced(self, memory_id: str, document: entries.Document | None) -> LexicalIndex:
        """This index as it would be with `document` instead of the memory of that id, or without it if None; nothing is written."""
        segments = [*self.without([memory_id])._segments]
        if document is not None:
            draft = SegmentDraft(self.language)
            draft.add(document)
            segments.append(LiveSegment(draft.in_memory(), np.zeros(0, np.int64)))
        return LexicalIndex(segments, self.hidden - {memory_id}, self.language, self.k1, self.b)

    def without(self, ids: Collection[str]) -> LexicalIndex:
        """This index as it would be without these memories; nothing is written."""
        segments = [
            LiveSegment(part.segment, np.union1d(part.deleted, part.segment.ids.find_all(list(ids))))
            for part in self._segments
        ]
        return LexicalIndex(segments, self.hidden, self.language, self.k1, self.b)

    def keeps(self, memory_id: str) -> bool:
        """Whether its files have the words of a memory, deleted or not: a deleted one goes when segments are merged."""
        return any(part.segment.ids.find(memory_id) >= 0 for part in self._segments)

    @cached_property
    def vocabulary(self) -> Mapping[str, int]:
        """Search terms (stems and identifiers) → the number of indexed texts that contain them."""
        found: Counter[str] = Counter()
        for part in self._parts:
            found.update({term: part.frequency(term) for term in part.segment.terms})
        return {term: count for term, count in found.items() if count}

    @cached_property
    def words(self) -> Mapping[str, int]:
        """Words as written (lower-cased, unstemmed) → the number of memories that contain them; for typo correction."""
        found: Counter[str] = Counter()
        for part in self._parts:
            found.update(part.words)
        return {word: count for word, count in found.items() if count}

    def words_of(self, memory_ids: Sequence[str]) -> Mapping[str, int]:
        """The words of these memories, if indexed, with their document frequency among them."""
        found: Counter[str] = Counter()
        for part in self._parts:
            found.update(part.words_of(memory_ids))
        return found

    def document_frequency(self, term: str) -> int:
        """Number of indexed texts that contain a search term (as `tokenize` returns it)."""
        found = self._frequencies.get(term)
        if found is None:
            found = self._frequencies[term] = sum(part.frequency(term) for part in self._parts)
        return found

    def search(self, query: str, k: int, where: Filter = ANY) -> entries.Hits:
        """(memory id, BM25 score > 0) of the k best memories for the terms of `query`, each by its best chunk; best first, ties by id."""
        return entries.best_per_memory(self.search_chunks(query, k, where))

    def search_chunks(self, query: str, k: int, where: Filter = ANY) -> entries.ChunkHits:
        """(memory id, BM25 score > 0, chunk) of the best chunks, as many as cover k memories. Best first, ties by id
        and chunk."""
        terms = self._terms(query)
        if not terms or k <= 0:
            return []
        return entries.search_visible(lambda depth: self._best(terms, depth, where), k, self.hidden)

    def rank_of(self, query: str, memory_id: str, where: Filter = ANY) -> TextRank | None:
        """The rank of a memory among all hits of `search_chunks`, without building the list; None if it is not a hit."""
        terms = self._terms(query)
        own = None if memory_id in self.hidden else self._best_text(terms, memory_id, where)
        if own is None:
            return None
        hidden = list(self.hidden)
        memories = texts = 0
        for part in self._parts:
            ahead = part.ahead(terms, where, self.mean_length, own, memory_id, hidden)
            memories, texts = memories + ahead[0], texts + ahead[1]
        return TextRank(memories + 1, float(own.score), own.part.segment.chunk_of(own.text), texts + 1)

    def _best_text(self, terms: Terms, memory_id: str, where: Filter) -> _BestText | None:
        for part in self._parts:
            memory = part.segment.ids.find(memory_id)
            if memory >= 0 and not part.live.is_deleted(memory):
                texts = np.array(part.segment.rows_of(memory), np.int64)
                scores = part.scores(terms, texts, self.mean_length)
                mask = part.segment.masks.mask(where)
                if mask is not None:
                    scores *= mask[texts]
                best = int(np.argmax(scores))
                return _BestText(part, int(texts[best]), scores[best]) if scores[best] > 0 else None
        return None

    def contributions(self, memory_id: str, terms: Sequence[str], chunk: int | None = None) -> dict[str, float]:
        """The contribution of each term to the memory's BM25 score; missing terms are absent. For a memory with chunks:
        of `chunk`, or if that is None of the chunk with the highest sum."""
        found = self.chunk_contributions(memory_id, terms)
        if chunk is not None and set(found) != {None}:
            return found.get(chunk, {})
        return max(found.values(), key=lambda parts: sum(parts.values()), default={})

    def chunk_contributions(self, memory_id: str, terms: Sequence[str]) -> dict[int | None, dict[str, float]]:
        """The contribution of each term to each chunk's score, by chunk number; under None for a memory indexed whole."""
        for part in self._parts:
            memory = part.segment.ids.find(memory_id)
            if memory < 0 or part.live.is_deleted(memory):
                continue
            texts = np.array(part.segment.rows_of(memory), np.int64)
            found: dict[int | None, dict[str, float]] = {part.segment.chunk_of(int(text)): {} for text in texts}
            for term in terms:
                gains = part.exact(term, self._idf(term), texts, self.mean_length)
                for own, gain in zip(found.values(), gains.tolist(), strict=True):
                    if gain:
                        own[term] = gain
            return found
        return {}

    def _terms(self, query: str) -> Terms:
        # Float addition depends on the order; sorted terms make "a b" and "b a" the same query to the last bit.
        asked = sorted(Counter(tokenize(query, self.language)).items())
        return {term: (count, idf) for term, count in asked if (idf := self._idf(term))}

    def _idf(self, term: str) -> np.float32 | None:
        df = self.document_frequency(term)
        return np.float32(log(1 + (self.document_count - df + 0.5) / (df + 0.5))) if df else None

    def _best(self, terms: Terms, k: int, where: Filter) -> entries.ChunkHits:
        best = [part.best(terms, k, where, self.mean_length) for part in self._parts]
        if len(best) == 1:
            return self._parts[0].hits(*best[0], k)
        scores = np.concatenate([found for _, found in best]) if best else np.zeros(0, np.float32)
        # Where each text is a memory, only those with at least the k-th score are named.
        whole = len(scores) > k and all(part.segment.starts is None for part in self._parts)
        least = np.partition(scores, len(scores) - k)[len(scores) - k] if whole else 0.0
        hits: entries.ChunkHits = []
        for part, (texts, found) in zip(self._parts, best, strict=True):
            hits += part.hits(texts[found >= least], found[found >= least], k)
        hits.sort(key=lambda hit: (-hit[1], *entries.sort_key((hit[0], hit[2]))))
        return entries.truncate_to_memories(hits, k)


Terms = Mapping[str, tuple[int, np.float32]]
"""The terms of a query, sorted, with their count in it and their idf."""


@dataclass(frozen=True, slots=True)
class TextRank:
    """A memory's rank among memories, its score, its best chunk, and that chunk's rank among all chunks."""

    rank: int
    score: float
    chunk: int | None
    chunk_rank: int


@dataclass(frozen=True, slots=True)
class _BestText:
    part: _LiveTexts
    text: int
    score: np.float32


class _LiveTexts:
    def __init__(self, part: LiveSegment[LexicalSegment], k1: float, b: float) -> None:
        self.live, self.segment = part, part.segment
        self._k1, self._b = k1, b
        # Of the type of the postings: numpy would copy them to compare them with another.
        self._deleted_texts = self.segment.all_rows(part.deleted).astype(np.int32)
        self.size = part.size
        lengths = self.segment.lengths
        self.length = int(lengths.sum(dtype=np.int64)) - int(lengths[self._deleted_texts].sum(dtype=np.int64))
        self._norms: tuple[float, NDArray[np.float32]] | None = None

    def frequency(self, term: str) -> int:
        texts = self.segment.documents[self.segment.posting(term)]
        if not len(self._deleted_texts) or not len(texts):
            return len(texts)
        return len(texts) - int(_locate(texts, self._deleted_texts)[1].sum())

    @cached_property
    def words(self) -> dict[str, int]:
        """The words with their number of live memories."""
        counts = self.segment.count_words(self.live.memories)
        return {word: count for word, count in zip(self.segment.words, counts.tolist(), strict=True) if count}

    def words_of(self, memory_ids: Sequence[str]) -> Counter[str]:
        """The words of those of these memories that are in the segment, with their document frequency."""
        places = np.setdiff1d(self.segment.ids.find_all(memory_ids), self.live.deleted)
        numbers, counts = np.unique(self.segment.words_of(places), return_counts=True)
        words = self.segment.words
        return Counter({words[number]: count for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)})

    def best(self, terms: Terms, k: int, where: Filter, mean: float) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The first texts and their scores, at least as many as cover k memories of this segment."""
        about = self._approximate_scores(terms, where, mean)
        if about is None:
            return np.zeros(0, np.int64), np.zeros(0, np.float32)
        texts = self._candidates(about, k)
        scores = self.scores(terms, texts, mean)
        order = np.argsort(-scores, kind="stable")
        if self.segment.starts is None:
            order = order[:k]
        return texts[order], scores[order]

    def hits(self, texts: NDArray[np.int64], scores: NDArray[np.float32], k: int) -> entries.ChunkHits:
        """The first of these texts of the segment, as many as cover k memories."""
        found = zip(self.segment.entries_at(texts), scores.tolist(), strict=True)
        hits = [(memory_id, score, chunk) for (memory_id, chunk), score in found]
        return hits if self.segment.starts is None else entries.truncate_to_memories(hits, k)

    def ahead(
        self, terms: Terms, where: Filter, mean: float, own: _BestText, memory_id: str, hidden: Sequence[str]
    ) -> tuple[int, int]:
        """How many memories, and how many texts, rank before a text of `memory_id`."""
        about = self._approximate_scores(terms, where, mean)
        if about is None:
            return 0, 0
        about[self.segment.all_rows(self.segment.ids.find_all(hidden))] = 0.0
        # Only texts near the own score need the exact score.
        sure = about > own.score * (1 + SCORE_SLACK)
        close = np.flatnonzero(~sure & (about >= own.score * (1 - SCORE_SLACK)))
        scores = self.scores(terms, close, mean)
        first = self.segment.ids.place(memory_id)
        before = (
            own.text
            if own.part is self
            else (first if self.segment.starts is None else int(self.segment.starts[first]))
        )
        sure[close] = (scores > own.score) | ((scores == own.score) & (close < before))
        texts = np.flatnonzero(sure)
        if self.segment.starts is None:
            return len(texts), len(texts)
        return len(np.unique(np.searchsorted(self.segment.starts, texts, side="right"))), len(texts)

    def scores(self, terms: Terms, texts: NDArray[np.int64], mean: float) -> NDArray[np.float32]:
        """The scores of these texts, bit-identical to bm25s."""
        scores = np.zeros(len(texts), np.float32)
        for term, (count, idf) in terms.items():
            gains = self.exact(term, idf, texts, mean)
            # Added one by one, as bm25s does: `count * gains` would round differently.
            for _ in range(count):
                scores += gains
        return scores

    def exact(self, term: str, idf: np.float32 | None, texts: NDArray[np.int64], mean: float) -> NDArray[np.float32]:
        """The contribution of a term to each text, 0 if absent: computed in double precision and rounded, as bm25s does."""
        gains = np.zeros(len(texts), np.float32)
        posting = self.segment.posting(term)
        if idf is None or posting.start == posting.stop:
            return gains
        places, there = _locate(self.segment.documents[posting], texts)
        tf = self.segment.counts[posting][places[there]].astype(np.float64)
        room = self._k1 * ((1 - self._b) + self._b * self.segment.lengths[texts[there]].astype(np.float64) / mean)
        # Double precision, rounded on assignment, as bm25s does.
        gains[there] = idf * (tf / (room + tf))
        return gains

    def _approximate_scores(self, terms: Terms, where: Filter, mean: float) -> NDArray[np.float32] | None:
        """The approximate score of every text, 0 for those that do not pass; None if no text has any of the terms."""
        postings = {term: posting for term in terms if (posting := self.segment.posting(term)).start < posting.stop}
        if not postings:
            return None
        scores = np.zeros(self.segment.size, np.float32)
        rooms = self._length_norms(mean)
        for term, posting in postings.items():
            count, idf = terms[term]
            texts = self.segment.documents[posting]
            tf = self.segment.counts[posting].astype(np.float32)
            gains = rooms.take(texts)
            gains += tf
            # In place: this runs over every posting of a term.
            np.divide(tf, gains, out=gains)
            gains *= np.float32(count * idf)
            np.add.at(scores, texts, gains)
        mask = self.segment.masks.mask(where)
        if mask is not None:
            scores *= mask
        scores[self._deleted_texts] = 0.0
        return scores

    def _length_norms(self, mean: float) -> NDArray[np.float32]:
        """k1 * (1 - b + b * length / mean) of each text."""
        if self._norms is None or self._norms[0] != mean:
            rooms = self._k1 * ((1 - self._b) + self._b / mean * self.segment.lengths)
            self._norms = mean, rooms.astype(np.float32)
        return self._norms[1]

    def _candidates(self, about: NDArray[np.float32], k: int) -> NDArray[np.int64]:
        """The texts, ascending, that may be among the hits that cover the first k memories; no other text can be."""
        blocks = len(about) // BLOCK_TEXTS
        # Several of the best texts may be of one memory.
        depth = k if self.segment.starts is None else 2 * k
        while blocks > 4 * depth:
            # `depth` blocks have a text that scores at least this much, so at least `depth` texts do.
            best = np.maximum(about[: blocks * BLOCK_TEXTS].reshape(blocks, BLOCK_TEXTS).max(axis=1), 0)
            least = np.partition(best, blocks - depth)[blocks - depth]
            if least <= 0:
                break
            texts = np.flatnonzero(about >= least * (1 - SCORE_SLACK))
            if self.segment.starts is None:
                return self._top(texts, about, k)
            sure = texts[about[texts] >= least]
            memories = np.unique(np.searchsorted(self.segment.starts, sure, side="right"))
            if len(memories) >= k:
                return texts
            depth *= 4
        texts = np.flatnonzero(about > 0)
        return self._top(texts, about, k) if self.segment.starts is None else texts

    def _top(self, texts: NDArray[np.int64], about: NDArray[np.float32], k: int) -> NDArray[np.int64]:
        """The texts, one per memory, that may be among the first k."""
        if len(texts) <= k:
            return texts
        scores = about[texts]
        # Texts within the error may rank higher once they are scored exactly.
        least = np.partition(scores, len(scores) - k)[len(scores) - k] * (1 - SCORE_SLACK)
        kept: NDArray[np.int64] = texts[scores >= least]
        return kept


def _locate(ascending: Column, wanted: Column) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """For each of `wanted` its insertion point in ascending numbers, and whether it is present."""
    places = np.searchsorted(ascending, wanted)
    # A number past the end has an insertion point that is no index.
    there = ascending[np.minimum(places, len(ascending) - 1)] == wanted
    return places, there
