"""The judge's scores: a relevance judgment of each result, fetched beside the ranking and never part of it.

`auto` takes the cross-encoder: the one of the settings, else, without a word, the packaged one. A judgment is of the first
`max_chars` characters of a memory against the query as it was searched.

Source: ACE, cross-encoder relevance threshold; PIPELINE.md, "judge".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import ModelError
from cems_workbench.models.late_interaction import LateInteraction
from cems_workbench.models.minilm_judge import MiniLMJudge
from cems_workbench.models.protocol import PairScorer
from cems_workbench.models.resolve import locate
from cems_workbench.pipeline.evidence import Evidence, ModelScore
from cems_workbench.pipeline.replay import replay
from cems_workbench.pipeline.rerankers import asked
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
