"""Late interaction: a reranker that needs no further model than the embedder.

    score = sum_t idf(t) * max_s cos(q_t, d_s) / sum_t idf(t)        over the query's wordpieces t, specials excluded
    idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5))                      over the N memories of the store

q_t and d_s are the embedder's token vectors. Scores lie in -1..1, in practice 0.2..0.9. Which s each t met is kept with the score.

Source: ColBERT's MaxSim (Khattab & Zaharia 2020) weighted by idf; docs/specification.md, "rerank".
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.models.protocol import TRUNCATED, Float32, PairScore
from cems_workbench.progress import Progress, silent
from cems_workbench.records import JudgeScale

VERSION = "late-interaction/3"
BATCH = 32
REMEMBERED = 512
"""Texts whose token vectors are kept: some 60 MB when each is as long as the model reads."""

TokenVectors = tuple[list[int], Float32]

NO_WORDS = "no words: query or text has none the model knows"


@dataclass(frozen=True, eq=False)
class WordpieceFrequencies:
    """In how many of N memories each wordpiece stands."""

    documents: int
    counts: Mapping[int, int]

    @classmethod
    def of(cls, embedder: TokenEmbedder, texts: Iterable[str], progress: Progress = silent) -> WordpieceFrequencies:
        """Count over the store's texts, in batches."""
        rows = list(texts)
        counts: dict[int, int] = {}
        for start in range(0, len(rows), 2000):
            for ids in embedder.wordpieces(rows[start : start + 2000]):
                for token in set(ids):
                    counts[token] = counts.get(token, 0) + 1
            progress("counting wordpieces", min(start + 2000, len(rows)), len(rows))
        return cls(len(rows), counts)

    def idf(self, token: int) -> float:
        """ln(1 + (N - df + 0.5) / (df + 0.5))."""
        df = self.counts.get(token, 0)
        return math.log(1 + (self.documents - df + 0.5) / (df + 0.5))


@dataclass(frozen=True, eq=False)
class TokenCosines:
    """Query tokens (T) with their idf (T), text tokens (S) as the model writes them, and their cosines (T, S)."""

    query: tuple[str, ...]
    idf: np.ndarray
    text: tuple[str, ...]
    cosine: np.ndarray


class LateInteraction:
    """A `PairScorer` that needs no further model than the embedder; raw scores lie in -1..1."""

    batch = 16
    scale = JudgeScale(0.55, (0.8, 0.55, 0.3))
    """Fitted by `python -m training.calibrate --judge late_interaction`."""

    def __init__(self, embedder: TokenEmbedder, frequencies: WordpieceFrequencies) -> None:
        self._embedder = embedder
        self._frequencies = frequencies
        self._vectors: OrderedDict[str, TokenVectors] = OrderedDict()

    @property
    def label(self) -> str:
        """What scores, in words."""
        return f"late interaction on {self._embedder.model_id}"

    def cache_model(self, query: str) -> str:
        """Model, version and the query's idf values, so that a store that changed them is scored again."""
        idf = [self._frequencies.idf(token) for token in self._embedder.wordpieces([query])[0]]
        digest = hashlib.sha256(repr(idf).encode()).hexdigest()[:16]
        return f"{VERSION}:{self._embedder.model_id}:{digest}"

    def score(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        """One score per text; "no words" where query or text has no wordpiece."""
        ids, vectors = self._embedder.token_vectors([query])[0]
        weights = np.array([self._frequencies.idf(token) for token in ids])
        scores: list[PairScore] = []
        for start in range(0, len(texts), BATCH):
            part = texts[start : start + BATCH]
            for (numbers, rows), cut in zip(self._read(part), self._embedder.truncated(part), strict=True):
                raw = max_sim(vectors, weights, rows)
                if raw is None:
                    scores.append(PairScore(None, NO_WORDS))
                    continue
                met = self._alignment(ids, vectors, weights, numbers, rows)
                scores.append(PairScore(raw, detail={"alignment": met, **(TRUNCATED if cut else {})}))
        return scores

    def cosines(self, query: str, text: str) -> TokenCosines:
        """How near each token of the query is to each token of the text, as far as the model reads it."""
        ids, vectors = self._embedder.token_vectors([query])[0]
        numbers, rows = self._read([text])[0]
        idf = np.array([self._frequencies.idf(token) for token in ids])
        asked, there = self._embedder.tokens(ids), self._embedder.tokens(numbers)
        return TokenCosines(tuple(asked), idf, tuple(there), np.asarray(vectors @ rows.T, np.float64))

    def _read(self, texts: Sequence[str]) -> list[TokenVectors]:
        """The token vectors of each text; those of the last `REMEMBERED` texts are kept for the next query."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        fresh = dict(zip(missing, self._embedder.token_vectors(missing), strict=True)) if missing else {}
        found = [fresh[text] if text in fresh else self._vectors[text] for text in texts]
        for text, read in zip(texts, found, strict=True):
            self._vectors[text] = read
            self._vectors.move_to_end(text)
        while len(self._vectors) > REMEMBERED:
            self._vectors.popitem(last=False)
        return found

    def _alignment(
        self, ids: Sequence[int], vectors: np.ndarray, weights: np.ndarray, numbers: Sequence[int], rows: np.ndarray
    ) -> list[dict[str, Any]]:
        """Per query token: itself, its idf, the document token it met, and their cosine."""
        cosines = vectors @ rows.T
        best = cosines.argmax(axis=1)
        asked, there = self._embedder.tokens(ids), self._embedder.tokens([numbers[place] for place in best])
        return [
            {
                "query": token,
                "idf": round(float(weights[i]), 4),
                "text": there[i],
                "cosine": round(float(cosines[i, best[i]]), 4),
            }
            for i, token in enumerate(asked)
        ]


def max_sim(query: np.ndarray, weights: np.ndarray, document: np.ndarray) -> float | None:
    """The weighted mean of each query token's best cosine. Shapes (T, d), (T,), (S, d); None when T or S is 0."""
    if not len(query) or not len(document) or weights.sum() <= 0:
        return None
    best = (query.astype(np.float64) @ document.astype(np.float64).T).max(axis=1)
    return float((weights * best).sum() / weights.sum())
