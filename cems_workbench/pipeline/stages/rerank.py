"""rerank: a model's second opinion on the first candidates.

    head      the first `input_limit` by score
    unit      raw -> 0..1 by `raw_scale`, clamped; a failed score is `neutral_unit` or dropped, and flagged
    retrieval 1/(k+r) | 1/r | (k+1)/(k+r) | the fused score, with r the rank before reranking and k = fusion.k
    score     position_bands: w * retrieval + (1 - w) * unit, w by r;   replace: unit

What was never scored, then with `tail: below` what lies past the limit, follows below the reranked in its own order:
score = lowest reranked * own score / first such score. Not reranked is null, never 0 or 0.5.

Source: CEMS plan, phase 4; QMD; memory agent, feature 2; PIPELINE.md, "rerank".

Health of a model's scores: what share failed, and whether the rest can tell candidates apart.

Nothing here changes a ranking; it is the account that `rerank` gives of its model.

Source: PIPELINE.md, "rerank" (health).

The account of one model's scores for one query: what failed and why, what came out of the cache, how long it took.

`health` counts what bears on the ranking; this adds what the evidence knows beyond it. Percentiles are interpolated linearly
over the answered pairs that were timed: how soon a server refuses says nothing of the model.

Source: PIPELINE.md, "rerank" (health, outcomes of llama_server).

Effective weight: which side of the reranker's blend decides the order, against the share that the bands name.

A term that is nearly the same for every candidate decides nothing, however large its weight. So per band

    retrieval side  =  sd(w * retrieval_score)           reranker side  =  sd((1 - w) * unit)
    effective       =  retrieval side / (retrieval side + reranker side)

over the reranked candidates whose rank before reranking lies in the band; sd is the population standard deviation, which
one odd candidate moves less than the range. A band is inverted when its weight gives one side the majority and the spread
gives it to the other. Nothing here changes a ranking.

Source: PIPELINE.md, "Why four retrieval scores"; CEMS plan, phase 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cems_workbench.config.sections.ranking import Band, RerankConfig
from cems_workbench.pipeline.evidence import ModelScore
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

NARROW = 0.05
"""A spread of unit scores below this cannot tell candidates apart in practice."""

_RANGE = {"divide_by_10": (0.0, 10.0), "identity": (0.0, 1.0)}


def health_fields(model: ModelTable, head: Bools, raw: Floats, scale: str, q: int) -> dict[str, Any]:
    """Counts over the head of query q: scored, failed by cause, not scored, out of the scale's range, spread."""
    inside = head[q]
    good = raw[q, inside & ~np.isnan(raw[q])]
    failed = np.flatnonzero(inside & (model.state[q] == 2))
    causes = Counter(cause(model.errors[q].get(int(c), "")) for c in failed)
    low, high = _RANGE.get(scale, (-np.inf, np.inf))
    return {
        "head": int(inside.sum()),
        "scored": len(good),
        "failed": len(failed),
        "causes": dict(sorted(causes.items())),
        "not_scored": int(inside.sum()) - len(good) - len(failed),
        "out_of_range": int(((good < low) | (good > high)).sum()),
        "all_equal": bool(len(good) > 1 and good.min() == good.max()),
        "min": float(good.min()) if len(good) else None,
        "max": float(good.max()) if len(good) else None,
    }


def health_warnings(model: ModelTable, head: Bools, raw: Floats, scale: str, q: int) -> list[str]:
    """One line per thing that makes these scores doubtful."""
    health = health_fields(model, head, raw, scale, q)
    found = []
    if health["failed"]:
        causes = ", ".join(f"{count} {cause}" for cause, count in health["causes"].items())
        found.append(f"{health['failed']} of {health['head']} scores failed ({causes})")
    if health["out_of_range"]:
        found.append(
            f"{health['out_of_range']} raw scores lie outside the range that {scale} expects; they are clamped"
        )
    if health["all_equal"]:
        found.append("every raw score is the same: the reranker tells nothing apart")
    elif health["scored"] > 1 and scale in _RANGE:
        spread = (health["max"] - health["min"]) / _RANGE[scale][1]
        if spread < NARROW:
            found.append(
                f"raw scores span only {spread:.3f} of the unit range: the reranker hardly tells candidates apart"
            )
    return found


def cause(error: str) -> str:
    """Why a score is none: what its error says before the first colon. Looking for words in it would take a reply that
    mentions a finance team for "nan"."""
    return error.split(":")[0].strip() or "unknown"


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


@dataclass(frozen=True, slots=True)
class ScoreAccount:
    """Counts over the scores there are; `causes` and `outcomes` most frequent first; `seconds` is (p50, p95)."""

    scores: int
    failed: int
    cached: int
    truncated: int
    causes: Mapping[str, int]
    outcomes: Mapping[str, int]
    seconds: tuple[float, float] | None

    @property
    def failed_share(self) -> float:
        """0..1; 0 without scores."""
        return self.failed / self.scores if self.scores else 0.0

    @property
    def cached_share(self) -> float:
        """0..1; 0 without scores."""
        return self.cached / self.scores if self.scores else 0.0


def account(scores: Iterable[ModelScore]) -> ScoreAccount:
    """The account of `scores`, those of the rerank head."""
    every = list(scores)
    details: Sequence[Mapping[str, Any]] = [score.detail or {} for score in every]
    bad = [score for score in every if not score.good]
    timed = [
        float(score.detail["seconds"]) for score in every if score.good and score.detail and "seconds" in score.detail
    ]
    p50, p95 = np.percentile(timed, [50, 95]) if timed else (0.0, 0.0)
    return ScoreAccount(
        scores=len(every),
        failed=len(bad),
        cached=sum(bool(detail.get("cached")) for detail in details),
        truncated=sum(bool(detail.get("truncated")) for detail in details),
        causes=dict(Counter(_cause(score) for score in bad).most_common()),
        outcomes=dict(Counter(str(detail["outcome"]) for detail in details if detail.get("outcome")).most_common()),
        seconds=(float(p50), float(p95)) if timed else None,
    )


def _cause(score: ModelScore) -> str:
    if score.error:
        return cause(score.error)
    return "no score" if score.raw is None else "not finite"


def unit_spread(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Largest minus smallest unit score of the scored rows of the rerank stage; None with fewer than two."""
    units = [row["unit"] for row in rows if row.get("outcome") == "scored" and row["unit"] is not None]
    return max(units) - min(units) if len(units) > 1 else None


def is_compressed(spread: float | None) -> bool:
    """Is the spread of unit scores too narrow to tell candidates apart, without being none at all?"""
    return spread is not None and 0 < spread < NARROW


Row = Mapping[str, Any]
SAME = 1e-12
"""A spread below this is rounding."""


@dataclass(frozen=True, slots=True)
class BandWeight:
    """One band: ranks first..last before reranking (last None: the rest), and the spread that each side has in it."""

    first: int
    last: int | None
    candidates: int
    nominal: float
    retrieval_spread: float
    reranker_spread: float

    @property
    def effective(self) -> float | None:
        """Retrieval's share of the spread, 0..1; None where neither side tells two candidates apart."""
        total = self.retrieval_spread + self.reranker_spread
        return self.retrieval_spread / total if total > SAME else None

    @property
    def inverted(self) -> bool:
        """Does the side with the nominal majority have the minority of the effect?"""
        return self.effective is not None and (self.nominal - 0.5) * (self.effective - 0.5) < 0


@dataclass(frozen=True, slots=True)
class Overtaking:
    """A candidate of the last band that passed rank 1, and the most that rank 1 could have had."""

    rank: int
    weight: float
    retrieval: float
    unit: float
    score: float
    first_weight: float
    first_retrieval: float
    first_unit: float
    first_score: float

    @property
    def first_at_most(self) -> float:
        """The score of rank 1 had the reranker given it a unit score of 1."""
        return self.first_weight * self.first_retrieval + (1 - self.first_weight)


def effective_weights(rows: Sequence[Row], bands: Sequence[Band]) -> list[BandWeight]:
    """Each band that has reranked candidates, in order. `rows` are those of the rerank stage."""
    found = []
    first = 1
    for i, band in enumerate(bands):
        last = None if i == len(bands) - 1 else band.max_rank
        inside = [row for row in _blended(rows) if first <= row["rank_before"] <= (last or np.inf)]
        if inside:
            retrieval = np.std([row["retrieval_weight"] * row["retrieval_score"] for row in inside])
            reranker = np.std([(1 - row["retrieval_weight"]) * row["unit"] for row in inside])
            found.append(BandWeight(first, last, len(inside), band.retrieval, float(retrieval), float(reranker)))
        if last is None:
            break
        first = max(first, last + 1)
    return found


def overtaking(rows: Sequence[Row], config: RerankConfig) -> Overtaking | None:
    """An example of a candidate of the last band that passed rank 1 under 1/(k + r); None when there is none.

    Of several, one that the reranker liked less than rank 1 says most; of those the one it liked least.
    """
    if config.combine != "position_bands" or config.retrieval_score != "rrf" or len(config.bands) < 2:
        return None
    blended = _blended(rows)
    first = next((row for row in blended if row["rank_before"] == 1), None)
    past = config.bands[-2].max_rank
    if first is None or past is None:
        return None
    passed = [row for row in blended if row["rank_before"] > past and row["score"] > first["score"]]
    if not passed:
        return None
    example = min(passed, key=lambda row: (row["unit"], row["rank_before"]))
    return Overtaking(*_terms(example), *_terms(first)[1:])


def _blended(rows: Sequence[Row]) -> list[Row]:
    keys = ("rank_before", "retrieval_weight", "retrieval_score", "unit")
    return [row for row in rows if all(row.get(key) is not None for key in keys)]


def _terms(row: Row) -> tuple[Any, ...]:
    return tuple(row[key] for key in ("rank_before", "retrieval_weight", "retrieval_score", "unit", "score"))
