"""The model that scores pairs for a config, and what takes its place when it cannot be had.

A cross-encoder whose weights are nowhere to be found, or do not load, gives way to the packaged one, workbench/minilm-judge, and
that to late interaction in a checkout without it; the trace says so, and why. A server that does not answer is not replaced: its
candidates are flagged, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from cems_workbench.config.ranking import RerankConfig
from cems_workbench.errors import ModelError
from cems_workbench.models.chat import Chat
from cems_workbench.models.cross_encoder import CrossEncoderReranker
from cems_workbench.models.llama_server import LlamaServerReranker
from cems_workbench.models.llm_reranker import LlmReranker
from cems_workbench.models.minilm_judge import MODEL_ID, MiniLMJudge
from cems_workbench.models.ollama import OllamaReranker
from cems_workbench.models.protocol import PairScorer
from cems_workbench.pipeline.asking import chat, revision
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent

Use = TypeVar("Use")


def scorer(
    backend: str, model: str | None, config: RerankConfig, resources: Resources, progress: Progress = silent
) -> tuple[PairScorer, str | None]:
    """The scorer, and a line to show when it is not the one that was asked for; it may still fail to load when it scores.

    Instruction, timeout and concurrency of servers are those of `config`. Raises ModelError when there is none.
    """
    found, said, _ = asked(backend, model, config, resources, lambda found: found, progress)
    return found, said


def asked(
    backend: str, model: str | None, config: RerankConfig, resources: Resources, use: Callable[[PairScorer], Use],
    progress: Progress = silent,
) -> tuple[PairScorer, str | None, Use]:  # fmt: skip
    """The scorer as in `scorer`, its line, and what `use` makes of it; the next in line where `use` raises ModelError.

    Weights load when they first score, so that only then it shows whether they can. Raises ModelError with every reason.
    """
    reasons: list[str] = []
    for make in _in_line(backend, model, config, resources, progress):
        try:
            found = make()
            made = use(found)
        except ModelError as error:
            reasons.append(str(error))
            continue
        return found, f"{'; '.join(reasons)}; {found.label} takes its place" if reasons else None, made
    raise ModelError("; ".join(reasons))


def _in_line(
    backend: str, model: str | None, config: RerankConfig, resources: Resources, progress: Progress
) -> Sequence[Callable[[], PairScorer]]:
    """What was asked for, and what takes its place, in this order."""
    if backend == "late_interaction":
        return [lambda: _late_interaction(model, resources, progress)]
    if backend == "llama_server":
        return [lambda: _llama_server(model, config, resources)]
    if backend == "ollama":
        return [lambda: _ollama(model, config, resources)]
    if backend == "llm":
        return [lambda: LlmReranker(_chat(model, config, resources), config.instruction, config.max_concurrent)]
    name = model or resources.servers.cross_encoder
    packaged: list[Callable[[], PairScorer]] = [
        lambda: resources.shared(MODEL_ID, MiniLMJudge),
        lambda: resources.late_interaction(progress),
    ]
    if name == MODEL_ID:
        return packaged
    return [lambda: resources.shared(("cross_encoder", name), lambda: CrossEncoderReranker(name)), *packaged]


def _llama_server(model: str | None, config: RerankConfig, resources: Resources) -> PairScorer:
    return LlamaServerReranker(
        resources.servers.llama_server_url, model, config.instruction, config.timeout_s, config.max_concurrent,
        reach=resources.reach,
    )  # fmt: skip


def _ollama(model: str | None, config: RerankConfig, resources: Resources) -> PairScorer:
    if model is None:
        raise ModelError("rerank.model: the backend ollama needs the name of a model that the server has")
    return OllamaReranker(
        resources.servers.ollama_url, model, None, config.timeout_s, config.max_concurrent,
        revision=revision(resources, model), reach=resources.reach,
    )  # fmt: skip


def _chat(model: str | None, config: RerankConfig, resources: Resources) -> Chat:
    """The chat model of the settings, or another one on the same server."""
    asked = model or resources.servers.llm_model
    if not asked:
        raise ModelError("the backend llm needs a chat model: set rerank.model, or CEMS_WORKBENCH_LLM_MODEL")
    return chat(resources, asked, config.timeout_s)


def _late_interaction(model: str | None, resources: Resources, progress: Progress) -> PairScorer:
    if model not in (None, resources.embedder.model_id):
        raise ModelError(
            f"model {model}: late interaction reads the token vectors of the embedder, {resources.embedder.model_id}; "
            "leave the model empty"
        )
    return resources.late_interaction(progress)
