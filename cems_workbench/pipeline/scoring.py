"""Missing scores: those that a config needs and the evidence lacks, determined by replay, from the cache or the model.

Scores are cached in the store by model, query and exact text, a batch at a time, so that a cancelled job resumes where it stopped.
Failures are never cached.

The judge's scores are a relevance judgment of each result and no part of the ranking. The judge reads the text that the reranker reads, or
the first `judge.max_chars` characters of a memory, and the query as searched. Its backend `auto` is the configured cross-encoder, or,
without a warning, the packaged one.

Source: ACE, cross-encoder relevance threshold; docs/internals/specification.md, "rerank" and "judge".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import ModelError
from cems_workbench.models.late_interaction import LateInteraction
from cems_workbench.models.minilm_judge import MiniLMJudge
from cems_workbench.models.protocol import PairScore, PairScorer
from cems_workbench.models.resolve import locate
from cems_workbench.pipeline.chunks import as_read, question_at_end, text_for_judge, texts_for_reranker
from cems_workbench.pipeline.evidence import QUESTIONS, Evidence, ModelScore
from cems_workbench.pipeline.replay import replay
from cems_workbench.pipeline.rerankers import ScorerRequest, score_with
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import ABSTAIN, JUDGE, RERANK
from cems_workbench.pipeline.stages.rerank import FAILED, GOOD, model_key, unscored
from cems_workbench.pipeline.trace import Trace
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Chunk, Memory

RERANKING = "reranking"
"""Name of the progress while a reranker scores, after each batch; the scores of the batch are in the cache by then."""


def score_missing(
    evidence: Evidence,
    config: PipelineConfig,
    resources: Resources,
    progress: Progress = silent,
    *,
    cached_only: bool = False,
    switched_off: Collection[int] = (),
    trace: Trace | None = None,
    also: Collection[str] = (),
) -> Evidence:
    """The evidence with the scores added that this config's rerank head still needs; the same one when none is missing.

    `also` are candidates that are scored too, whether or not they are in the head.

    `cached_only` calls no model: candidates outside the cache stay unscored. `switched_off` as in `replay`. A caller with a trace of this
    evidence under this config, with the same or fewer scores of the reranker, passes `trace` to save a replay.
    """
    if RERANK.is_off(config) or evidence.external:
        return evidence
    trace = trace if trace is not None else replay(evidence, config, switched_off=switched_off)
    there = evidence.model_scores.get(model_key(config.rerank), {})

    def missing(scores: Mapping[str, ModelScore]) -> list[str]:
        return list(dict.fromkeys([*_wanted(trace, scores), *(key for key in also if key not in scores)]))

    if not missing(there):
        return evidence
    health = trace.stage(RERANK).fields.health
    most = 0 if health is None else health.head
    query = config.rerank.query or evidence.corrected
    evidence = with_questions(evidence, config, resources)
    given = given_chunks(evidence, config)
    warnings: list[str] = []
    # Without a reachable model the configured name is all there is to report.
    label: str = config.rerank.backend

    def scored(scorer: PairScorer) -> dict[str, ModelScore]:
        nonlocal label
        label = scorer.label
        found: dict[str, ModelScore] = {}
        known: dict[str, ModelScore] = {}  # passages that several memories share are scored once
        while wanted := missing({**there, **found}):
            texts = {key: texts_given(key, evidence, config, given) for key in wanted}
            fresh = {text: text for read in texts.values() for text in read if text not in known}
            reading = partial(_counted, progress, len(known), most)
            known |= cached_or_scored(scorer, query, fresh, resources, reading, cached_only)
            found |= {
                key: _best([known[text] for text in read]) for key, read in texts.items() if known.keys() >= set(read)
            }
            if not found.keys() >= texts.keys():  # what is cached ends here
                break
        return found

    try:
        request = ScorerRequest(config.rerank.model, config.rerank, resources, progress)
        _, instead, scores = score_with(config.rerank.backend, request, scored)
        warnings += [instead] if instead else []
    except ModelError as error:
        scores = {}
        # A cached-only pass leaves them missing, so that a later pass may still ask the model.
        while not cached_only and (wanted := missing({**there, **scores})):
            scores |= {
                key: ModelScore(None, texts_given(key, evidence, config, given)[0], str(error)) for key in wanted
            }
    key = model_key(config.rerank)
    merged = {**evidence.model_scores, key: {**evidence.model_scores.get(key, {}), **scores}}
    if cut := _having("truncated", scores):
        warnings.append(f"{cut} texts are longer than the model reads; their ends were cut off")
    warnings += _inexact(scores)
    cached = _having("cached", scores)
    counts = {"scored": len(scores) - cached, "cached": cached}
    notes = with_warnings(evidence.notes, "rerank", warnings)
    notes |= {"models": {**notes.get("models", {}), "reranker": label}, "rerank_scores": counts}
    notes |= {"rerankers": {**notes.get("rerankers", {}), key: label}}  # of every config tried on this evidence
    return replace(evidence, model_scores=merged, notes=notes)


def _having(mark: str, scores: Mapping[str, ModelScore]) -> int:
    """How many scores have this mark in their detail."""
    return sum(bool(score.detail and score.detail.get(mark)) for score in scores.values())


def _inexact(scores: Mapping[str, ModelScore]) -> list[str]:
    """A line if scores are of a processor that computes the packaged cross-encoder differently."""
    count = _having("inexact", scores)
    return [f"{count} scores are off: the processor computes other numbers than those recorded, see doctor"] * bool(
        count
    )


def _counted(progress: Progress, before: int, most: int, label: str, done: int, total: int) -> None:
    """Progress of a round of batches `before` which others were read; how many rounds follow is unknown, so `most` is the total."""
    progress(label, before + done, max(before + total, most))


def _wanted(trace: Trace, scores: Mapping[str, ModelScore]) -> list[str]:
    """The candidates that the reranker of a trace is to score next, if it has these scores of it."""
    ids, table = trace.table.ids[0], unscored(trace.table.shape)
    for c, memory_id in enumerate(ids):
        if (score := scores.get(memory_id)) is not None:
            table.raw[0, c], table.state[0, c] = (score.raw, GOOD) if score.good else (np.nan, FAILED)
    return [ids[c] for c in np.flatnonzero(trace.run.of(RERANK).wanted(table)[0]).tolist()]


def texts_given(
    memory_id: str, evidence: Evidence, config: PipelineConfig, given: Mapping[str, Chunk] | None = None
) -> tuple[str, ...]:
    """What this config's reranker reads of a candidate; `given` is the result of `given_chunks`, if the caller has it."""
    given = given_chunks(evidence, config) if given is None else given
    content = given[memory_id].text if memory_id in given else evidence.memories[memory_id].content
    config = as_read(config, evidence)
    question = evidence.questions.get(memory_id, "")
    return texts_for_reranker(
        content, evidence.corrected, config, evidence.language, question, evidence.memories[memory_id]
    )


def with_questions(evidence: Evidence, config: PipelineConfig, resources: Resources) -> Evidence:
    """The evidence with the questions that its candidates follow, where this config's reranker reads them; looked up once."""
    if not config.rerank.prepend_question or QUESTIONS in evidence.notes:
        return evidence
    return replace(evidence, notes={**evidence.notes, QUESTIONS: questions_of(evidence.memories.values(), resources)})


def questions_of(memories: Iterable[Memory], resources: Resources, edited: Memory | None = None) -> dict[str, str]:
    """By id the question that a memory follows in its session; absent if it follows none. `edited` as in `Memories.before`."""
    before = resources.store.memories.before(memories, edited)
    return {key: question for key, text in before.items() if (question := question_at_end(text))}


def _best(scores: Sequence[ModelScore]) -> ModelScore:
    """The highest score of a memory's passages, or its first failure; with the number of passages, if several were read."""
    best = max((score for score in scores if score.good), key=lambda score: score.raw or 0.0, default=scores[0])
    if len(scores) == 1:
        return best
    return replace(best, detail={**(best.detail or {}), "passages": sum(score.good for score in scores)})


def given_chunks(evidence: Evidence, config: PipelineConfig) -> dict[str, Chunk]:
    """By memory id the best-ranked chunk of any list, for a reranker that reads it instead of the whole memory (`rerank.text_source`).

    Of several lists with equal ranks of a memory's chunks the earlier one counts. Lists that a config has switched off count
    too, because a score serves every config. Memories that were found whole, or whose best rank is not a chunk's, are absent.
    """
    if config.rerank.text_source == "memory" or not evidence.chunks:
        return {}
    best: dict[str, tuple[int, int | None]] = {}
    for ranked in evidence.lists:
        if ranked.variant is None:
            continue
        seen: set[str] = set()
        for hit in ranked.hits:
            if hit.memory_id not in seen:
                seen.add(hit.memory_id)
                # Strictly less: of equal ranks the earlier list keeps its chunk.
                if hit.memory_id not in best or len(seen) < best[hit.memory_id][0]:
                    best[hit.memory_id] = len(seen), hit.chunk
    known = {key: {chunk.seq: chunk for chunk in chunks} for key, chunks in evidence.chunks.items()}
    return {
        key: known[key][chunk] for key, (_, chunk) in best.items() if chunk is not None and chunk in known.get(key, {})
    }


def with_warnings(notes: Mapping[str, Any], stage: str, added: Sequence[str]) -> dict[str, Any]:
    """The notes with these lines among a stage's warnings, each once."""
    warnings = notes.get("warnings", {})
    # A set would lose the order of the warnings.
    lines = list(dict.fromkeys([*warnings.get(stage, ()), *added]))
    return {**notes, "warnings": {**warnings, stage: lines}} if lines else dict(notes)


def cached_or_scored(
    scorer: PairScorer,
    query: str,
    chunks: Mapping[str, str],
    resources: Resources,
    progress: Progress,
    cached_only: bool = False,
) -> dict[str, ModelScore]:
    """The score of each chunk, from the cache if it has one; new scores are cached batch by batch."""
    name = scorer.cache_model(query)
    texts = list(dict.fromkeys(chunks.values()))
    known = _cached(texts, name, query, resources)
    if cached_only:
        return {key: _score(chunk, known[chunk], cached=True) for key, chunk in chunks.items() if chunk in known}
    todo = [text for text in texts if text not in known]
    fresh: dict[str, PairScore] = {}
    for start in range(0, len(todo), scorer.batch):
        batch = todo[start : start + scorer.batch]
        # Only a local model needs the lock; workers of a cluster score at the same time.
        with resources.scoring if resources.elsewhere is None else nullcontext():
            known |= _cached(batch, name, query, resources)  # another job may have scored them in the meantime
            rest = [text for text in batch if text not in known]
            scores = dict(zip(rest, resources.score(scorer, query, rest), strict=True)) if rest else {}
            # Written batch by batch, so that a cancelled job resumes here.
            resources.store.scores.write(name, query, list(scores.items()))
        fresh |= scores
        if scores and all((score.error or "").startswith("refused") for score in scores.values()):
            fresh |= dict.fromkeys(todo[start + scorer.batch :], next(iter(scores.values())))  # nobody is there
            break
        progress(RERANKING, min(start + scorer.batch, len(todo)), len(todo))
    return {
        key: _score(chunk, fresh[chunk]) if chunk in fresh else _score(chunk, known[chunk], cached=True)
        for key, chunk in chunks.items()
    }


def _cached(texts: Sequence[str], name: str, query: str, resources: Resources) -> dict[str, PairScore]:
    scores = resources.store.scores.read(name, query, texts)
    return {text: score for text, score in zip(texts, scores, strict=True) if score is not None}


def _score(chunk: str, pair: PairScore, *, cached: bool = False) -> ModelScore:
    """A pair's score as evidence, marked if it is from the cache."""
    detail = {**(pair.detail or {}), **({"cached": True} if cached else {})}
    return ModelScore(pair.raw, chunk, pair.error, detail or None)


def without_failures(evidence: Evidence, key: str) -> Evidence:
    """The evidence without the failed scores of `model_scores[key]`, so that `score_missing` asks for them again."""
    # A failure counts as answered; only an absent score is asked for.
    good = {memory_id: score for memory_id, score in evidence.model_scores.get(key, {}).items() if score.good}
    return replace(evidence, model_scores={**evidence.model_scores, key: good})


def judge_missing(
    evidence: Evidence,
    config: PipelineConfig,
    resources: Resources,
    progress: Progress = silent,
    *,
    switched_off: Collection[int] = (),
    trace: Trace | None = None,
) -> Evidence:
    """The evidence with a judgment of every result of this config; the same one when none is missing.

    `switched_off` are the query variants left out, as in `replay`: they decide the results. A caller with a trace of this
    evidence under this config passes `trace` to save a replay.
    """
    if JUDGE.is_off(config):
        return evidence
    trace = trace if trace is not None else replay(evidence, config, switched_off=switched_off)
    texts = judge_texts(trace)

    def judged(model: PairScorer) -> tuple[dict[str, ModelScore], dict[str, Any]]:
        known = evidence.judge_scores.get(_name(config, model), {})
        # A judgment of another passage is no judgment of this one.
        missing = {key: text for key, text in texts.items() if key not in known or known[key].chunk != text}
        if not missing:
            return {}, {}
        return {**known, **cached_or_scored(model, evidence.corrected, missing, resources, progress)}, _about(model)

    backend = "cross_encoder" if config.judge.backend == "auto" else config.judge.backend
    try:
        request = ScorerRequest(config.judge.model, config.rerank, resources, progress)
        model, instead, (scores, about) = score_with(backend, request, judged)
    except ModelError as error:
        return replace(evidence, notes=with_warnings(evidence.notes, "judge", [str(error)]))
    if not about:
        return evidence
    name = _name(config, model)
    warnings = [instead] if instead and not as_meant(config, model, resources) else []
    notes = with_warnings(evidence.notes, "judge", warnings + _inexact(scores))
    notes |= {"models": {**notes.get("models", {}), "judge": model.label}}
    notes |= {"judges": {**notes.get("judges", {}), name: about}}  # of every config tried on this evidence
    return replace(evidence, judge_scores={**evidence.judge_scores, name: scores}, notes=notes)


def _about(model: PairScorer) -> dict[str, Any]:
    """The judge, and the calibrated scale of its scores, if any."""
    scale = model.scale
    read = {} if scale is None else {"threshold": scale.threshold, "bands": list(scale.bands)}
    return {"label": model.label, **read}


def judge_texts(trace: Trace) -> dict[str, str]:
    """What the judge reads under this config, by memory id: of each result, and of the candidates that decide whether there are results.

    Of several passages of a memory it is the one with the score that counts.
    """
    evidence, config, given = trace.evidence, trace.config, given_chunks(trace.evidence, trace.config)
    reranked = evidence.model_scores.get(model_key(config.rerank), {})
    texts = {}
    for memory_id in _to_judge(trace):
        memory = evidence.memories[memory_id].content
        chunk = given[memory_id].text if memory_id in given else memory
        texts[memory_id] = text_for_judge(
            memory,
            chunk,
            evidence.corrected,
            as_read(config, evidence),
            evidence.language,
            evidence.memories[memory_id],
        )
        best = reranked[memory_id].chunk if memory_id in reranked else None
        read = texts_given(memory_id, evidence, config, given)
        # The judge rates the passage whose score placed the memory.
        if config.judge.max_chars is None and best in read:
            texts[memory_id] = best
    return texts


def _to_judge(trace: Trace) -> list[str]:
    """The results; and, if a threshold on the judge's score decides whether there are any, the candidates that it applies to."""
    ids = [result.memory_id for result in trace.results]
    if trace.config.abstain.judge is not None:
        limit = trace.config.assembly.limit or len(trace.evidence.memories)
        first = [row for row in trace.stage(ABSTAIN).rows if row.rank_in is not None and row.rank_in <= limit]
        ids = list(dict.fromkeys([*ids, *(row.memory_id for row in first)]))
    return ids


def all_judged(trace: Trace) -> bool:
    """Whether every result has a judgment, or a failure, of the text that the judge reads under this config."""
    name = trace.stage(JUDGE).fields.model
    known = trace.evidence.judge_scores.get(name, {}) if name else {}
    return all(key in known and known[key].chunk == text for key, text in judge_texts(trace).items())


def _name(config: PipelineConfig, model: PairScorer) -> str:
    """The key of its scores in the evidence."""
    if config.judge.model or config.judge.backend != "auto":
        return config.judge.model or config.judge.backend
    return "late_interaction" if isinstance(model, LateInteraction) else "cross_encoder"


def as_meant(config: PipelineConfig, model: PairScorer, resources: Resources) -> bool:
    """`auto` is the packaged cross-encoder if there is no other; weights that do not load are a warning."""
    wanted = config.judge.model or resources.servers.cross_encoder
    return config.judge.backend == "auto" and isinstance(model, MiniLMJudge) and locate(wanted) is None
