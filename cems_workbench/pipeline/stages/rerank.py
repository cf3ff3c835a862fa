"""rerank: a model's second opinion on the first candidates.

    head      the first `input_limit` by score
    unit      raw -> 0..1 by `raw_scale`, clamped; a failed score is `neutral_unit` or dropped, and flagged
    retrieval 1/(k+r) | 1/r | (k+1)/(k+r) | the fused score, with r the rank before reranking and k = fusion.k
    score     position_bands: w * retrieval + (1 - w) * unit, w by r;   replace: unit

What was never scored, then with `tail: below` what lies past the limit, follows below the reranked in its own order:
score = lowest reranked * own score / first such score. Not reranked is null, never 0 or 0.5.

Source: CEMS plan, phase 4; QMD; memory agent, feature 2; PIPELINE.md, "rerank".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cems_workbench.config.ranking import RerankConfig
from cems_workbench.pipeline.stages.health import health_fields, health_warnings
from cems_workbench.pipeline.table import (
    Bools,
    CandidateTable,
    Floats,
    Ints,
    ModelTable,
    StageArrays,
    Standing,
    pass_through,
    ranked,
)

GOOD, FAILED = 1, 2


def model_key(config: RerankConfig) -> str:
    """The key of `model_scores` this config reads: the model, or the backend when it is left to its default."""
    return config.model or config.backend


@dataclass(frozen=True, eq=False)
class Blend:
    """Per candidate (Q, C): what the model said and how it was blended. NaN where not reranked."""

    head: Bools
    good: Bools
    failed: Bools
    reranked: Bools
    following: Bools
    raw: Floats
    unit: Floats
    retrieval_weight: Floats
    retrieval_score: Floats
    score: Floats


def apply_rerank(
    table: CandidateTable, before: Standing, config: RerankConfig, k: int, limit: int | None
) -> StageArrays:
    """Rerank the head. `k` is fusion.k, `limit` the result limit that `skip_if_few` compares with."""
    if config.backend == "none":
        return pass_through("rerank", before, fields=lambda q: {"backend": "none"})
    few = config.skip_if_few & (before.alive.sum(axis=1) <= (np.inf if limit is None else limit))
    model = table.models.get(model_key(config)) or _unscored(table.shape)
    blend = _blend(model, before, config, k)
    standing = _order(blend, before)
    skip = few[:, None]
    after = Standing(
        np.where(skip, before.alive, standing.alive),
        np.where(skip, before.score, standing.score),
        lambda: np.where(skip, before.rank, standing.rank),
    )
    return StageArrays(
        "rerank",
        entered=before.alive,
        before=before,
        after=after,
        reason=_reason(model, blend, before, config),
        columns=_columns(model, blend, before, few),
        warnings=lambda q: _warnings(model, blend, config, few, q),
        fields=lambda q: (
            {"backend": config.backend, "model": model_key(config), "skipped": bool(few[q])}
            | ({} if few[q] else {"health": health_fields(model, blend.head, blend.raw, config.raw_scale, q)})
        ),
        needs=lambda q: [] if few[q] else _needs(table, blend, config, q),
    )


def _unscored(shape: tuple[int, int]) -> ModelTable:
    return ModelTable(np.full(shape, np.nan), np.zeros(shape, dtype=np.int8), [{} for _ in range(shape[0])])


def _blend(model: ModelTable, before: Standing, config: RerankConfig, k: int) -> Blend:
    within = before.rank <= (np.inf if config.input_limit is None else config.input_limit)
    head = before.alive & within
    good, failed = head & (model.state == GOOD), head & (model.state == FAILED)
    raw = np.where(good, model.raw, np.nan)
    unit = to_unit(raw, good, config.raw_scale)
    reranked = good
    if config.on_error == "neutral":
        unit = np.where(failed, config.neutral_unit, unit)
        reranked = good | failed
    unit = np.where(reranked, unit, np.nan)
    weight = np.where(reranked, band_weight(before.rank, config), np.nan)
    retrieval = np.where(reranked, _retrieval_score(before, config, k), np.nan)
    score = unit if config.combine == "replace" else weight * retrieval + (1 - weight) * unit
    following = head & (model.state != GOOD) & (model.state != FAILED)
    if config.tail == "below":
        following = following | (before.alive & ~within)
    return Blend(head, good, failed, reranked, following, raw, unit, weight, retrieval, score)


def to_unit(raw: Floats, good: Bools, scale: str) -> Floats:
    """(Q, C) raw scores to 0..1, clamped; `minmax` runs over the good scores of each query, all equal -> 1.0."""
    safe = np.where(good, raw, 0.0)
    if scale == "divide_by_10":
        unit = safe / 10
    elif scale == "sigmoid":
        tail = np.exp(-np.abs(safe))  # never overflows
        unit = np.where(safe >= 0, 1 / (1 + tail), tail / (1 + tail))
    elif scale == "minmax":
        low = np.where(good, safe, np.inf).min(axis=1, keepdims=True, initial=np.inf)
        high = np.where(good, safe, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
        spread = np.where(high > low, high - low, 0.0)
        unit = np.divide(safe - np.where(spread > 0, low, 0.0), spread, out=np.ones_like(safe), where=spread > 0)
    else:
        unit = safe
    return np.where(good, np.clip(unit, 0.0, 1.0), np.nan)


def band_weight(rank: Ints, config: RerankConfig) -> Floats:
    """Share of the retrieval score at each rank: the first band that covers it, else the last band."""
    last = config.bands[-1].retrieval if config.bands else 0.0
    weight = np.full(rank.shape, last)
    for band in reversed(config.bands):
        weight = np.where(rank <= (np.inf if band.max_rank is None else band.max_rank), band.retrieval, weight)
    return weight


def _retrieval_score(before: Standing, config: RerankConfig, k: int) -> Floats:
    rank = np.maximum(before.rank, 1)
    if config.retrieval_score == "rrf":
        return 1 / (k + rank)
    if config.retrieval_score == "inverse_rank":
        return 1 / rank
    if config.retrieval_score == "normalized_rrf":
        return (k + 1) / (k + rank)
    return before.score


def _order(blend: Blend, before: Standing) -> Standing:
    """The reranked by their score, then the followers in the order they came, scaled to lie below."""
    top = ranked(np.where(blend.reranked, blend.score, 0.0), blend.reranked)
    count = blend.reranked.sum(axis=1, keepdims=True)
    lowest = np.where(blend.reranked, blend.score, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    first_rank = np.where(blend.following, before.rank, np.iinfo(np.int64).max).min(
        axis=1, keepdims=True, initial=np.iinfo(np.int64).max
    )
    first = np.where(before.rank == first_rank, before.score, 0.0).sum(axis=1, keepdims=True)
    share = np.divide(before.score, first, out=np.zeros_like(before.score), where=first > 0)
    floor = np.where(count > 0, lowest, 0.0)
    below = np.where(count > 0, np.minimum(floor, floor * share), before.score)  # a negative lowest stays the higher
    places = (
        np.where(blend.following, before.rank, np.iinfo(np.int64).max)
        .argsort(axis=1, kind="stable")
        .argsort(axis=1, kind="stable")
    )
    rank = np.where(blend.reranked, top.rank, np.where(blend.following, count + places + 1, 0))
    score = np.where(blend.reranked, blend.score, np.where(blend.following, below, before.score))
    return Standing(blend.reranked | blend.following, score, lambda: rank)


def _reason(model: ModelTable, blend: Blend, before: Standing, config: RerankConfig) -> Callable[[int, int], str]:
    def reason(q: int, c: int) -> str:
        if blend.failed[q, c]:
            return f"the reranker failed ({model.errors[q].get(c, 'unknown')}) and on_error is drop"
        return f"rank {before.rank[q, c]} is past the rerank depth of {config.input_limit}"

    return reason


def _columns(model: ModelTable, blend: Blend, before: Standing, few: Bools) -> dict[str, Callable[[int, int], Any]]:
    def number(values: Floats) -> Callable[[int, int], float | None]:
        return lambda q, c: None if few[q] or np.isnan(values[q, c]) else float(values[q, c])

    def outcome(q: int, c: int) -> str:
        if few[q]:
            return "skipped"
        if blend.head[q, c]:
            return "failed" if blend.failed[q, c] else "scored" if blend.good[q, c] else "not_scored"
        return "tail"

    return {
        "raw": number(blend.raw),
        "unit": number(blend.unit),
        "rank_before": lambda q, c: None if few[q] or not blend.reranked[q, c] else int(before.rank[q, c]),
        "retrieval_weight": number(blend.retrieval_weight),
        "retrieval_score": number(blend.retrieval_score),
        "flagged": lambda q, c: bool(blend.failed[q, c] and not few[q]),
        "outcome": outcome,
        "error": lambda q, c: model.errors[q].get(c) if blend.failed[q, c] and not few[q] else None,
    }


def _warnings(model: ModelTable, blend: Blend, config: RerankConfig, few: Bools, q: int) -> list[str]:
    if few[q]:
        return ["not reranked: no more candidates than the result limit"]
    found = health_warnings(model, blend.head, blend.raw, config.raw_scale, q)
    missing = int((blend.head & ~blend.good & ~blend.failed)[q].sum())
    if missing:
        found.append(
            f"{missing} of the first {int(blend.head[q].sum())} candidates were never scored by {model_key(config)}; "
            "they follow below the reranked"
        )
    head = int(blend.head[q].sum())
    if head and int((blend.failed & blend.head)[q].sum()) == head and config.on_error == "neutral":
        found.append(
            f"every score failed: each candidate has the neutral {config.neutral_unit:g}, and this order is no reranking"
        )
    if config.combine == "position_bands" and config.retrieval_score == "rrf" and blend.reranked[q].any():
        found.append(
            "retrieval score 1/(k+r) is at most 1/(k+1): the reranker decides nearly everything, most of all past "
            "rank 10 (the bands are inverted)"
        )
    return found


def _needs(table: CandidateTable, blend: Blend, config: RerankConfig, q: int) -> list[dict[str, Any]]:
    missing = np.flatnonzero((blend.head & ~blend.good & ~blend.failed)[q])
    if not len(missing):
        return []
    return [{"stage": "rerank", "model": model_key(config), "memory_ids": [table.ids[q][int(c)] for c in missing]}]
