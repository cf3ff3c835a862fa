"""Scores that a config needs and the evidence lacks: found by replaying, fetched from the cache or the model.

Every score is cached in the store by model, query and exact text as soon as it is there, a batch at a time, so that a
cancelled run continues where it stopped. Failures are never cached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import ModelError
from cems_workbench.models.late_interaction import LateInteraction
from cems_workbench.pipeline.availability import CHOICES
from cems_workbench.pipeline.chunks import best_chunk
from cems_workbench.pipeline.evidence import Evidence, ModelScore
from cems_workbench.pipeline.replay import replay
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.progress import Progress, silent

BATCH = 16


def score_missing(
    evidence: Evidence, config: PipelineConfig, resources: Resources, progress: Progress = silent, *,
    cached_only: bool = False,
) -> Evidence:  # fmt: skip
    """The evidence with the scores added that this config's rerank head still needs; the same one when none is missing.

    `cached_only` asks no model: what the cache does not hold stays unscored.
    """
    if config.rerank.backend == "none":
        return evidence
    missing = [key for need in replay(evidence, config).stage_needs for key in need["memory_ids"]]
    if not missing:
        return evidence
    if config.rerank.backend not in CHOICES["rerank.backend"]:
        return evidence  # gathering has said so
    if config.rerank.model not in (None, resources.embedder.model_id):
        return evidence  # late interaction has no other model than the embedder, which gathering has said too
    query = config.rerank.query or evidence.query
    chunks = {
        key: best_chunk(evidence.memories[key].content, query, config.rerank.chunk_chars, config.rerank.chunk_selection)
        for key in missing
    }
    try:
        scores, cached = _cached_or_scored(query, chunks, resources, progress, cached_only)
    except ModelError as error:
        scores = {key: ModelScore(None, chunk, str(error)) for key, chunk in chunks.items()}
        cached = 0
    key = model_key(config.rerank)
    merged = {**evidence.model_scores, key: {**evidence.model_scores.get(key, {}), **scores}}
    models = {**evidence.notes.get("models", {}), "reranker": f"late interaction on {resources.embedder.model_id}"}
    counts = {"scored": len(scores) - cached, "cached": cached}
    notes = {**evidence.notes, "models": models, "rerank_scores": counts}
    cut = resources.embedder.truncated(list(chunks.values()))
    if cut:
        warnings = notes.get("warnings", {})
        line = f"{cut} texts are longer than the model reads; their ends were cut off"
        notes["warnings"] = {**warnings, "rerank": [*warnings.get("rerank", ()), line]}
    return replace(evidence, model_scores=merged, notes=notes)


def _cached_or_scored(
    query: str, chunks: Mapping[str, str], resources: Resources, progress: Progress, cached_only: bool
) -> tuple[dict[str, ModelScore], int]:
    model: LateInteraction = resources.late_interaction(progress)
    name = model.cache_model(query)
    texts = list(dict.fromkeys(chunks.values()))
    known = _cached(texts, name, query, resources)
    hits = sum(chunk in known for chunk in chunks.values())
    if cached_only:
        return {key: ModelScore(known[chunk], chunk) for key, chunk in chunks.items() if chunk in known}, hits
    todo = [text for text in texts if text not in known]
    for start in range(0, len(todo), BATCH):
        batch = todo[start : start + BATCH]
        with resources.scoring:
            known |= _cached(batch, name, query, resources)  # another run may have scored them meanwhile
            rest = [text for text in batch if text not in known]
            found = _good(rest, model.score(query, rest)) if rest else {}
            resources.store.cache_scores(name, query, list(found.items()))
        known |= found
        progress("reranking", min(start + BATCH, len(todo)), len(todo))
    return {key: _score(chunk, known.get(chunk)) for key, chunk in chunks.items()}, hits


def _cached(texts: Sequence[str], name: str, query: str, resources: Resources) -> dict[str, float]:
    return _good(texts, resources.store.cached_scores(name, query, texts))


def _good(texts: Sequence[str], scores: Sequence[float | None]) -> dict[str, float]:
    return {text: score for text, score in zip(texts, scores, strict=True) if score is not None}


def _score(chunk: str, raw: float | None) -> ModelScore:
    if raw is None:
        return ModelScore(None, chunk, "no wordpieces: query or text has no word the model knows")
    return ModelScore(raw, chunk)
