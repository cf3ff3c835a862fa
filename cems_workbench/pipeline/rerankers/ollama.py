"""Reranker on an Ollama server: a generative model that replies with a number, the raw score."""

from __future__ import annotations

from cems_workbench.errors import ModelError
from cems_workbench.models.ollama import OllamaReranker
from cems_workbench.models.protocol import PairScorer
from cems_workbench.pipeline.rerankers import Reranker, ScorerRequest
from cems_workbench.pipeline.understanding import revision


def make(request: ScorerRequest) -> PairScorer:
    """The model of `rerank.model` on the server of the settings; ModelError if none is configured."""
    model, resources, config = request.model, request.resources, request.config
    if model is None:
        raise ModelError("rerank.model: the backend ollama needs the name of a model that the server has")
    return OllamaReranker(
        resources.servers.ollama_url,
        model,
        None,
        config.timeout_s,
        config.max_concurrent,
        revision=revision(resources, model),
        breaker=resources.breaker,
    )


RERANKER = Reranker("ollama", "a model on an Ollama server that answers with a number", make)
