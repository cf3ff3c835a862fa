"""Embedding some of a store's texts again, to see whether its vectors are those of an embedder."""

from __future__ import annotations

import numpy as np

from cems_workbench.models.embedder_match import EmbedderMatch, match
from cems_workbench.models.protocol import Embedder
from cems_workbench.store import Store

SAMPLE_TEXTS = 20
"""Texts that are embedded again."""


def match_store(store: Store, embedder: Embedder) -> EmbedderMatch:
    """Embed some of a store's texts again, and compare with its vectors: those that came from a source, else those under the embedder's id.

    Compares nothing where these are behind the memories. Raises ModelError.
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
    kept, texts = vectors.chunk_embeddings(spread), store.indexes.texts(spread)
    # Of a memory in chunks the first one is enough.
    firsts = [(key, next(iter(kept[key]))) for key in spread if key in kept]
    return match(embedder, [(texts[key][seq], kept[key][seq]) for key, seq in firsts])


def match_embedder(store: Store, source_id: int, embedder: Embedder) -> EmbedderMatch:
    """Embed some of a source's texts again, and compare with the vectors that came with them. Raises ModelError."""
    return match(embedder, [(text, vector) for _, text, vector in store.sources.sample_texts(source_id, SAMPLE_TEXTS)])
