"""Embedding some of a store's texts again, to see whether its vectors are those of an embedder."""

from __future__ import annotations

import numpy as np

from cems_workbench.models.embedder_match import Reproduction, reproduce
from cems_workbench.models.protocol import Embedder
from cems_workbench.store import Store

SAMPLED = 20


def reproduced(store: Store, embedder: Embedder, sampled: int = SAMPLED) -> Reproduction | None:
    """How many of up to `sampled` stored vectors, of memories spread over the ids, the embedder makes again from their texts.

    None where the store has no vectors under the embedder's id that are up to date. Raises ModelError when the embedder fails,
    EmbedderMismatchError when its vectors have another length.
    """
    if not all(state.fresh for state in store.indexes.states(embedder.model_id)):
        return None
    vectors = store.indexes.open(embedder).vectors
    ids = vectors.ids()
    spread = [ids[i] for i in dict.fromkeys(np.linspace(0, len(ids) - 1, min(sampled, len(ids))).astype(int).tolist())]
    kept, texts = vectors.chunk_embeddings(spread), store.indexes.texts(spread)
    # Of a memory in chunks the first one is enough.
    pairs = [
        (texts[key][min(texts[key], key=str)], kept[key][min(texts[key], key=str)]) for key in spread if key in kept
    ]
    if not pairs:
        return None
    return reproduce(embedder, [text for text, _ in pairs], np.stack([vector for _, vector in pairs]))
