"""Local embedder: the packaged model on onnxruntime, any other on sentence-transformers."""

from __future__ import annotations

from cems_workbench.models.embedder import SentenceTransformerEmbedder, TokenEmbedder
from cems_workbench.models.minilm_embedder import MiniLMEmbedder, is_packaged_model
from cems_workbench.models.resolve import resolve


def local_embedder(asked: str, same_as: str = "") -> TokenEmbedder:
    """The embedder `asked`, a path or hub id; nothing is loaded yet. `same_as`: another id for vectors of the same model."""
    resolved = resolve(asked)
    return (
        MiniLMEmbedder(resolved, same_as)
        if is_packaged_model(resolved)
        else SentenceTransformerEmbedder(resolved, same_as)
    )
