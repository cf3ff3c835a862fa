"""What is there and what will be used: the account that `doctor` gives.

Nothing here loads a model, and nothing waits long: the servers are asked side by side while the rest is looked at.

What is not there is a warning where the config or a setting of the user's own asks for it; where nobody did, the finding
just says so. Only what the workbench cannot do without fails.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Sequence

from cems_workbench.config import DEFAULT, PipelineConfig, preset, preset_names
from cems_workbench.diagnosis.check import OTHER_EMBEDDER, Check, Status, among, is_set
from cems_workbench.diagnosis.scorers import cross_encoder_check, judge_check, reranker_check
from cems_workbench.errors import ModelError, StoreError, StoreLockedError
from cems_workbench.models.calling import server_name
from cems_workbench.models.resolve import resolve
from cems_workbench.models.servers import Answers, ask_all
from cems_workbench.resources import embedder
from cems_workbench.settings import Settings

PACKAGES = ("streamlit", "duckdb", "chromadb", "sentence-transformers", "torch", "bm25s")
SHOWN_MODELS = 8
WITHOUT_LLM = (
    "without one, intent is read from the query's words, and expansion is feedback from its first lexical hits"
)


def diagnose(settings: Settings, config: PipelineConfig | None = None) -> list[Check]:
    """Every check, in the order a reader wants them; what `config` asks for is needed (default: the default preset)."""
    config = config or preset(DEFAULT).config
    answers = ask_all(
        settings.llama_server_url, settings.ollama_url, settings.llm_url, settings.llm_key, settings.chroma_url
    )
    packages = _packages()
    cross_encoder, judge = cross_encoder_check(settings, config), judge_check(settings, config)
    store = _store(settings, answers)
    servers = answers()
    return [
        packages,
        _embedder(settings, servers),
        reranker_check(settings, config, servers),
        cross_encoder,
        judge,
        _llama_server(settings, config, servers),
        _ollama(settings, config, servers),
        _llm(settings, config, servers),
        *_chroma(settings, servers),
        *store,
    ]


def _packages() -> Check:
    found, missing = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check("packages", "failed", f"missing: {', '.join(missing)}", "run make setup")
    return Check("packages", "ok", f"Python {platform.python_version()}, {', '.join(found)}")


def _embedder(settings: Settings, servers: Answers) -> Check:
    model = settings.ollama_embedder
    if model is not None:
        return _ollama_embedder(settings, model, servers)
    resolved = resolve(settings.embedder)
    advice = "set CEMS_WORKBENCH_EMBEDDER to a folder with the weights" if resolved.fallback else ""
    return Check("embedder", "warning" if resolved.fallback else "ok", resolved.line, advice)


def _ollama_embedder(settings: Settings, model: str, servers: Answers) -> Check:
    """Nothing can take the place of an embedder on a server: its vectors would not fit those of the store."""
    if not model:
        return Check("embedder", "failed", "CEMS_WORKBENCH_EMBEDDER names no model after ollama:", OTHER_EMBEDDER)
    had = servers.ollama
    if isinstance(had, ModelError):
        return Check("embedder", "failed", f"{model} on Ollama: {had}", f"ollama serve, or {OTHER_EMBEDDER}")
    if not among(model, had):
        finding = f"{model} on Ollama: not there, the server has {_some(had)}"
        return Check("embedder", "failed", finding, f"ollama pull {model}")
    where = server_name(settings.ollama_url)
    return Check("embedder", "ok", f"{model} on Ollama at {where}; late interaction needs an embedder loaded here")


def _llama_server(settings: Settings, config: PipelineConfig, servers: Answers) -> Check:
    said = servers.llama_server
    if not isinstance(said, ModelError):
        return Check("llama.cpp server", "ok", said)
    needed = is_set(settings, "llama_server_url") or "llama_server" in (config.rerank.backend, config.judge.backend)
    return _absent(
        "llama.cpp server", needed, str(said), _presets("llama_server"),
        "llama-server -m MODEL.gguf, and CEMS_WORKBENCH_LLAMA_SERVER_URL where it is elsewhere",
    )  # fmt: skip


def _ollama(settings: Settings, config: PipelineConfig, servers: Answers) -> Check:
    """Is Ollama there, which models it has, and are those among them that the config, the LLM or a preset asks for?"""
    had = servers.ollama
    asked = {preset(name).config.rerank.model: f"preset {name}" for name in reversed(_presets("ollama"))}
    needed = {config.rerank.model} if config.rerank.backend == "ollama" else set()
    if not settings.llm_url and settings.llm_model:
        asked[settings.llm_model] = "CEMS_WORKBENCH_LLM_MODEL"
        needed.add(settings.llm_model)
    if config.rerank.backend == "ollama":
        asked[config.rerank.model] = config.name
    if isinstance(had, ModelError):
        return _absent(
            "Ollama", bool(needed) or is_set(settings, "ollama_url"), str(had), _presets("ollama"),
            "ollama serve, and CEMS_WORKBENCH_OLLAMA_URL where it is elsewhere",
        )  # fmt: skip
    lacking = [model for model in asked if model and not among(model, had)]
    lines = [f"Ollama at {server_name(settings.ollama_url)} has {_some(had)}"]
    lines += [f"{model} ({asked[model]}) is {'not ' * (model in lacking)}among them" for model in asked if model]
    status: Status = "warning" if needed & set(lacking) else "ok"
    return Check("Ollama", status, "; ".join(lines), "; ".join(f"ollama pull {model}" for model in lacking))


def _llm(settings: Settings, config: PipelineConfig, servers: Answers) -> Check:
    """The language model of the query side: configured, reachable, and what takes its place when it is not."""
    model = settings.llm_model
    if not model:
        half = " for CEMS_WORKBENCH_LLM_URL" if settings.llm_url else ""
        asks = settings.llm_url or config.expansion.backend == "llm" or (config.rerank.backend == "llm")
        return Check(
            "LLM", "warning" if asks else "ok", f"no chat model is configured{half}; {WITHOUT_LLM}",
            "set CEMS_WORKBENCH_LLM_MODEL to a model of Ollama, or of the server at CEMS_WORKBENCH_LLM_URL",
        )  # fmt: skip
    had = servers.llm if settings.llm_url else servers.ollama
    place = f"{model} at {_place(settings.llm_url)}" if settings.llm_url else f"{model} on Ollama"
    if isinstance(had, ModelError):
        advice = "check CEMS_WORKBENCH_LLM_URL and CEMS_WORKBENCH_LLM_KEY" if settings.llm_url else "ollama serve"
        return Check("LLM", "warning", f"{place}: {had}; {WITHOUT_LLM}", advice)
    if had is None:
        return Check("LLM", "ok", f"{place}: the server answers, and does not list its models")
    if among(model, had):
        return Check("LLM", "ok", f"{place}: there")
    advice = "set CEMS_WORKBENCH_LLM_MODEL to a model it has" if settings.llm_url else f"ollama pull {model}"
    return Check("LLM", "warning", f"{place}: not there, the server has {_some(had)}; {WITHOUT_LLM}", advice)


def _chroma(settings: Settings, servers: Answers) -> list[Check]:
    if not settings.chroma_url:
        return []
    if servers.chroma is None:
        return [Check("Chroma server", "ok", f"answers at {_place(settings.chroma_url)}")]
    advice = "start it, or unset CEMS_WORKBENCH_CHROMA_URL to run Chroma embedded"
    return [Check("Chroma server", "failed", str(servers.chroma), advice)]


def _store(settings: Settings, answers: Callable[[], Answers]) -> list[Check]:
    from cems_workbench.store import Store

    where = f"{settings.store}" + (f", Chroma at {_place(settings.chroma_url)}" if settings.chroma_url else "")
    try:
        store = Store.open(settings.store, create=False, chroma_url=settings.chroma_url)
    except StoreLockedError as error:
        return [Check("store", "warning", str(error), "close the app, or name another --store")]
    except StoreError as error:
        return [Check("store", "failed", str(error), "python -m cems_workbench import sample_data")]
    with store:
        count = store.count()
        content = f"{where}: {count} memories, {len(store.queries())} queries, {len(store.judgments())} judgments"
        checks = [Check("store", "ok" if count else "warning", content, "" if count else "import something")]
        for state in store.index_state(_embedder_id(settings, answers)):
            note = state.note or f"content version {state.version}"
            status: Status = "ok" if state.fresh else "warning"
            advice = "" if state.fresh else "it is rebuilt at the next search"
            checks.append(Check(f"index {state.name}", status, f"{state.rows} rows, {note}", advice))
    return checks


def _embedder_id(settings: Settings, answers: Callable[[], Answers]) -> str | None:
    """Under which id the vectors are kept; None, which stands for every known one, when a server does not say it."""
    if settings.ollama_embedder is not None and isinstance(answers().ollama, ModelError):
        return None
    try:
        return embedder(settings).model_id
    except ModelError:
        return None


def _absent(name: str, needed: bool, said: str, presets: Sequence[str], command: str) -> Check:
    """A server that gave no answer: a warning when it is needed, else news of what it would be for."""
    use = f"; only {_and(presets)} would ask it" if not needed and presets else ""
    return Check(name, "warning" if needed else "ok", f"{said}{use}", f"{'' if needed else 'to have it: '}{command}")


def _presets(backend: str) -> list[str]:
    """The shipped presets that rerank with this backend."""
    return [name for name in preset_names() if preset(name).config.rerank.backend == backend]


def _some(had: Sequence[str]) -> str:
    more = f" and {len(had) - SHOWN_MODELS} more" if len(had) > SHOWN_MODELS else ""
    return f"{len(had)} models: {', '.join(had[:SHOWN_MODELS])}{more}" if had else "no models"


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def _place(url: str) -> str:
    """Host and port of a URL without what stands before an @, also of one that is none."""
    try:
        return server_name(url)
    except ModelError as error:
        return str(error)
