"""A cross-encoder: a sentence-transformers model that reads query and memory together and gives a logit.

Source: Nogueira & Cho, Passage re-ranking with BERT, 2019; the model is `rerank.model`, or the cross-encoder of the settings.
"""

from __future__ import annotations

from collections.abc import Sequence

from cems_workbench.models.cross_encoder import CrossEncoderReranker
from cems_workbench.models.minilm_judge import MODEL_ID, MiniLMJudge
from cems_workbench.models.protocol import PairScorer
from cems_workbench.pipeline.rerankers import MakeScorer, Reranker, ScorerRequest


def make(request: ScorerRequest) -> PairScorer:
    """The named cross-encoder, loaded once and shared."""
    name = _name(request)
    if name == MODEL_ID:
        return request.resources.shared(MODEL_ID, MiniLMJudge)
    return request.resources.shared(
        ("cross_encoder", name), lambda: CrossEncoderReranker(name, request.resources.servers.device)
    )


def instead(request: ScorerRequest) -> Sequence[MakeScorer]:
    """The packaged cross-encoder, unless that is the one that failed, then late interaction."""
    packaged: MakeScorer = lambda: request.resources.shared(MODEL_ID, MiniLMJudge)  # noqa: E731
    late: MakeScorer = lambda: request.resources.late_interaction(request.progress)  # noqa: E731
    return (late,) if _name(request) == MODEL_ID else (packaged, late)


def _name(request: ScorerRequest) -> str:
    return request.model or request.resources.servers.cross_encoder


RERANKER = Reranker("cross_encoder", "a cross-encoder, loaded here", make, instead)
