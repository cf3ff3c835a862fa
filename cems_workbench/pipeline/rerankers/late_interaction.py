"""Late interaction: each word of the query meets the word of the memory that is nearest to it, by the embedder's token vectors.

Source: Khattab & Zaharia, ColBERT, 2020; the formula stands in `models.late_interaction`.
"""

from __future__ import annotations

from cems_workbench.errors import ModelError
from cems_workbench.models.protocol import PairScorer
from cems_workbench.pipeline.rerankers import Reranker, ScorerRequest


def make(request: ScorerRequest) -> PairScorer:
    """The scorer on the embedder of the store; ModelError when another model is named, or it gives no token vectors."""
    model, embedder = request.model, request.resources.embedder
    if model not in (None, embedder.model_id):
        raise ModelError(
            f"model {model}: late interaction reads the token vectors of the embedder, {embedder.model_id}; "
            "leave the model empty"
        )
    return request.resources.late_interaction(request.progress)


RERANKER = Reranker("late_interaction", "late interaction on the embedder; needs no other model", make)
