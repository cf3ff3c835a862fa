"""The model that scores pairs for a config, and what takes its place when it cannot be had.

A cross-encoder whose weights are nowhere to be found, or do not load, gives way to the packaged one, workbench/minilm-judge, and
that to late interaction in a checkout without it; the trace says so, and why. A server that does not answer is not replaced: its
candidates are flagged, one by one.

Which part of a memory a reranker reads.

`seed_overlap` follows the CEMS plan to the letter: split on ". ", a query term counts when it is a *substring* of the
sentence, a chunk closes once it is longer than `size` characters and is cut there, the first best wins, none -> the head.
`term_overlap` counts stemmed words without stopwords, keeps sentences whole, and windows a sentence that is longer than
`size` around its matches. `head` is the beginning.

Source: CEMS plan, `select_best_chunk`; PIPELINE.md, "rerank".

Scores that a config needs and the evidence lacks: found by replaying, fetched from the cache or the model.

Every score is cached in the store by model, query and exact text as soon as it is there, a batch at a time, so that a
cancelled run continues where it stopped. Failures are never cached.

The judge's scores: a relevance judgment of each result, fetched beside the ranking and never part of it.

`auto` takes the cross-encoder: the one of the settings, else, without a word, the packaged one. A judgment is of the first
`max_chars` characters of a memory against the query as it was searched.

Source: ACE, cross-encoder relevance threshold; PIPELINE.md, "judge".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from cems_workbench.config import PipelineConfig
from cems_workbench.config.sections.ranking import RerankConfig
from cems_workbench.errors import ModelError
from cems_workbench.models.chat import Chat
from cems_workbench.models.cross_encoder import CrossEncoderReranker
from cems_workbench.models.late_interaction import LateInteraction
from cems_workbench.models.llama_server import LlamaServerReranker
from cems_workbench.models.llm_reranker import LlmReranker
from cems_workbench.models.minilm_judge import MODEL_ID, MiniLMJudge
from cems_workbench.models.ollama import OllamaReranker
from cems_workbench.models.protocol import PairScore, PairScorer
from cems_workbench.models.resolve import locate
from cems_workbench.pipeline.evidence import Evidence, ModelScore
from cems_workbench.pipeline.replay import replay
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.pipeline.trace import Trace
from cems_workbench.pipeline.understanding import chat, revision
from cems_workbench.progress import Progress, silent
from cems_workbench.store.search.tokenizer import tokenize

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
        breaker=resources.breaker,
    )  # fmt: skip


def _ollama(model: str | None, config: RerankConfig, resources: Resources) -> PairScorer:
    if model is None:
        raise ModelError("rerank.model: the backend ollama needs the name of a model that the server has")
    return OllamaReranker(
        resources.servers.ollama_url, model, None, config.timeout_s, config.max_concurrent,
        revision=revision(resources, model), breaker=resources.breaker,
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


_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_WORDS = re.compile(r"\S+")


def best_chunk(content: str, query: str, size: int, selection: str) -> str:
    """The part of `content`, at most `size` characters, that a reranker is given."""
    if selection == "seed_overlap":
        return seed_overlap(content, query, size)
    if selection == "term_overlap":
        return term_overlap(content, query, size)
    return content[:size]


def seed_overlap(content: str, query: str, size: int) -> str:
    """The chunk with the most query terms, each counted once per sentence that contains it."""
    terms = set(query.lower().split())
    best, best_score = "", 0
    chunk, score = "", 0
    for sentence in content.split(". "):
        lowered = sentence.lower()
        chunk += sentence + ". "
        score += sum(term in lowered for term in terms)
        if len(chunk) > size:
            if score > best_score:
                best, best_score = chunk[:size], score
            chunk, score = "", 0
    if score > best_score:
        best = chunk[:size]
    return best or content[:size]


def term_overlap(content: str, query: str, size: int) -> str:
    """The run of whole sentences, at most `size` characters, that covers most distinct query words; first one wins."""
    terms = set(tokenize(query))
    pieces = [piece for sentence in _sentences(content) for piece in _fit(content, sentence, terms, size)]
    matches = [terms & set(tokenize(content[start:end])) for start, end in pieces]
    best, best_score = (0, min(size, len(content))), 0
    for i, (start, _) in enumerate(pieces):
        found: set[str] = set()
        for j in range(i, len(pieces)):
            if pieces[j][1] - start > size:
                break
            found |= matches[j]
            if len(found) > best_score:
                best, best_score = (start, pieces[j][1]), len(found)
    return content[best[0] : best[1]]


def _sentences(content: str) -> list[tuple[int, int]]:
    edges = [0, *(edge for found in _SENTENCE.finditer(content) for edge in found.span()), len(content)]
    return [(edges[i], edges[i + 1]) for i in range(0, len(edges), 2) if edges[i] < edges[i + 1]]


def _fit(content: str, sentence: tuple[int, int], terms: set[str], size: int) -> list[tuple[int, int]]:
    """The sentence itself, or, when it is longer than `size`, the window of it that starts just before its first match."""
    start, end = sentence
    if end - start <= size:
        return [sentence]
    words = list(_WORDS.finditer(content, start, end))
    hits = [word.start() for word in words if terms & set(tokenize(word.group()))]
    if not hits:
        return [(start, start + size)]
    most = max(hits, key=lambda at: (sum(at <= other < at + size for other in hits), -at))
    covered = [word.end() for word in words if most <= word.start() and word.end() <= most + size]
    slack = max(0, size - ((max(covered) if covered else most + size) - most)) // 2
    left = max(start, most - slack)
    return [(left, min(end, left + size))]


def score_missing(
    evidence: Evidence, config: PipelineConfig, resources: Resources, progress: Progress = silent, *,
    cached_only: bool = False, switched_off: Collection[int] = (),
) -> Evidence:  # fmt: skip
    """The evidence with the scores added that this config's rerank head still needs; the same one when none is missing.

    `cached_only` asks no model: what the cache does not hold stays unscored. `switched_off` as in `replay`.
    """
    if config.rerank.backend == "none":
        return evidence
    missing = [
        key for need in replay(evidence, config, switched_off=switched_off).stage_needs for key in need["memory_ids"]
    ]
    if not missing:
        return evidence
    query = config.rerank.query or evidence.searched
    chunks = {
        key: best_chunk(evidence.memories[key].content, query, config.rerank.chunk_chars, config.rerank.chunk_selection)
        for key in missing
    }
    warnings: list[str] = []
    label: str = config.rerank.backend

    def scored(scorer: PairScorer) -> dict[str, ModelScore]:
        nonlocal label
        label = scorer.label
        return cached_or_scored(scorer, query, chunks, resources, progress, cached_only)

    try:
        _, instead, scores = asked(
            config.rerank.backend, config.rerank.model, config.rerank, resources, scored, progress
        )
        warnings += [instead] if instead else []
    except ModelError as error:
        scores = {} if cached_only else {key: ModelScore(None, chunk, str(error)) for key, chunk in chunks.items()}
    key = model_key(config.rerank)
    merged = {**evidence.model_scores, key: {**evidence.model_scores.get(key, {}), **scores}}
    cut = sum(bool(score.detail and score.detail.get("truncated")) for score in scores.values())
    if cut:
        warnings.append(f"{cut} texts are longer than the model reads; their ends were cut off")
    cached = sum(bool(score.detail and score.detail.get("cached")) for score in scores.values())
    counts = {"scored": len(scores) - cached, "cached": cached}
    notes = with_warnings(evidence.notes, "rerank", warnings)
    notes |= {"models": {**notes.get("models", {}), "reranker": label}, "rerank_scores": counts}
    notes |= {"rerankers": {**notes.get("rerankers", {}), key: label}}  # of every config tried on this evidence
    return replace(evidence, model_scores=merged, notes=notes)


def with_warnings(notes: Mapping[str, Any], stage: str, said: Sequence[str]) -> dict[str, Any]:
    """The notes with these lines among a stage's warnings, each once."""
    warnings = notes.get("warnings", {})
    lines = list(dict.fromkeys([*warnings.get(stage, ()), *said]))
    return {**notes, "warnings": {**warnings, stage: lines}} if lines else dict(notes)


def cached_or_scored(
    scorer: PairScorer, query: str, chunks: Mapping[str, str], resources: Resources, progress: Progress,
    cached_only: bool = False,
) -> dict[str, ModelScore]:  # fmt: skip
    """The score of each chunk, from the cache where it holds one; what was scored is in the cache a batch at a time."""
    name = scorer.cache_model(query)
    texts = list(dict.fromkeys(chunks.values()))
    known = _cached(texts, name, query, resources)
    if cached_only:
        return {key: _score(chunk, known[chunk], cached=True) for key, chunk in chunks.items() if chunk in known}
    todo = [text for text in texts if text not in known]
    fresh: dict[str, PairScore] = {}
    for start in range(0, len(todo), scorer.batch):
        batch = todo[start : start + scorer.batch]
        with resources.scoring:
            known |= _cached(batch, name, query, resources)  # another run may have scored them meanwhile
            rest = [text for text in batch if text not in known]
            found = dict(zip(rest, scorer.score(query, rest), strict=True)) if rest else {}
            resources.store.scores.write(name, query, list(found.items()))
        fresh |= found
        if found and all((score.error or "").startswith("refused") for score in found.values()):
            fresh |= dict.fromkeys(todo[start + scorer.batch :], next(iter(found.values())))  # nobody is there
            break
        progress("reranking", min(start + scorer.batch, len(todo)), len(todo))
    return {
        key: _score(chunk, fresh[chunk]) if chunk in fresh else _score(chunk, known[chunk], cached=True)
        for key, chunk in chunks.items()
    }


def _cached(texts: Sequence[str], name: str, query: str, resources: Resources) -> dict[str, PairScore]:
    found = resources.store.scores.read(name, query, texts)
    return {text: score for text, score in zip(texts, found, strict=True) if score is not None}


def _score(chunk: str, pair: PairScore, *, cached: bool = False) -> ModelScore:
    """A pair's score as evidence, marked when it came out of the cache."""
    detail = {**(pair.detail or {}), **({"cached": True} if cached else {})}
    return ModelScore(pair.raw, chunk, pair.error, detail or None)


def without_failures(evidence: Evidence, key: str) -> Evidence:
    """The evidence without the failed scores of `model_scores[key]`, so that `score_missing` asks for them again."""
    good = {memory_id: score for memory_id, score in evidence.model_scores.get(key, {}).items() if score.good}
    return replace(evidence, model_scores={**evidence.model_scores, key: good})


def judge_missing(
    evidence: Evidence, config: PipelineConfig, resources: Resources, progress: Progress = silent, *,
    switched_off: Collection[int] = (),
) -> Evidence:  # fmt: skip
    """The evidence with a judgment of every result of this config; the same one when none is missing.

    `switched_off` are the query variants left out, as in `replay`: they decide what the results are.
    """
    if config.judge.backend == "none":
        return evidence
    texts = {
        result["memory_id"]: evidence.memories[result["memory_id"]].content[: config.judge.max_chars]
        for result in replay(evidence, config, switched_off=switched_off).results
    }

    def judged(model: PairScorer) -> tuple[dict[str, ModelScore], dict[str, Any]]:
        known = evidence.judge_scores.get(_name(config, model), {})
        missing = {key: text for key, text in texts.items() if key not in known or known[key].chunk != text}
        if not missing:
            return {}, {}
        return {**known, **cached_or_scored(model, evidence.searched, missing, resources, progress)}, _about(model)

    backend = "cross_encoder" if config.judge.backend == "auto" else config.judge.backend
    try:
        model, said, (scores, about) = asked(backend, config.judge.model, config.rerank, resources, judged, progress)
    except ModelError as error:
        return replace(evidence, notes=with_warnings(evidence.notes, "judge", [str(error)]))
    if not about:
        return evidence
    name = _name(config, model)
    notes = with_warnings(evidence.notes, "judge", [said] if said and not as_meant(config, model, resources) else [])
    notes |= {"models": {**notes.get("models", {}), "judge": model.label}}
    notes |= {"judges": {**notes.get("judges", {}), name: about}}  # of every config tried on this evidence
    return replace(evidence, judge_scores={**evidence.judge_scores, name: scores}, notes=notes)


def _about(model: PairScorer) -> dict[str, Any]:
    """What judged, and how its scores are read where that was fitted."""
    scale = model.scale
    read = {} if scale is None else {"threshold": scale.threshold, "bands": list(scale.bands)}
    return {"label": model.label, **read}


def all_judged(trace: Trace) -> bool:
    """Has every result a judgment, or a failure, of the text that this config gives the judge to read?"""
    name = trace.stage("judge").fields["model"]
    known = trace.evidence.judge_scores.get(name, {})
    length = trace.config.judge.max_chars
    return all(
        memory_id in known and known[memory_id].chunk == trace.evidence.memories[memory_id].content[:length]
        for memory_id in (result["memory_id"] for result in trace.results)
    )


def _name(config: PipelineConfig, model: PairScorer) -> str:
    """The key of its scores in the evidence."""
    if config.judge.model or config.judge.backend != "auto":
        return config.judge.model or config.judge.backend
    return "late_interaction" if isinstance(model, LateInteraction) else "cross_encoder"


def as_meant(config: PipelineConfig, model: PairScorer, resources: Resources) -> bool:
    """`auto` takes the packaged cross-encoder where there is no other; weights that are there and do not load are said."""
    wanted = config.judge.model or resources.servers.cross_encoder
    return config.judge.backend == "auto" and isinstance(model, MiniLMJudge) and locate(wanted) is None
