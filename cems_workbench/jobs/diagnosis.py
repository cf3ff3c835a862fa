"""Diagnosis: the checks of `doctor`: packages, store, indexes, sources, embedder, reranker, cross-encoder, judge and servers.

Servers are probed in parallel with the other checks. The packaged models are loaded. Some stored texts are embedded again if nothing else
shows whether the store's vectors are the embedder's; no other model is loaded.

A missing component is a warning if the config or a user's setting needs it, otherwise a remark. A check fails only if the workbench
cannot work without the component.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from cems_workbench import extensions
from cems_workbench.builtin import default_preset
from cems_workbench.config import PipelineConfig, preset, preset_names
from cems_workbench.errors import EmbedderMismatchError, ModelError, StoreError, StoreLockedError, WorkbenchError
from cems_workbench.jobs import store_status
from cems_workbench.jobs.embedder_match import match_store, naming
from cems_workbench.jobs.factory import embedder, for_store, openai_embedder
from cems_workbench.models.device import NAMES, Agreement, chosen, describe, driver, unavailable
from cems_workbench.models.embedder_match import ANEW, EmbedderMatch, candidates
from cems_workbench.models.http import server_name
from cems_workbench.models.minilm_embedder import MiniLMEmbedder
from cems_workbench.models.minilm_judge import MODEL_ID, MiniLMJudge, available
from cems_workbench.models.resolve import MISSING_PACKAGE, loads_others, locate, resolve
from cems_workbench.models.servers import SERVER_TIMEOUT_S, Answers, ask_all
from cems_workbench.platform.waiting import run_in_thread
from cems_workbench.results import Report, Table
from cems_workbench.settings import Settings

if TYPE_CHECKING:
    from cems_workbench.store import Store

Status = Literal["ok", "optional", "warning", "failed"]
EMBEDDER_SERVERS: dict[str, str] = {"ollama": "ollama", "openai": "embedding"}
"""The server probe of each kind of embedder."""
EMBED_ANEW = (
    "reindex --mismatched re-embeds them in this store; there, write them again with the embedder of the queries"
)
OTHER_EMBEDDER_ADVICE = "unset CEMS_WORKBENCH_EMBEDDER to use the packaged one"


@dataclass(frozen=True, slots=True)
class Check:
    """A check: name, status, finding, and advice; `detail` is all of what the finding names the first of."""

    name: str
    status: Status
    finding: str
    advice: str = ""
    detail: Mapping[str, Any] | None = None


def diagnosis(checks: Sequence[Check]) -> Report:
    """A row for each check, what to do after what was found, and how many have which status."""
    labels = {"ok": "ok", "optional": "optional", "warning": "warning", "failed": "missing"}
    rows = ((labels[one.status], one.name, " → ".join(filter(None, (one.finding, one.advice)))) for one in checks)
    table = Table(("status", "check", "finding"), tuple(rows))
    counts = Counter(row[0] for row in table.rows)
    said = ", ".join(f"{counts[word]} {word}" for word in labels.values())
    return Report(said, (), [table], [said], list(map(asdict, checks)))


def is_set(settings: Settings, name: str) -> bool:
    """Whether this setting differs from its default."""
    return bool(getattr(settings, name) != Settings.model_fields[name].default)


def among(model: str, had: Sequence[str]) -> bool:
    """Whether a model is among the installed ones. Ollama lists a model without a tag as NAME:latest."""
    return model in had or f"{model}:latest" in had


LATE_INTERACTION = "late interaction on the embedder"
NO_TOKENS = "the embedder on a server gives no token vectors, which it needs"
BETTER_RERANKER_ADVICE = (
    "set CEMS_WORKBENCH_CROSS_ENCODER to a folder with the weights, or let the model hub be reached once"
    if loads_others()
    else f"models besides the packaged ones: {MISSING_PACKAGE}"
)
SERVER_RERANKERS = ("llama_server", "ollama", "llm")
BROKEN_EXTENSION_ADVICE = "repair or uninstall the extensions that are left out; everything else works"
OTHER_RERANKER_ADVICE = "set rerank.backend to late_interaction, which needs no server"


def _check(name: str, finding: str, advice: str) -> Check:
    """A warning if there is something to do."""
    return Check(name, "warning" if advice else "ok", finding, advice)


def _reranker(settings: Settings, config: PipelineConfig, servers: Answers) -> tuple[str, str]:
    """What reranks, and what to do unless that was asked for."""
    from cems_workbench.pipeline.rerankers import RERANKERS

    backend, model = config.rerank.backend, config.rerank.model
    if backend == "none":
        return "nothing", ""
    if backend == "cross_encoder":
        asked = model or settings.cross_encoder
        if found := _found(asked):
            return f"the cross-encoder {found}", ""
        instead = _instead(settings, asked) or "nothing: its candidates are flagged"
        return f"{instead}, instead of the cross-encoder {asked}", BETTER_RERANKER_ADVICE
    problem = cannot_rerank(settings, config, lambda: servers)
    if backend == "late_interaction":
        told = f"late interaction: {problem}" if problem else f"{LATE_INTERACTION}; no server is needed"
        return told, OTHER_EMBEDDER_ADVICE if problem else ""
    if backend in SERVER_RERANKERS:
        then = "are left out" if config.rerank.on_error == "drop" else f"count {config.rerank.neutral_unit:g}, flagged"
        told = f"{problem}; candidates {then}" if problem else f"{model or settings.llm_model or backend} ({backend})"
    elif problem:  # one of an extension, whose other requirements are unknown
        told = f"{backend}, which does not load"
    else:
        origin = RERANKERS.origin(backend)
        told = backend + (f" of {origin}" if origin else "")
    return told, OTHER_RERANKER_ADVICE if problem else ""


def cannot_rerank(settings: Settings, config: PipelineConfig, answers: Callable[[], Answers]) -> str | None:
    """Why nothing can score pairs for this config now; None if the named model or a fallback can. `answers` is called
    only if a server must be probed."""
    backend, asked = config.rerank.backend, config.rerank.model or settings.cross_encoder
    if backend == "none":
        return None
    if backend == "late_interaction":
        return NO_TOKENS if settings.served_embedder is not None else None
    if backend == "cross_encoder":
        return None if _instead(settings, asked) or _found(asked) else f"the cross-encoder {asked} is not here"
    if backend in SERVER_RERANKERS:
        missing = _missing(settings, config, answers())
        return f"{backend}: {missing}" if missing else None
    from cems_workbench.pipeline.rerankers import RERANKERS

    return None if backend in RERANKERS else f"the reranker {backend} does not load"


def extensions_check() -> list[Check]:
    """Extensions of other packages, and those that fail to load; empty without any."""
    from cems_workbench.evaluation.metrics import MEASURES
    from cems_workbench.formats import FORMATS
    from cems_workbench.pipeline.fusion_methods import FUSION_METHODS
    from cems_workbench.pipeline.rerankers import RERANKERS
    from cems_workbench.pipeline.retrievers import RETRIEVERS
    from cems_workbench.sources.address import SOURCE_KINDS

    registries: tuple[tuple[str, extensions.Registry[Any]], ...] = (
        ("format", FORMATS),
        ("retriever", RETRIEVERS),
        ("fusion method", FUSION_METHODS),
        ("measure", MEASURES),
        ("reranker", RERANKERS),
        ("source", SOURCE_KINDS),
    )
    added = [f"{kind} {name} of {origin}" for kind, registry in registries for name, origin in registry.origins.items()]
    views = [("view", f"{extensions.VIEWS}.{at}") for at in extensions.VIEWS_OF]
    for kind, group in (("command", extensions.COMMANDS), ("tool", extensions.TOOLS), *views):
        added += [f"{kind} {name} of {origin}" for name, origin in extensions.strangers(group).items()]
    problems = extensions.problems()
    if not added and not problems:
        return []
    finding = "; ".join([*added, *problems])
    return [_check("extensions", finding, BROKEN_EXTENSION_ADVICE if problems else "")]


def _missing(settings: Settings, config: PipelineConfig, servers: Answers) -> str | None:
    """Why the reranker server of this config cannot score; None if it can."""
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
    """The cross-encoder of the settings: whether it is found, its fallback, and how to get it."""
    asked = settings.cross_encoder
    if found := _found(asked):
        return Check("cross-encoder", "ok", found)
    needed = is_set(settings, "cross_encoder") or "cross_encoder" in (config.rerank.backend, config.judge.backend)
    instead = _instead(settings, asked) or "nothing"
    finding = f"{asked}: no such folder, not in the local cache, no model hub; {instead} is used instead"
    return Check("cross-encoder", "warning" if needed else "optional", finding, BETTER_RERANKER_ADVICE)


def judge_check(settings: Settings, config: PipelineConfig) -> Check:
    """The model that judges the results; `auto` is resolved."""
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
    finding = f"{means}{instead or 'nothing, and no result is judged'}, instead of the cross-encoder {asked}"
    return Check("judge", status, finding, BETTER_RERANKER_ADVICE)


def _found(asked: str) -> str | None:
    """Description of the cross-encoder if its weights are here or can be downloaded; nothing is loaded."""
    if asked == MODEL_ID and available():
        return f"{MODEL_ID} (packaged with the workbench)"
    found = locate(asked)
    return found.line if found else None


def _instead(settings: Settings, asked: str) -> str | None:
    """The fallback of a missing cross-encoder; None if there is none."""
    if available():
        return f"the packaged {MODEL_ID}"
    if settings.served_embedder is not None:
        return None
    also = "" if asked == MODEL_ID else f" ({MODEL_ID} is not in this checkout)"
    return f"{LATE_INTERACTION}{also}"


PACKAGES = ("streamlit", "duckdb", "chromadb", "bm25s", "onnxruntime")
EXTRAS: Mapping[str, str] = {
    "sentence-transformers": "torch",
    "torch": "torch",
    "psycopg": "postgres",
    "qdrant-client": "qdrant",
    "lancedb": "lancedb",
    "faiss-cpu": "faiss",
}
"""Optional packages by the extra that installs each."""
MAX_MODELS = 8
WITHOUT_LLM = (
    "without one, intent is read from the query's words, and expansion is feedback from its first lexical hits"
)


def diagnose(settings: Settings, config: PipelineConfig | None = None, *, deep: bool = False) -> list[Check]:
    """Run every check. Components that `config` uses are required (default: the preset of the settings). `deep` reads
    everything in the store."""
    config = config or preset(default_preset(settings.preset)[0]).config
    with ExitStack() as stack:
        store = _opened(settings)
        if not isinstance(store, Check):
            stack.enter_context(store)
            settings = for_store(settings, store)
        answers = ask_all(
            settings.llama_server_url,
            settings.ollama_url,
            settings.llm_url,
            settings.llm_key,
            settings.chroma_url,
            openai_embedder(settings, SERVER_TIMEOUT_S, tries=1) if _server(settings) == "openai" else None,
        )
        packages, on_device, computed = _packages(), _device(settings, config), processor_check(settings)
        cross_encoder, judge = cross_encoder_check(settings, config), judge_check(settings, config)
        stored = [store] if isinstance(store, Check) else _store(settings, store, answers, deep)
        if not isinstance(store, Check) and (lacking := store_status.missing_data(config, store)):
            stored.append(Check("data", "optional", f"for {config.name}: {'; '.join(lacking)}"))
    servers = answers()
    said, advice = _reranker(settings, config, servers)
    return [
        packages,
        _embedder(settings, servers),
        on_device,
        computed,
        _check("reranker", f"{config.name} reranks with {said}", advice),
        cross_encoder,
        judge,
        _llama_server(settings, config, servers),
        _ollama(settings, config, servers),
        _llm(settings, config, servers),
        *_chroma(settings, servers),
        *stored,
        *extensions_check(),
    ]


def _packages() -> Check:
    found, missing = [], []
    for name in (*PACKAGES, *EXTRAS):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if needed := [name for name in missing if name in PACKAGES]:
        return Check("packages", "failed", f"missing: {', '.join(needed)}", "run make setup")
    finding = f"Python {platform.python_version()}, {', '.join(found)}"
    if not missing:
        return Check("packages", "ok", finding)
    wanted = ",".join(dict.fromkeys(EXTRAS[name] for name in missing))
    advice = f"pip install 'cems-workbench[{wanted}]' if you need them"
    return Check("packages", "optional", f"{finding}; without {', '.join(missing)}", advice)


def _embedder(settings: Settings, servers: Answers) -> Check:
    """The embedder; one on a server has no fallback: other vectors would not fit those of the store."""
    if settings.served_embedder is None:
        resolved = resolve(settings.embedder)
        advice = "set CEMS_WORKBENCH_EMBEDDER to a folder with the weights" if resolved.fallback else ""
        return _check("embedder", resolved.line, advice)
    server, model = settings.served_embedder
    finding, advice = (_ollama_embedder if server == "ollama" else _openai_embedder)(settings, model, servers)
    if advice:
        return Check("embedder", "failed", finding, advice)
    return Check("embedder", "ok", f"{finding}; late interaction needs an embedder loaded here")


def _ollama_embedder(settings: Settings, model: str, servers: Answers) -> tuple[str, str]:
    """What is found, and what to do unless it embeds."""
    had = servers.ollama
    if not model:
        return "CEMS_WORKBENCH_EMBEDDER names no model after ollama:", OTHER_EMBEDDER_ADVICE
    if isinstance(had, ModelError):
        return f"{model} on Ollama: {had}", f"ollama serve, or {OTHER_EMBEDDER_ADVICE}"
    if not among(model, had):
        return f"{model} on Ollama: not there, the server has {_some(had)}", f"ollama pull {model}"
    return f"{model} on Ollama at {server_name(settings.ollama_url)}", ""


def _openai_embedder(settings: Settings, model: str, servers: Answers) -> tuple[str, str]:
    """The same on an OpenAI-compatible server, probed with one text."""
    said, url = servers.embedding, settings.embedding_url
    if isinstance(said, ModelError) or said is None:
        names = "CEMS_WORKBENCH_EMBEDDING_URL, the model and CEMS_WORKBENCH_EMBEDDING_KEY"
        return f"{model}: {said}" if url else f"{said}", f"check {names}, or {OTHER_EMBEDDER_ADVICE}"
    return f"{model} at {server_name(url or '')}: {said}", ""


def _device(settings: Settings, config: PipelineConfig) -> Check:
    """Where local models run, and whether they rank there as on the processor, which is computed for a device."""
    name, processor = "device", "local models run on the processor"
    try:
        device = chosen(settings.device)
    except ModelError as error:
        return Check(name, "failed", str(error))
    if device == "cpu":
        if settings.device == "cpu" or (here := driver()) is None:
            return Check(name, "ok", processor)
        return Check(name, "optional", f"{processor}: {unavailable(here)}")
    from cems_workbench.jobs.device_match import compared

    judged = config.rerank.backend, config.judge.backend
    asked = settings.cross_encoder if "cross_encoder" in judged or "auto" in judged else None
    try:
        found = compared(None if settings.served_embedder else settings.embedder, asked, device)
    except ModelError as error:
        return Check(name, "warning", f"{NAMES[device]} was not compared with the processor: {error}")
    advice = "" if all(one.same for one in found) else "set CEMS_WORKBENCH_DEVICE to cpu"
    lines = [f"{describe(device)}; models in 8 bits run on the processor", *map(str, found)]
    return _check(name, "; ".join(lines), advice)


def processor_check(settings: Settings) -> Check:
    """Whether the packaged models give here what is recorded of them."""
    name, agreements = "processor", dict[str, Agreement | None]()
    try:
        if available():
            agreements[MODEL_ID] = MiniLMJudge().agreement
        if settings.served_embedder is None and isinstance(embeds := embedder(settings), MiniLMEmbedder):
            agreements[embeds.resolved.model_id] = embeds.agreement
    except ModelError as error:
        return Check(name, "warning", f"the packaged models were not compared with what is recorded of them: {error}")
    findings = [f"{model}: {agreement}" for model, agreement in agreements.items()]
    off = any(agreement and agreement.inexact for agreement in agreements.values())
    advice = "scores and vectors of other machines differ from those made here: label and compare on one machine"
    return _check(name, "; ".join(findings) or "no packaged model is in use", advice if off else "")


def _server(settings: Settings) -> str | None:
    return settings.served_embedder[0] if settings.served_embedder else None


def _llama_server(settings: Settings, config: PipelineConfig, servers: Answers) -> Check:
    said = servers.llama_server
    if not isinstance(said, ModelError):
        return Check("llama.cpp server", "ok", said)
    needed = is_set(settings, "llama_server_url") or "llama_server" in (config.rerank.backend, config.judge.backend)
    start = "llama-server -m MODEL.gguf, and CEMS_WORKBENCH_LLAMA_SERVER_URL if it is elsewhere"
    return _absent("llama.cpp server", needed, str(said), _presets("llama_server"), start)


def _ollama(settings: Settings, config: PipelineConfig, servers: Answers) -> Check:
    had = servers.ollama
    asked = {preset(name).config.rerank.model: f"preset {name}" for name in reversed(_presets("ollama"))}
    needed = {config.rerank.model} if config.rerank.backend == "ollama" else set()
    if not settings.llm_url and settings.llm_model:
        asked[settings.llm_model] = "CEMS_WORKBENCH_LLM_MODEL"
        needed.add(settings.llm_model)
    if config.rerank.backend == "ollama":
        asked[config.rerank.model] = config.name
    if isinstance(had, ModelError):
        start = "ollama serve, and CEMS_WORKBENCH_OLLAMA_URL if it is elsewhere"
        return _absent("Ollama", bool(needed) or is_set(settings, "ollama_url"), str(had), _presets("ollama"), start)
    lacking = [model for model in asked if model and not among(model, had)]
    lines = [f"Ollama at {server_name(settings.ollama_url)} has {_some(had)}"]
    lines += [f"{model} ({asked[model]}) is {'not ' * (model in lacking)}among them" for model in asked if model]
    status: Status = "warning" if needed & set(lacking) else "ok"
    return Check("Ollama", status, "; ".join(lines), "; ".join(f"ollama pull {model}" for model in lacking))


def _llm(settings: Settings, config: PipelineConfig, servers: Answers) -> Check:
    model = settings.llm_model
    if not model:
        half = " for CEMS_WORKBENCH_LLM_URL" if settings.llm_url else ""
        asks = settings.llm_url or "llm" in (config.expansion.backend, config.rerank.backend)
        finding = f"no chat model is configured{half}; {WITHOUT_LLM}"
        advice = "set CEMS_WORKBENCH_LLM_MODEL to a model of Ollama, or of the server at CEMS_WORKBENCH_LLM_URL"
        return Check("LLM", "warning" if asks else "optional", finding, advice)
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
    advice = "start one, 1.0 or newer, or unset CEMS_WORKBENCH_CHROMA_URL: searches do not need it"
    return [Check("Chroma server", "failed", str(servers.chroma), advice)]


def _opened(settings: Settings) -> Store | Check:
    from cems_workbench.store import Store

    try:
        return Store.open(settings.store, create=False, chroma_url=settings.chroma_url, team=settings.team)
    except StoreLockedError as error:
        return Check("store", "warning", str(error), "close the app, or name another --store")
    except StoreError as error:
        there = Store.exists(settings.store)
        advice = "doctor --recover-to NEW_STORE" if there else "import something, or name another --store"
        return Check("store", "failed", str(error), advice)


def _store(settings: Settings, store: Store, answers: Callable[[], Answers], deep: bool) -> list[Check]:
    """Content, indexes, embedder and sources of the store; sources are probed in parallel with the other checks."""
    server = _server(settings)
    away = server is not None and isinstance(getattr(answers(), EMBEDDER_SERVERS[server]), ModelError)
    asked = store_status.ask_sources(store, None if away else embedder(settings))
    where = f"{settings.store}" + (f", Chroma at {_place(settings.chroma_url)}" if settings.chroma_url else "")
    count = store.memories.count()
    checks = [
        _check("store", f"{where}: {count} memories", "" if count else "import something"),
        _labels(store),
        *([_database(store)] if deep else []),
        _chunks(store),
        Check("searched text", "ok", str(store.texts.rule)),
        Check("language", "ok", str(store.language.choice())),
    ]
    full_text = store.indexes.full_text_state(deep)
    for state in [
        *store.indexes.states(_embedder_id(settings, answers), deep),
        *([full_text] if full_text.fresh or full_text.damaged else []),
    ]:
        note = f"damaged: {state.note}" if state.damaged else state.note or f"content version {state.version}"
        advice = "" if state.fresh else "it is rebuilt at the next search" + ", or by doctor --repair" * state.damaged
        checks.append(_check(f"index {state.name}", f"{state.rows} rows, {note}", advice))
    if (made_by := _embedder_id(settings, answers)) is not None and count:
        checks.append(_chroma_collection(store, made_by, deep))
    checks += [] if away else _embedder_match(settings, store)
    return checks + source_checks(asked(), datetime.now(UTC))


def _chroma_collection(store: Store, embedder_id: str, deep: bool) -> Check:
    """The store's Chroma collection, which only `deep` opens: it compares every record with the store."""
    state = store.indexes.chroma_state(embedder_id)
    status: Status = "warning" if state.problem else "optional" if state.advice else "ok"
    if not deep or state.records is None:
        return Check("Chroma collection", status, state.finding, state.advice)
    try:
        total, wrong = store.indexes.compare_chroma(embedder_id)
    except StoreError as error:
        return Check("Chroma collection", "warning", str(error), state.advice or "reindex --chroma writes it again")
    said = "; ".join(wrong) or "ids, texts, vectors and metadata are the store's"
    advice = state.advice or ("reindex --chroma writes it again" if wrong else "")
    finding = f"{state.finding}; {total:,} compared: {said}"
    return Check("Chroma collection", "warning" if wrong else status, finding, advice)


def _labels(store: Store) -> Check:
    try:
        state, lines = store.team.state(), store_status.team_status(store)
        judged = f"{len(store.queries.read())} queries, {len(store.judgments.read())} judgments"
    except WorkbenchError as error:
        advice = "start it, or check CEMS_WORKBENCH_TEAM; without that the labels are the store's own"
        return Check("labels", "failed", str(error), advice)
    return Check("labels", "warning" if lines else "ok", "; ".join([f"{judged}, {state.line}", *lines]))


def source_checks(found: Sequence[store_status.SourceStatus], now: datetime) -> list[Check]:
    """A check for each source of a store. An unavailable source, or an incomplete snapshot, is a warning: the snapshot can be used."""
    checks = []
    for each in found:
        checks.append(_source(each, now))
        if each.origins is not None and each.mismatched:  # vectors that are not of their texts
            name, finding = f"vectors of {each.record.address}", "; ".join(each.mismatched)
            checks.append(Check(name, "warning", finding, EMBED_ANEW, each.origins.to_json()))
    return checks


def _source(found: store_status.SourceStatus, now: datetime) -> Check:
    record, advice = found.record, []
    if found.probe is None:
        live = "://" in record.address
        check = "start it, or check address, password and rights" if live else "check path and rights"
        advice.append(f"{check}; only connect, lists.answered_by=source and lists.source_hybrid ask it")
    if not record.complete or found.difference:
        advice.append(f"connect {record.address}, which takes what changed")
    if record.dimension is not None and record.model_id is None:
        advice.append(f"{candidates(record.dimension)}; name its embedder: {naming(record.address)}")
    elif found.other_embedder:
        advice.append(f"set CEMS_WORKBENCH_EMBEDDER to {record.embedder}")
    elif found.match is not None and found.match.likely:
        maybe = "another text than those tried may have been embedded"
        advice.append(f"{maybe}; if it was another model: {naming(record.address)}")
    elif found.contradicted:
        advice.append(f"if it is another model, name it: {naming(record.address)}")
    reached = found.problem if found.probe is None else f"{found.probe.engine} answers"
    finding = f"{reached}; {found.rows}; snapshot {store_status.snapshot_line(record, now)}; {found.embedder}"
    return _check(f"source {record.address}", finding, "; ".join(advice))


def _embedder_match(settings: Settings, store: Store) -> list[Check]:
    """Whether the store's vectors are of this embedder. Texts are re-embedded if a name is no proof: on a server, or
    stated by the user. Vectors from a source are covered by the check of that source."""
    name, embeds = "embedder match", embedder(settings)

    def matched() -> EmbedderMatch:
        store.indexes.check(embeds.model_id, embeds.dimension)
        return match_store(store, embeds)

    try:
        store.indexes.check(embeds.model_id, None)
        proven = _server(settings) is None and not settings.embedding_same_as
        if proven or store.sources.with_memories():
            return []
        found = run_in_thread(matched).result(store_status.MATCH_TIMEOUT_S)
    except (EmbedderMismatchError, StoreError) as refusal:
        return [Check(name, "failed", str(refusal))]
    except ModelError as failure:
        return [Check(name, "warning", f"the store's vectors were not compared: {failure}")]
    except TimeoutError:
        said = (
            f"the store's vectors were not compared: the embedder took longer than {store_status.MATCH_TIMEOUT_S:g} s"
        )
        return [Check(name, "warning", said)]
    advice = "" if found.same or not found.asked else f"they are of another model or setting; {ANEW}"
    return [_check(name, str(found), advice)]


def _database(store: Store) -> Check:
    damaged = store.unreadable()
    if not damaged:
        return Check("database", "ok", "every row of every table can be read")
    finding = "; ".join(f"table {table} cannot be read whole: {reason}" for table, reason in damaged.items())
    advice = "doctor --recover-to NEW_STORE writes every row that can be read into a new store"
    return Check("database", "failed", finding, advice)


def _chunks(store: Store) -> Check:
    from cems_workbench.store.chunks import MAX_UNSPLIT_CHARS

    cut = store.chunks.statistics()
    long = store.memories.statistics().longest
    if cut.rule == "whole" and long > MAX_UNSPLIT_CHARS:
        said = f"{cut}; the longest is {long} characters, and what is past the embedder's limit is not read"
        return Check("chunks", "warning", said, "import with --chunks embedder to cut long memories")
    return Check("chunks", "ok", str(cut).removeprefix("chunks: "))


def _embedder_id(settings: Settings, answers: Callable[[], Answers]) -> str | None:
    """The embedder id of the vectors; None, for any known one, if a server does not name it."""
    if _server(settings) == "ollama" and isinstance(answers().ollama, ModelError):
        return None
    try:
        return embedder(settings).model_id
    except ModelError:
        return None


def _absent(name: str, needed: bool, said: str, presets: Sequence[str], command: str) -> Check:
    """A server that does not answer: a warning if it is needed, otherwise a remark."""
    if needed:
        return Check(name, "warning", said, command)
    use = f"; only {', '.join(presets)} would ask it" if presets else ""
    return Check(name, "optional", f"{said}{use}", f"to have it: {command}")


def _presets(backend: str) -> list[str]:
    return [name for name in preset_names() if preset(name).config.rerank.backend == backend]


def _some(had: Sequence[str]) -> str:
    more = f" and {len(had) - MAX_MODELS} more" if len(had) > MAX_MODELS else ""
    return f"{len(had)} models: {', '.join(had[:MAX_MODELS])}{more}" if had else "no models"


def _place(url: str) -> str:
    """Host and port of a URL without credentials, also of an invalid one."""
    try:
        return server_name(url)
    except ModelError as error:
        return str(error)
