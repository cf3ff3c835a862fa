"""Which models score pairs, the reranker, the cross-encoder and the judge: found or not, and what takes their place."""

from __future__ import annotations

from cems_workbench.config import PipelineConfig
from cems_workbench.diagnosis.check import OTHER_EMBEDDER, Check, Status, among, is_set
from cems_workbench.errors import ModelError
from cems_workbench.models.minilm_judge import MODEL_ID, available
from cems_workbench.models.resolve import locate
from cems_workbench.models.servers import Answers
from cems_workbench.settings import Settings

LATE_INTERACTION = "late interaction on the embedder"
NO_TOKENS = "the embedder on Ollama gives no token vectors, which it needs"
BETTER = "set CEMS_WORKBENCH_CROSS_ENCODER to a folder with the weights, or let the model hub be reached once"
OTHER_RERANKER = "set rerank.backend to late_interaction, which needs no server"


def reranker_check(settings: Settings, config: PipelineConfig, servers: Answers) -> Check:
    """What this config reranks with, and what happens when it cannot be had."""
    backend, model = config.rerank.backend, config.rerank.model
    if backend == "none":
        return Check("reranker", "ok", f"{config.name} reranks with nothing")
    if backend == "late_interaction" and settings.ollama_embedder is not None:
        return Check("reranker", "warning", f"{config.name} reranks with late interaction: {NO_TOKENS}", OTHER_EMBEDDER)
    if backend == "late_interaction":
        return Check("reranker", "ok", f"{config.name} reranks with {LATE_INTERACTION}; no server is needed")
    if backend == "cross_encoder":
        asked = model or settings.cross_encoder
        if found := _found(asked):
            return Check("reranker", "ok", f"{config.name} reranks with the cross-encoder {found}")
        instead = _instead(settings, asked) or "nothing: its candidates are flagged"
        finding = f"{config.name} reranks with {instead}, in place of the cross-encoder {asked}"
        return Check("reranker", "warning", finding, BETTER)
    missing = _missing(settings, config, servers)
    if not missing:
        return Check(
            "reranker", "ok", f"{config.name} reranks with {model or settings.llm_model or backend} ({backend})"
        )
    then = "are left out" if config.rerank.on_error == "drop" else f"count {config.rerank.neutral_unit:g}, flagged"
    return Check(
        "reranker", "warning", f"{config.name} reranks with {backend}: {missing}; candidates {then}", OTHER_RERANKER
    )


def _missing(settings: Settings, config: PipelineConfig, servers: Answers) -> str | None:
    """Why the server that this config reranks with cannot score; None when it can."""
    backend, asked = config.rerank.backend, config.rerank.model
    if backend == "llama_server":
        return str(servers.llama_server) if isinstance(servers.llama_server, ModelError) else None
    model = asked or settings.llm_model if backend == "llm" else asked
    if not model:
        return "no model is set"
    had = servers.llm if backend == "llm" and settings.llm_url else servers.ollama
    if isinstance(had, ModelError):
        return str(had)
    return None if had is None or among(model, had) else f"the server has no {model}"


def cross_encoder_check(settings: Settings, config: PipelineConfig) -> Check:
    """The cross-encoder of the settings: found or not, what takes its place, and how to get it."""
    asked = settings.cross_encoder
    if found := _found(asked):
        return Check("cross-encoder", "ok", found)
    needed = is_set(settings, "cross_encoder") or "cross_encoder" in (config.rerank.backend, config.judge.backend)
    instead = _instead(settings, asked) or "nothing"
    finding = f"{asked}: no such folder, not in the local cache, no model hub; {instead} takes its place"
    return Check("cross-encoder", "warning" if needed else "ok", finding, BETTER)


def judge_check(settings: Settings, config: PipelineConfig) -> Check:
    """Which model judges the results; `auto` is spelt out."""
    backend = config.judge.backend
    if backend not in ("auto", "cross_encoder"):
        named = {"none": "off", "late_interaction": LATE_INTERACTION}
        return Check("judge", "ok", named.get(backend, f"the model of {backend}, below"))
    asked = config.judge.model or settings.cross_encoder
    means = "auto means " if backend == "auto" else ""
    if found := _found(asked):
        return Check("judge", "ok", f"{means}the cross-encoder {found}")
    instead = _instead(settings, asked)
    status: Status = "ok" if backend == "auto" and instead else "warning"
    finding = f"{means}{instead or 'nothing, and no result is judged'}, in place of the cross-encoder {asked}"
    return Check("judge", status, finding, BETTER)


def _found(asked: str) -> str | None:
    """The cross-encoder in words, when its weights are here or can be fetched; nothing is loaded to see whether they work."""
    if asked == MODEL_ID and available():
        return f"{MODEL_ID} (packaged with the workbench)"
    found = locate(asked)
    return found.line if found else None


def _instead(settings: Settings, asked: str) -> str | None:
    """What takes the place of a cross-encoder that is not there; None when nothing can."""
    if available():
        return f"the packaged {MODEL_ID}"
    if settings.ollama_embedder is not None:
        return None
    also = "" if asked == MODEL_ID else f" ({MODEL_ID} is not in this checkout)"
    return f"{LATE_INTERACTION}{also}"
