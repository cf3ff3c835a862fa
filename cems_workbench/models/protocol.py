"""What the pipeline and the store ask of a model; each model file implements one of these and nothing else knows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
        """Stable identity of model and revision; indexes built with another one are stale.

        Raises ModelError while a server that must say the revision does not.
        """
        ...

    @property
    def dimension(self) -> int:
        """Length of one vector."""
        ...

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        """Return an array of shape (len(texts), dimension), float32, every row of length 1."""
        ...


class QueryEmbedder(Embedder, Protocol):
    """An embedder as searching needs it: with a way to embed one query, and words for the page."""

    @property
    def line(self) -> str:
        """What embeds, and where it is from."""
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
"""Why a pair has no score; `PairScore.error` begins with one of these and a colon."""

TRUNCATED: Mapping[str, Any] = {"truncated": True}


@dataclass(frozen=True, slots=True)
class PairScore:
    """What a reranker said of one (query, text) pair: a finite raw score, or `error` ("cause: what happened").

    `detail` says how the score came about where a backend has several ways ({"outcome": "only yes seen"}) and how long the
    call took ({"seconds": 0.12}); {"truncated": True} when the model did not read the whole text.
    """

    raw: float | None
    error: str | None = None
    detail: Mapping[str, Any] | None = None


MadeBy = tuple[Callable[..., "PairScorer"], tuple[Any, ...]]
"""A scorer's factory and its arguments, both picklable, so that another machine can build the same scorer from its own weights."""
Elsewhere = Callable[[MadeBy, str, str, Sequence[str]], "list[PairScore]"]
"""Has texts scored on another machine: (what makes the scorer, its `cache_model`, query, texts) -> one score per text, in order."""


class PairScorer(Protocol):
    """Scores texts against a query, a batch at a time; higher is more relevant, on the backend's own scale."""

    batch: int
    """Pairs that are asked between two reports of progress."""

    @property
    def scale(self) -> JudgeScale | None:
        """How its raw scores are read when it judges; None where nobody has fitted that."""
        ...

    @property
    def label(self) -> str:
        """What scores, in words, for the page: "late interaction on all-MiniLM-L6-v2"."""
        ...

    def cache_model(self, query: str) -> str:
        """Model with revision, prompt version and everything else that a score depends on, except query and exact text."""
        ...

    def score(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        """One score per text, in order. A pair that fails is flagged in its place and never raises.

        Raises ModelError when the model cannot be used at all: weights that are not there, a setting that is missing.
        """
        ...
