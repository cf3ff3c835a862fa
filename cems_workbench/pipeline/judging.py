"""The judge's scores: a relevance judgment of each result, fetched beside the ranking and never part of it.

`auto` takes the cross-encoder when its weights are there, else late interaction. A judgment is of the first `max_chars`
characters of a memory against the query as it was searched.

Source: ACE, cross-encoder relevance threshold; PIPELINE.md, "judge".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import ModelError
from cems_workbench.models.protocol import PairScorer
from cems_workbench.pipeline.evidence import Evidence, ModelScore
from cems_workbench.pipeline.replay import replay
from cems_workbench.pipeline.rerankers import scorer
from cems_workbench.pipeline.rescoring import cached_or_scored, with_warnings
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.trace import Trace
from cems_workbench.progress import Progress, silent


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
    try:
        name, model, said = _judge(config, resources, progress)
    except ModelError as error:
        return replace(evidence, notes=with_warnings(evidence.notes, "judge", [str(error)]))
    known = evidence.judge_scores.get(name, {})
    missing = {key: text for key, text in texts.items() if key not in known or known[key].chunk != text}
    if not missing:
        return evidence
    try:
        scores = cached_or_scored(model, evidence.searched, missing, resources, progress)
    except ModelError as error:
        scores = {key: ModelScore(None, text, str(error)) for key, text in missing.items()}
    notes = with_warnings(evidence.notes, "judge", [said] if said else [])
    return replace(
        evidence,
        judge_scores={**evidence.judge_scores, name: {**known, **scores}},
        notes={**notes, "models": {**notes.get("models", {}), "judge": model.label}},
    )


def all_judged(trace: Trace) -> bool:
    """Has every result a judgment, or a failure, of the text that this config gives the judge to read?"""
    name = trace.stage("judge").fields["model"]
    known = trace.evidence.judge_scores.get(name, {})
    length = trace.config.judge.max_chars
    return all(
        memory_id in known and known[memory_id].chunk == trace.evidence.memories[memory_id].content[:length]
        for memory_id in (result["memory_id"] for result in trace.results)
    )


def _judge(config: PipelineConfig, resources: Resources, progress: Progress) -> tuple[str, PairScorer, str | None]:
    """The key of its scores, the model, and what has to be said about it."""
    asked = "cross_encoder" if config.judge.backend == "auto" else config.judge.backend
    model, said = scorer(asked, config.judge.model, config.rerank, resources, progress)
    if config.judge.backend == "auto":
        return ("late_interaction" if said else config.judge.model or "cross_encoder"), model, None  # as auto is meant
    return config.judge.model or config.judge.backend, model, said
