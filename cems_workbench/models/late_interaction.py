"""Late interaction: a reranker that needs no further model than the embedder.

    score = sum_t idf(t) * max_s cos(q_t, d_s) / sum_t idf(t)        over the query's wordpieces t, specials excluded
    idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5))                      over the N memories of the store

q_t and d_s are the embedder's token vectors. Scores lie in -1..1, in practice 0.2..0.9. Which s each t met is kept with the score.

Encoding a text of 60 wordpieces takes 5 to 10 ms, scoring it against a query 0.1 ms, and the same memories are candidates of many queries:
token vectors of texts are kept, in half precision, which changes a cosine by less than 1e-4.

Source: ColBERT's MaxSim (Khattab & Zaharia 2020) weighted by idf; docs/internals/specification.md, "rerank".
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.models.protocol import TRUNCATED, Float32, PairScore
from cems_workbench.progress import Progress, silent
from cems_workbench.records import JudgeScale

MAX_BYTES = 256_000_000
"""About 8,000 memories of 40 wordpieces, or 1,300 of the model's maximum length."""
OVERHEAD_BYTES = 400
"""Memory of a cached text besides its vectors: key and objects."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadText:
    """A text as the model reads it: wordpiece ids (S), their unit vectors (S, d) in half precision, and whether it was cut."""

    ids: NDArray[np.int32]
    halves: NDArray[np.float16]
    cut: bool

    @property
    def vectors(self) -> Float32:
        """Unit vectors, shape (S, d)."""
        return self.halves.astype(np.float32)

    def size(self, text: str) -> int:
        """The bytes that it takes when it is kept, with its text."""
        return self.ids.nbytes + self.halves.nbytes + OVERHEAD_BYTES + len(text)


class TokenMemory:
    """Encodes texts with an embedder, and caches the most recent ones; thread-safe."""

    def __init__(self, embedder: TokenEmbedder, limit: int = MAX_BYTES) -> None:
        self.embedder = embedder
        self.nbytes = 0
        self._limit = limit
        self._kept: OrderedDict[str, ReadText] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def read(self, texts: Sequence[str]) -> list[ReadText]:
        """The token vectors of each text, from the cache if it has them."""
        with self._lock:
            kept = {text: self._kept[text] for text in texts if text in self._kept}
        missing = [text for text in dict.fromkeys(texts) if text not in kept]
        if missing:
            # Outside the lock, since encoding takes long.
            found = zip(self.embedder.token_vectors(missing), self.embedder.truncated(missing), strict=True)
            for text, ((ids, vectors), cut) in zip(missing, found, strict=True):
                # Fresh vectors are rounded too, so that a score does not depend on the cache.
                kept[text] = ReadText(np.array(ids, np.int32), vectors.astype(np.float16), cut)
        with self._lock:
            for text in texts:
                self._keep(text, kept[text])
        return [kept[text] for text in texts]

    def _keep(self, text: str, read: ReadText) -> None:
        before = self._kept.pop(text, None)
        self._kept[text] = read
        self.nbytes += read.size(text) - (before.size(text) if before else 0)
        while self.nbytes > self._limit:
            oldest, kept = self._kept.popitem(last=False)
            self.nbytes -= kept.size(oldest)


VERSION = "late-interaction/4"
BATCH_SIZE = 32

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

    scale = JudgeScale(0.55, (0.8, 0.55, 0.3))
    """Fitted by `python -m training.calibrate --judge late_interaction`."""

    def __init__(
        self, embedder: TokenEmbedder, frequencies: WordpieceFrequencies, memory: TokenMemory | None = None
    ) -> None:
        """`memory` keeps what the embedder has read; without one it begins with nothing read."""
        self._embedder = embedder
        self._frequencies = frequencies
        self._memory = TokenMemory(embedder) if memory is None else memory

    @property
    def batch(self) -> int:
        """Texts at once: as many as the device of the embedder takes, if it has one."""
        return 16 if self._embedder.batch <= BATCH_SIZE else self._embedder.batch

    @property
    def label(self) -> str:
        return f"late interaction on {self._embedder.model_id}"

    def cache_model(self, query: str) -> str:
        """Model, version and the query's idf values, so that a store that changed them is scored again."""
        idf = [self._frequencies.idf(token) for token in self._embedder.wordpieces([query])[0]]
        digest = hashlib.sha256(repr(idf).encode()).hexdigest()[:16]
        return f"{VERSION}:{self._embedder.model_id}:{digest}"

    def score(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        """One score per text; "no words" where query or text has no wordpiece."""
        ids, vectors = self._embedder.token_vectors([query])[0]
        weights, asked = self._weights(ids), self._embedder.tokens(ids)
        scores: list[PairScore] = []
        size = max(BATCH_SIZE, self._embedder.batch)
        for start in range(0, len(texts), size):
            for read in self._memory.read(texts[start : start + size]):
                cosines = vectors @ read.vectors.T
                raw = max_sim(cosines, weights)
                if raw is None:
                    scores.append(PairScore(None, NO_WORDS))
                    continue
                met = self._alignment(asked, weights, read.ids, cosines)
                scores.append(PairScore(raw, detail={"alignment": met, **(TRUNCATED if read.cut else {})}))
        return scores

    def cosines(self, query: str, text: str) -> TokenCosines:
        """How near each token of the query is to each token of the text, as far as the model reads it."""
        ids, vectors = self._embedder.token_vectors([query])[0]
        (read,) = self._memory.read([text])
        asked, there = self._embedder.tokens(ids), self._embedder.tokens(read.ids.tolist())
        return TokenCosines(
            tuple(asked), self._weights(ids), tuple(there), np.asarray(vectors @ read.vectors.T, np.float64)
        )

    def _weights(self, ids: Sequence[int]) -> NDArray[np.float64]:
        return np.array([self._frequencies.idf(token) for token in ids], np.float64)

    def _alignment(
        self, asked: Sequence[str], weights: np.ndarray, numbers: NDArray[np.int32], cosines: np.ndarray
    ) -> list[dict[str, Any]]:
        """Per query token: itself, its idf, the document token it met, and their cosine."""
        best = cosines.argmax(axis=1)
        there = self._embedder.tokens(numbers[best].tolist())
        return [
            {
                "query": token,
                "idf": round(float(weights[i]), 4),
                "text": there[i],
                "cosine": round(float(cosines[i, best[i]]), 4),
            }
            for i, token in enumerate(asked)
        ]


def max_sim(cosines: np.ndarray, weights: np.ndarray) -> float | None:
    """The weighted mean of each query token's best cosine. Shapes (T, S), (T,); None when T or S is 0."""
    if not cosines.size or weights.sum() <= 0:
        return None
    return float((weights * cosines.max(axis=1).astype(np.float64)).sum() / weights.sum())
