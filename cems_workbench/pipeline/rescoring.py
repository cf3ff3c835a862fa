"""Scores that a config needs and the evidence lacks: found by replaying, fetched from the cache or the model.

Every score is cached in the store by model, query and exact text as soon as it is there, a batch at a time, so that a
cancelled run continues where it stopped. Failures are never cached.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import ModelError
from cems_workbench.models.protocol import PairScore, PairScorer
from cems_workbench.pipeline.chunks import best_chunk
from cems_workbench.pipeline.evidence import Evidence, ModelScore
from cems_workbench.pipeline.replay import replay
from cems_workbench.pipeline.rerankers import asked
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.progress import Progress, silent


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
            resources.store.cache_scores(name, query, list(found.items()))
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
    found = resources.store.cached_scores(name, query, texts)
    return {text: score for text, score in zip(texts, found, strict=True) if score is not None}


def _score(chunk: str, pair: PairScore, *, cached: bool = False) -> ModelScore:
    """A pair's score as evidence, marked when it came out of the cache."""
    detail = {**(pair.detail or {}), **({"cached": True} if cached else {})}
    return ModelScore(pair.raw, chunk, pair.error, detail or None)


def without_failures(evidence: Evidence, key: str) -> Evidence:
    """The evidence without the failed scores of `model_scores[key]`, so that `score_missing` asks for them again."""
    good = {memory_id: score for memory_id, score in evidence.model_scores.get(key, {}).items() if score.good}
    return replace(evidence, model_scores={**evidence.model_scores, key: good})
