"""Whether stored vectors were made by the configured embedder, and which models make vectors of a dimension.

Model names are compared literally: two servers may name one model differently, and one name may mean two models. A user who knows that two
names are one model declares it (`CEMS_WORKBENCH_EMBEDDING_SAME_AS`); the dimensions must be equal in any case. `match` verifies the
declaration: it embeds texts again and compares the result with their stored vectors. A dimension alone proves nothing: other models make it
too, and some make shorter vectors on request.

Source: the models' cards and their makers' pages, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cems_workbench.errors import EmbedderMismatchError
from cems_workbench.models.protocol import Embedder, Float32

PACKAGED_DIMENSION = 384
"""Of all-MiniLM-L6-v2, in both forms that ship with the workbench."""
KNOWN_MODELS: Mapping[int, tuple[str, ...]] = {
    256: ("model2vec's potion-base-8M",),
    384: ("all-MiniLM-L6-v2", "bge-small-en-v1.5", "multilingual-e5-small"),
    512: ("distiluse-base-multilingual-cased-v2", "potion-retrieval-32M"),
    768: ("nomic-embed-text", "all-mpnet-base-v2", "bge-base-en-v1.5", "embeddinggemma"),
    1024: ("bge-m3", "mxbai-embed-large", "multilingual-e5-large", "qwen3-embedding:0.6b"),
    1536: ("OpenAI's text-embedding-3-small", "OpenAI's text-embedding-ada-002"),
    2560: ("qwen3-embedding:4b",),
    3072: ("OpenAI's text-embedding-3-large", "Google's gemini-embedding-001"),
    4096: ("qwen3-embedding:8b",),
}


def candidates(dimension: int) -> str:
    """A sentence about the models of a dimension, and that no packaged one makes it if so."""
    known = ", ".join(KNOWN_MODELS.get(dimension, ()))
    if dimension == PACKAGED_DIMENSION:
        return f"models that make {dimension:,} numbers: {known}, among others"
    named = f"{known} do, among others" if known else "no common model is known to make them"
    return f"no packaged embedder makes {dimension:,} numbers; {named}"


MATCH_COSINE = 0.99
"""Cosine from which a vector counts as made by the same model: quantised weights and other runtimes differ in the third digit."""
STATE = "CEMS_WORKBENCH_EMBEDDING_SAME_AS"
ANEW = "python -m cems_workbench reindex, or Rebuild on the Memories page, re-embeds the memories"


def other_model(had: str, dimension: int | None, configured: str) -> EmbedderMismatchError:
    """The refusal to search vectors of the embedder `had` by another; says how to declare that both are the same model."""
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
class EmbedderMatch:
    """How well an embedder reproduces stored vectors: `reproduced` of `asked` texts, and the lowest cosine."""

    asked: int
    reproduced: int
    lowest: float

    @property
    def same(self) -> bool:
        """Whether there was at least one text, and every vector was reproduced."""
        return self.asked > 0 and self.reproduced == self.asked

    def __str__(self) -> str:
        """In words: "20 of 20 stored vectors reproduced, lowest cosine 0.9998"."""
        if not self.asked:
            return "no stored vector to compare with"
        return f"{self.reproduced} of {self.asked} stored vectors reproduced, lowest cosine {self.lowest:.4f}"


def match(embedder: Embedder, kept: Sequence[tuple[str, Float32]]) -> EmbedderMatch:
    """Re-embed texts and compare them with their stored vectors. Raises ModelError when the embedder fails. A vector of
    another length is not reproduced; its cosine counts as 0."""
    if not kept:
        return EmbedderMatch(0, 0, 0.0)
    made = embedder.encode([text for text, _ in kept])
    return of_cosines([cosine(mine, theirs) for mine, (_, theirs) in zip(made, kept, strict=True)])


def of_cosines(cosines: Sequence[float]) -> EmbedderMatch:
    """The comparison with these cosines, at least one."""
    return EmbedderMatch(len(cosines), sum(each >= MATCH_COSINE for each in cosines), min(cosines))


def cosine(a: Float32, b: Float32) -> float:
    """The cosine of two vectors; 0 if their lengths differ."""
    if a.shape != b.shape:
        return 0.0
    return float(a @ b / max(float(np.linalg.norm(a)) * float(np.linalg.norm(b)), 1e-12))
