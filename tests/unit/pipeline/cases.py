"""Small evidences and a bare config, so that a test of one stage sees that stage alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Trace, Variant, replay
from cems_workbench.pipeline.stages.result import StageTrace
from cems_workbench.records import Memory

NOW = datetime(2026, 9, 1, tzinfo=UTC)

BARE: dict[str, Any] = {
    "variants.original_weight": 1.0,
    "fusion.top_rank_bonus.rank1": 0.0,
    "fusion.top_rank_bonus.rank2_3": 0.0,
    "fusion.normalize": "none",
    "fusion.score_blend": 0.0,
    "filter.min_score": None,
    "adjust.priority": False,
    "adjust.time_decay.mode": "none",
    "adjust.pinned_factor": 1.0,
    "adjust.project.enabled": False,
    "adjust.clamp": False,
    "assembly.strategy": "greedy",
    "assembly.max_tokens": None,
    "assembly.limit": None,
    "judge.backend": "none",
}
"""Every stage after the lists passes its candidates on; fusion is plain rrf with k = 60 and weights 1."""

Scores = Mapping[str, float]


def configured(changes: Mapping[str, Any] | None = None) -> PipelineConfig:
    """The bare config with values at dotted paths replaced."""
    return with_values(PipelineConfig(), {**BARE, **(changes or {})})


def evidence(
    lists: Mapping[str, Scores],
    *,
    memories: Mapping[str, Mapping[str, Any]] | None = None,
    model: Mapping[str, float | ModelScore | None] | None = None,
    variants: Sequence[Variant] = (Variant("query"),),
    query: str = "query",
    **fields: Any,
) -> Evidence:
    """Evidence of `lists`, written {"vector": {"a": 0.9}, "lexical@1": {"a": 7.0}}: `@n` is the query variant.

    `model` holds the scores of the model "oracle"; None is a failed score.
    """
    known = dict(memories or {})
    ids = {memory_id for hits in lists.values() for memory_id in hits} | set(known)
    scores = {
        key: value if isinstance(value, ModelScore) else ModelScore(value, error="timeout" if value is None else None)
        for key, value in (model or {}).items()
    }
    return Evidence(
        query=query,
        memories={key: Memory(**{"id": key, "content": f"text {key}", **known.get(key, {})}) for key in ids},
        variants=tuple(variants),
        lists=tuple(_ranked(name, hits) for name, hits in lists.items()),
        model_scores={"oracle": scores} if scores else {},
        **{"as_of": NOW, **fields},
    )


def _ranked(name: str, hits: Scores) -> RankedList:
    source, _, variant = name.partition("@")
    per_variant = source in ("vector", "lexical")
    ordered = tuple(Hit(key, float(score)) for key, score in hits.items())
    return RankedList(name, source, int(variant or 0) if per_variant else None, ordered)  # type: ignore[arg-type]


def trace(subject: Evidence, changes: Mapping[str, Any] | None = None, **options: Any) -> Trace:
    """Replay under the bare config with `changes`."""
    return replay(subject, configured(changes), **options)


def stage(name: str, subject: Evidence, changes: Mapping[str, Any] | None = None) -> StageTrace[Any, Any]:
    """One stage of that replay."""
    return trace(subject, changes).stage(name)


def kept(stage: StageTrace[Any, Any]) -> list[str]:
    """Ids that leave the stage, in order."""
    return [row.memory_id for row in stage.rows if row.kept]


def dropped(stage: StageTrace[Any, Any]) -> dict[str, str]:
    """Reasons by id of what the stage dropped."""
    return {row.memory_id: row.reason for row in stage.rows if not row.kept}


def column(stage: StageTrace[Any, Any], name: str) -> dict[str, Any]:
    """One column of the stage by memory id."""
    return {row.memory_id: getattr(row, name) for row in stage.rows}


def falling(count: int, top: float = 0.99, step: float = 0.01) -> dict[str, float]:
    """A list m01, m02, ... of `count` memories with falling scores: memory number = rank."""
    return {f"m{i:02d}": top - step * (i - 1) for i in range(1, count + 1)}


def warned(stage: StageTrace[Any, Any], part: str) -> bool:
    """Does a warning of the stage contain this text?"""
    return any(part in text for text in stage.warnings)
