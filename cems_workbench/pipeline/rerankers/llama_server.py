"""Reranker on a llama.cpp server: the probability of yes against no for each pair."""

from __future__ import annotations

from cems_workbench.models.llama_server import LlamaServerReranker
from cems_workbench.models.protocol import PairScorer
from cems_workbench.pipeline.rerankers import Reranker, ScorerRequest


def make(request: ScorerRequest) -> PairScorer:
    """The model that the server of the settings has loaded."""
    resources, config = request.resources, request.config
    return LlamaServerReranker(
        resources.servers.llama_server_url,
        request.model,
        config.instruction,
        config.timeout_s,
        config.max_concurrent,
        breaker=resources.breaker,
    )


RERANKER = Reranker("llama_server", "a yes/no reranker such as Qwen3-Reranker on a llama.cpp server", make)
