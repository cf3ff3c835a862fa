"""Late interaction: each query token is matched with its nearest memory token, by the embedder's token vectors.

Source: Khattab & Zaharia, ColBERT, 2020; the formula is in `models.late_interaction`.
"""

from __future__ import annotations

from cems_workbench.errors import ModelError
from cems_workbench.models.protocol import PairScorer
from cems_workbench.pipeline.rerankers import Reranker, ScorerRequest


def make(request: ScorerRequest) -> PairScorer:
    """The scorer on the store's embedder; ModelError if another model is configured, or the embedder has no token vectors."""
    model, embedder = request.model, request.resources.embedder
    if model not in (None, embedder.model_id):
        raise ModelError(
            f"model {model}: late interaction reads the token vectors of the embedder, {embedder.model_id}; "
            "leave the model empty"
        )
    return request.resources.late_interaction(request.progress)


RERANKER = Reranker("late_interaction", "late interaction on the embedder; needs no other model", make)
