"""Cache of token vectors of texts, in half precision and bounded in size.

Encoding a text of 60 wordpieces takes 5 to 10 ms, scoring it against a query 0.1 ms, and the same memories are candidates of many queries.
Half precision changes a cosine by less than 1e-4.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.models.protocol import Float32

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

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.ids.nbytes + self.halves.nbytes + OVERHEAD_BYTES


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
        self.nbytes += _size(text, read) - (_size(text, before) if before else 0)
        while self.nbytes > self._limit:
            self.nbytes -= _size(*self._kept.popitem(last=False))


def _size(text: str, read: ReadText) -> int:
    return read.nbytes + len(text)
