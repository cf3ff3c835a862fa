"""The model that scores pairs for a config, and what takes its place when it cannot be had.

A cross-encoder whose weights are nowhere to be found gives way to late interaction, which needs only the embedder, and the
trace says so. A server that does not answer is not replaced: its candidates are flagged, one by one.
"""

from __future__ import annotations

from cems_workbench.config.ranking import RerankConfig
from cems_workbench.errors import ModelError
from cems_workbench.models.chat import Chat
from cems_workbench.models.cross_encoder import CrossEncoderReranker
from cems_workbench.models.llama_server import LlamaServerReranker
from cems_workbench.models.llm_reranker import LlmReranker
from cems_workbench.models.ollama import OllamaReranker
from cems_workbench.models.protocol import PairScorer
from cems_workbench.pipeline.asking import chat, revision
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.progress import Progress, silent


def reranker(config: RerankConfig, resources: Resources, progress: Progress = silent) -> tuple[PairScorer, str | None]:
    """The scorer, and a line to show when it is not the one that was asked for. Raises ModelError when there is none."""
    return scorer(config.backend, config.model, config, resources, progress)


def scorer(
    backend: str, model: str | None, config: RerankConfig, resources: Resources, progress: Progress = silent
) -> tuple[PairScorer, str | None]:
    """As `reranker`, for any backend and model; instruction, timeout and concurrency of servers are those of `config`."""
    if backend == "late_interaction":
        return _late_interaction(model, resources, progress), None
    if backend == "cross_encoder":
        asked = model or resources.servers.cross_encoder
        try:
            return resources.shared(("cross_encoder", asked), lambda: CrossEncoderReranker(asked)), None
        except ModelError as error:
            instead = resources.late_interaction(progress)
            return instead, f"{error}; {instead.label} takes its place"
    if backend == "llama_server":
        return _llama_server(model, config, resources.servers), None
    if backend == "ollama":
        return _ollama(model, config, resources.servers), None
    return LlmReranker(_chat(model, config, resources.servers), config.instruction, config.max_concurrent), None


def _llama_server(model: str | None, config: RerankConfig, servers: Servers) -> PairScorer:
    return LlamaServerReranker(
        servers.llama_server_url, model, config.instruction, config.timeout_s, config.max_concurrent
    )


def _ollama(model: str | None, config: RerankConfig, servers: Servers) -> PairScorer:
    if model is None:
        raise ModelError("rerank.model: the backend ollama needs the name of a model that the server has")
    digest = revision(servers.ollama_url, model)
    return OllamaReranker(servers.ollama_url, model, None, config.timeout_s, config.max_concurrent, revision=digest)


def _chat(model: str | None, config: RerankConfig, servers: Servers) -> Chat:
    """The chat model of the settings, or another one on the same server."""
    asked = model or servers.llm_model
    if not asked:
        raise ModelError("the backend llm needs a chat model: set rerank.model, or CEMS_WORKBENCH_LLM_MODEL")
    return chat(servers, asked, config.timeout_s)


def _late_interaction(model: str | None, resources: Resources, progress: Progress) -> PairScorer:
    if model not in (None, resources.embedder.model_id):
        raise ModelError(
            f"model {model}: late interaction reads the token vectors of the embedder, {resources.embedder.model_id}; "
            "leave the model empty"
        )
    return resources.late_interaction(progress)
