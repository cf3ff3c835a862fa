"""Were vectors made by the embedder that is to search them?

Names are compared as they stand, since two servers may call one model differently and one name may stand for two models: who knows
that two names are one model states it (`CEMS_WORKBENCH_EMBEDDING_SAME_AS`). Lengths of vectors have to be equal in any case. Whether a
statement is true shows `reproduce`: texts are embedded again and compared with the vectors that are kept of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cems_workbench.errors import EmbedderMismatchError
from cems_workbench.models.protocol import Embedder, Float32

REPRODUCED = 0.99
"""Cosine from which a vector counts as made again: quantisation and batching move one by less, another model by far more."""
STATE = "CEMS_WORKBENCH_EMBEDDING_SAME_AS"
ANEW = "python -m cems_workbench embed, or Rebuild on the Memories page, embeds the memories anew"


def other_model(had: str, dimension: int | None, configured: str) -> EmbedderMismatchError:
    """The refusal to search vectors of the embedder `had` by another; says how to state that both are one model."""
    length = f" ({dimension} values)" if dimension else ""
    return EmbedderMismatchError(
        f"the store's vectors were made by {had}{length}, and the embedder configured is {configured}: "
        f"if both are the same model set {STATE}={had}; if not, {ANEW}"
    )


def other_dimension(had: str, dimension: int, configured: str, wanted: int) -> EmbedderMismatchError:
    """The refusal to search vectors of `dimension` values by an embedder that makes `wanted`."""
    return EmbedderMismatchError(
        f"the store's vectors were made by {had} and have {dimension} values, and the embedder configured, {configured}, "
        f"makes {wanted}: configure the one that made them; {ANEW}"
    )


@dataclass(frozen=True, slots=True)
class Reproduction:
    """How many of `asked` texts gave their kept vector again, and the lowest cosine among all of them."""

    asked: int
    reproduced: int
    lowest: float

    @property
    def complete(self) -> bool:
        """Did every text give its vector again?"""
        return self.reproduced == self.asked

    def __str__(self) -> str:
        """In words: "20 of 20 stored vectors reproduced, lowest cosine 0.9998"."""
        return f"{self.reproduced} of {self.asked} stored vectors reproduced, lowest cosine {self.lowest:.4f}"


def reproduce(embedder: Embedder, texts: Sequence[str], vectors: Float32) -> Reproduction:
    """Embed texts again and compare with the vectors kept of them, shape (len(texts), dimension), of any length but zero.

    Raises ModelError when the embedder fails, EmbedderMismatchError when its vectors have another length, ValueError without texts.
    """
    if not texts:
        raise ValueError("no text to embed again")
    again = embedder.encode(texts)
    if again.shape != vectors.shape:
        raise other_dimension("another embedder", vectors.shape[1], embedder.model_id, again.shape[1])
    norms = np.linalg.norm(again, axis=1) * np.linalg.norm(vectors, axis=1)
    cosines = np.sum(again * vectors, axis=1) / np.maximum(norms, 1e-12)
    return Reproduction(len(texts), int((cosines >= REPRODUCED).sum()), float(cosines.min()))
