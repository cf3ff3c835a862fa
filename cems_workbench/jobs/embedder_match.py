"""Comparison of stored vectors with an embedder, by embedding a sample of texts again."""

from __future__ import annotations

import numpy as np

from cems_workbench.models.embedder_match import EmbedderMatch, match
from cems_workbench.models.protocol import Embedder
from cems_workbench.store import Store

SAMPLE_TEXTS = 20
"""Texts in a sample."""


def match_store(store: Store, embedder: Embedder) -> EmbedderMatch:
    """Compare a sample of a store's vectors: those imported from a source, else those of the embedder's index.

    Compares nothing if that index is stale. Raises ModelError.
    """
    for record in store.sources.with_memories():
        if record.dimension is not None:
            return match_embedder(store, record.id, embedder)
    if not all(state.fresh for state in store.indexes.states(embedder.model_id)):
        return EmbedderMatch(0, 0, 0.0)
    vectors = store.indexes.open(embedder).vectors
    ids = vectors.ids()
    spread = [
        ids[i] for i in dict.fromkeys(np.linspace(0, len(ids) - 1, min(SAMPLE_TEXTS, len(ids))).astype(int).tolist())
    ]
    stored, texts = vectors.chunk_embeddings(spread), store.indexes.texts(spread)
    # One chunk per memory, so that the sample covers more memories.
    firsts = [(key, next(iter(stored[key]))) for key in spread if key in stored]
    return match(embedder, [(texts[key][seq], stored[key][seq]) for key, seq in firsts])


def match_embedder(store: Store, source_id: int, embedder: Embedder) -> EmbedderMatch:
    """Compare a sample of a source's vectors. Raises ModelError."""
    return match(embedder, [(text, vector) for _, text, vector in store.sources.sample_texts(source_id, SAMPLE_TEXTS)])
