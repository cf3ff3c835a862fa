"""Chat model as reranker: grades each memory from 0 to 10."""

from __future__ import annotations

from cems_workbench.errors import ModelError
from cems_workbench.models.chat import LlmReranker
from cems_workbench.models.protocol import PairScorer
from cems_workbench.pipeline.rerankers import Reranker, ScorerRequest
from cems_workbench.pipeline.understanding import chat


def make(request: ScorerRequest) -> PairScorer:
    """The configured chat model, or another one on the same server; ModelError if there is neither."""
    resources, config = request.resources, request.config
    model = request.model or resources.servers.llm_model
    if not model:
        raise ModelError("the backend llm needs a chat model: set rerank.model, or CEMS_WORKBENCH_LLM_MODEL")
    return LlmReranker(chat(resources, model, config.timeout_s), config.instruction, config.max_concurrent)


RERANKER = Reranker("llm", "a chat model that grades", make)
