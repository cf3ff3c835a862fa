"""Sparse BM25 vectors, searched exactly: each text is a vector with a weight per word, the score is the dot product with the query's.

    text -> lemmas, if asked -> words without stop words -> stems, if asked -> weights -> score

The formulas are in `sparse_index.py`. A text of which no lemma is left is searched as it is; a query of which none
is left finds nothing. Equal scores are in order of insertion; Qdrant leaves them in an order that differs from store to store.

Source: ACE 0.8.0; mem0 2.2.1 on Qdrant with fastembed 0.9.1; docs/internals/specification.md, "lists".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cems_workbench.config.sections.lexical_engines import SparseList
from cems_workbench.errors import ModelError
from cems_workbench.models.lemmas import Lemmatizer, lemmatizer
from cems_workbench.pipeline.lexical_engines import Document, EngineAnswer, EngineRequest, LexicalEngine, documents
from cems_workbench.platform.sparse_terms import SparseAnalysis
from cems_workbench.store.search.entries import ChunkHits
from cems_workbench.store.search.lexical.tokenizer import stop_list
from workbench_engines.sparse_index import SparseIndex, SparseWeighting

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
