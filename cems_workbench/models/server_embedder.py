"""Base of embedders on a server: bounded batches, equal texts sent once, vectors checked and scaled to length 1."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cems_workbench.errors import ModelError
from cems_workbench.models.embedder import CachedQueries
from cems_workbench.models.http import ModelServer
from cems_workbench.models.protocol import Float32, Float64
from cems_workbench.progress import Progress, silent

BATCH_SIZE = 32


@dataclass(frozen=True, slots=True)
class Wording:
    """Prefixes that a model was trained with, for texts and for queries, and its name of the query prompt.

    E5 reads "passage: " and "query: ", nomic-embed-text "search_document: " and "search_query: "; a server may do that itself, by the
    model's name.
    """

    text_prefix: str = ""
    query_prefix: str = ""
    query_model: str = ""

    @property
    def label(self) -> str:
        """Part of the embedder's id, because the prefixes change the vectors."""
        parts = [f"texts after {self.text_prefix!r}"] if self.text_prefix else []
        parts += [f"queries after {self.query_prefix!r}"] if self.query_prefix else []
        parts += [f"queries by {self.query_model}"] if self.query_model else []
        return f" ({', '.join(parts)})" if parts else ""


PLAIN = Wording()


class ServerEmbedder(CachedQueries):
    """`QueryEmbedder` over a server; subclasses implement the request."""

    def __init__(
        self, server: ModelServer, model: str, dimension: int | None, same_as: str, wording: Wording = PLAIN
    ) -> None:
        """`dimension` None: that of the first vector; `same_as`: the id of the vectors in a store that this model has made too."""
        super().__init__()
        self._server, self._model, self._expected, self._same_as = server, model, dimension, same_as
        self._wording = wording

    @property
    def model_id(self) -> str:
        """The declared id, or its own. Raises ModelError if the server does not report a required revision."""
        return self._same_as or self._own_id + self._wording.label

    @property
    def line(self) -> str:
        """For the page."""
        stated = f", stated to be {self._same_as}" if self._same_as else ""
        return f"{self._model}{self._wording.label} {self._place}{stated}"

    @property
    @abstractmethod
    def _own_id(self) -> str:
        """Kind of server and model, and its revision, if any."""

    @property
    @abstractmethod
    def _place(self) -> str:
        """Where it runs: "on Ollama at localhost:11434"."""

    @abstractmethod
    def _vectors(self, texts: Sequence[str], model: str) -> Sequence[Float64]:
        """A vector of the model per text, in order, as long as the server likes. Raises ModelError without a usable answer."""

    @cached_property
    def dimension(self) -> int:
        """Length of one vector: as configured, or requested from the server once. Raises ModelError."""
        return self._expected or len(self._asked(["dimension"], self._model)[0])

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        """Unit vectors, shape (len(texts), dimension), float32; equal texts are embedded once.

        Raises ModelError when the server fails or sends vectors of another number or length, not finite, or all zero.
        """
        return self._encoded(texts, self._model, self._wording.text_prefix, progress)

    def encode_queries(self, texts: Sequence[str]) -> Float32:
        """As `encode`, with the query prefix."""
        return self._encoded(texts, self._wording.query_model or self._model, self._wording.query_prefix)

    def _encoded(self, texts: Sequence[str], model: str, prefix: str, progress: Progress = silent) -> Float32:
        unique = list(dict.fromkeys(texts))
        if not unique:
            return np.zeros((0, self.dimension), dtype=np.float32)
        parts = []
        for start in range(0, len(unique), BATCH_SIZE):
            parts.append(self._unit_vectors([prefix + text for text in unique[start : start + BATCH_SIZE]], model))
            progress("embedding", min(start + BATCH_SIZE, len(unique)), len(unique))
        place = {text: i for i, text in enumerate(unique)}
        return np.concatenate(parts)[[place[text] for text in texts]]

    def _unit_vectors(self, texts: Sequence[str], model: str) -> Float32:
        rows = self._asked(texts, model)
        wrong = next((len(row) for row in rows if len(row) != self.dimension), None)
        if wrong is not None:
            raise ModelError(f"{self.line} sent a vector of length {wrong}; {self.dimension} was expected")
        vectors = np.stack(rows)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(norms).all():
            raise ModelError(f"{self.line} sent a vector that is not finite (NaN or infinite)")
        if not norms.all():
            raise ModelError(f"{self.line} sent a vector of zeros, which points nowhere")
        unit: Float32 = (vectors / norms).astype(np.float32)
        return unit

    def _asked(self, texts: Sequence[str], model: str) -> Sequence[Float64]:
        rows = self._vectors(texts, model)
        if len(rows) != len(texts) or not all(map(len, rows)):
            raise ModelError(f"{self.line} sent {sum(len(row) > 0 for row in rows)} vectors for {len(texts)} texts")
        return rows
