"""Protocols of models for the pipeline and the store; each backend implements one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cems_workbench.progress import Progress, silent
from cems_workbench.records import JudgeScale

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


class Embedder(Protocol):
    """Maps texts to unit vectors whose dot product is the cosine similarity."""

    @property
    def model_id(self) -> str:
        """Stable identity of model and revision; indexes built with another one are stale. Raises ModelError while a
        server does not report a required revision."""
        ...

    @property
    def dimension(self) -> int:
        """Length of one vector."""
        ...

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        """Return an array of shape (len(texts), dimension), float32, every row of length 1."""
        ...


class QueryEmbedder(Embedder, Protocol):
    """An embedder for search: it can also embed one query, and has a description for the page."""

    @property
    def line(self) -> str:
        """Description of the model, and the location of its weights."""
        ...

    def encode_query(self, text: str) -> Float32:
        """The unit vector of one query, shape (dimension,)."""
        ...


CAUSES = (
    "refused",
    "timeout",
    "server error",
    "rate limited",
    "bad reply",
    "not a number",
    "not finite",
    "empty reply",
    "no words",
)
"""Causes of a failed score; `PairScore.error` begins with one of these and a colon."""

TRUNCATED: Mapping[str, Any] = {"truncated": True}
INEXACT: Mapping[str, Any] = {"inexact": True}
"""In the detail of a score that another processor would give otherwise."""


@dataclass(frozen=True, slots=True)
class PairScore:
    """A reranker's result for one (query, text) pair: a finite raw score, or `error` ("cause: what happened").

    `detail` says how the score was read if a backend has several ways ({"outcome": "only yes seen"}) and how long the
    call took ({"seconds": 0.12}); {"truncated": True} if the model did not read the whole text; {"inexact": True} from a
    processor that computes other numbers than those recorded with the model.
    """

    raw: float | None
    error: str | None = None
    detail: Mapping[str, Any] | None = None


class PairScorer(Protocol):
    """Scores texts against a query, a batch at a time; higher is more relevant, on the backend's own scale."""

    @property
    def batch(self) -> int:
        """Pairs per progress report."""
        ...

    @property
    def scale(self) -> JudgeScale | None:
        """The scale of its raw scores as judgments; None without a calibration."""
        ...

    @property
    def label(self) -> str:
        """Description for the page: "late interaction on all-MiniLM-L6-v2"."""
        ...

    def cache_model(self, query: str) -> str:
        """Model with revision, prompt version and everything else that a score depends on, except query and exact text."""
        ...

    def score(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        """One score per text, in order. A pair that fails is flagged in its place and never raises. Raises ModelError
        if the model is unusable: missing weights, or a missing setting."""
        ...
