"""What retrieval finds for each question: where hard negatives come from."""

from __future__ import annotations

from collections.abc import Callable

import bm25s
import numpy as np
import Stemmer

from training.passages import Corpus

DEPTH = 60


def passages_found(corpus: Corpus, encode: Callable[[list[str]], np.ndarray] | None) -> np.ndarray:
    """Indexes of the best `DEPTH` passages per question, shape (questions, DEPTH): BM25 and embedder in turn, each once.

    BM25's alone without an embedder.
    """
    texts = [" ".join(passage.sentences) for passage in corpus.passages]
    asked = [question.text for question in corpus.questions]
    lexical = _lexical(texts, asked, DEPTH)
    if encode is None:
        return lexical
    passages, queries = encode([text[:900] for text in texts]), encode(asked)
    found = np.empty((len(asked), DEPTH), np.int32)
    for row, query in enumerate(queries):
        near = np.argsort(-(passages @ query), kind="stable")[:DEPTH]
        found[row] = list(dict.fromkeys(int(p) for pair in zip(near, lexical[row], strict=True) for p in pair))[:DEPTH]
    return found


def _lexical(texts: list[str], asked: list[str], depth: int) -> np.ndarray:
    stemmer = Stemmer.Stemmer("english")
    index = bm25s.BM25()
    index.index(bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False), show_progress=False)
    tokens = bm25s.tokenize(asked, stopwords="en", stemmer=stemmer, show_progress=False)
    return np.asarray(index.retrieve(tokens, k=depth, show_progress=False)[0])
