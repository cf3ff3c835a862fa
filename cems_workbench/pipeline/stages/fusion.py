"""fusion: many ranked lists become one score.

    weight  = list weight * variant weight          (recency, access, relations: * 1)
    rrf       base = weight / (k + rank)            plus the top-rank bonus, not weighted:
              per_list  in every list               (CEMS)
              best_rank once, by the best rank      (QMD)
              and, for importance = high, 1/(k+1) - 1/(k+1+importance_bonus_ranks)
    score_sum base = weight * score, summed;  score_max the largest base
    raw     = boost * (sum or max of base + bonuses),   boost = 1 + multi_query_boost * (lists containing it - 1)
    score   = (1 - score_blend) * normalised + score_blend * best vector/lexical list score (0 if in neither)

Ranks are 1-based; `dense` ties share a rank. A memory absent from a list contributes nothing for it. score_sum and
score_max leave recency and access out: their scores are dates and counts, not relevance. With `single_list: bypass` and
one non-empty list, score and order are that list's own (ACE).

Source: Cormack et al. 2009 (RRF); CEMS plan, phase 3; QMD; two-stage RRF plan; PIPELINE.md, "fusion".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cems_workbench.config.gathering import ListsConfig, VariantWeights
from cems_workbench.config.ranking import FusionConfig
from cems_workbench.pipeline.evidence import SOURCES, VARIANT_KINDS
from cems_workbench.pipeline.table import Bools, CandidateTable, Floats, Ints, ListArrays, StageArrays, ranked

# Looked up by source index; the last entry is for padding, whose source is -1.
NOT_RELEVANCE = np.array([source in ("recency", "access") for source in SOURCES] + [False])
RELEVANCE = np.array([source in ("vector", "lexical") for source in SOURCES] + [False])


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of every raw score: base and bonus (Q, L, C), the rest (Q, C)."""

    member: Bools
    rank: Ints
    weight: Floats
    base: Floats
    bonus: Floats
    best_rank_bonus: Floats
    importance_bonus: Floats
    boost: Floats


def apply_fusion(
    table: CandidateTable, lists: ListArrays, config: FusionConfig, list_config: ListsConfig, variants: VariantWeights
) -> StageArrays:
    """Fuse the lists into one ranking."""
    present, before = lists.present, lists.stage.after
    terms = _terms(table, lists, config, list_config, variants)
    alive: Bools = np.any(terms.member, axis=1)
    inside = (
        terms.base.max(axis=1, where=terms.member, initial=-np.inf)
        if config.method == "score_max"
        else terms.base.sum(axis=1)
    )
    raw = terms.boost * (inside + terms.bonus.sum(axis=1) + terms.best_rank_bonus + terms.importance_bonus)
    raw = np.where(alive, raw, 0.0)
    normalised = _minmax(raw, alive) if config.normalize == "minmax" else raw
    relevance = present & RELEVANCE[table.lists.source][:, :, None]
    best = np.where(relevance, lists.score, 0.0).max(axis=1, initial=0.0)
    score = (1 - config.score_blend) * normalised + config.score_blend * best
    bypassed = (config.single_list == "bypass") & (present.any(axis=2).sum(axis=1) == 1)
    if bypassed.any():
        alone = np.where(present, lists.score, 0.0).sum(axis=1)
        raw, normalised, score = (np.where(bypassed[:, None], alone, value) for value in (raw, normalised, score))
        terms = _bypass(terms, table, lists, bypassed)
        alive = np.where(bypassed[:, None], present.any(axis=1), alive)
    after = ranked(score, alive)
    ignored = "only in recency or access lists, which " + config.method + " leaves out"
    return StageArrays(
        "fusion",
        entered=before.alive,
        before=before,
        after=after,
        reason=lambda q, c: ignored,
        columns={
            "raw": lambda q, c: float(raw[q, c]),
            "normalized": lambda q, c: float(normalised[q, c]),
            "contributions": lambda q, c: contributions(table, terms, q, c),
            "best_rank_bonus": lambda q, c: float(terms.best_rank_bonus[q, c]),
            "importance_bonus": lambda q, c: float(terms.importance_bonus[q, c]),
            "boost_factor": lambda q, c: float(terms.boost[q, c]),
            "best_list_score": lambda q, c: float(best[q, c]),
        },
        warnings=_warnings(table, present, config, raw, alive, bypassed),
        fields=lambda q: {
            "method": config.method,
            "bypassed": bool(bypassed[q]),
            "combine": "max" if config.method == "score_max" and not bypassed[q] else "sum",
        },
    )


def contributions(table: CandidateTable, terms: Terms, q: int, c: int) -> list[dict[str, Any]]:
    """One entry per list that contains the candidate: list, rank, weight, base and bonus."""
    return [
        {
            "list": table.lists.names[q][int(i)],
            "rank": int(terms.rank[q, i, c]),
            "weight": float(terms.weight[q, i]),
            "base": float(terms.base[q, i, c]),
            "bonus": float(terms.bonus[q, i, c]),
        }
        for i in np.flatnonzero(terms.member[q, :, c])
    ]


def _terms(
    table: CandidateTable, lists: ListArrays, config: FusionConfig, list_config: ListsConfig, variants: VariantWeights
) -> Terms:
    source = table.lists.source
    rrf = config.method == "rrf"
    member = lists.present if rrf else lists.present & ~NOT_RELEVANCE[source][:, :, None]
    weight = _weights(table, list_config, variants)
    dense = np.array([getattr(getattr(list_config, name), "ties", "ordinal") == "dense" for name in SOURCES] + [False])
    rank = np.where(dense[source][:, :, None], table.lists.dense, table.lists.position)
    rank = np.where(member, rank, 0)
    zero = np.zeros(table.shape)
    bonus, best_rank_bonus, importance = np.zeros(rank.shape), zero, zero
    if rrf:
        base = np.where(member, weight[:, :, None] / (config.k + np.maximum(rank, 1)), 0.0)
        best = np.where(member, rank, np.iinfo(np.int64).max).min(axis=1, initial=np.iinfo(np.int64).max)
        if config.top_rank_bonus.mode == "per_list":
            bonus = np.where(member, _top_rank_bonus(rank, config), 0.0)
        else:
            best_rank_bonus = _top_rank_bonus(best, config)
        step = 1 / (config.k + 1) - 1 / (config.k + 1 + config.importance_bonus_ranks)
        importance = np.where(table.important & member.any(axis=1), step, 0.0)
    else:
        base = np.where(member, weight[:, :, None] * lists.score, 0.0)
    containing = member.sum(axis=1)
    boost = 1 + config.multi_query_boost * np.maximum(containing - 1, 0)
    return Terms(member, rank, weight, base, bonus, best_rank_bonus, importance, boost)


def _weights(table: CandidateTable, list_config: ListsConfig, variants: VariantWeights) -> Floats:
    """(Q, L) list weight * variant weight."""
    by_source = np.array([getattr(list_config, name).weight for name in SOURCES] + [0.0])
    by_kind = np.array([getattr(variants, f"{kind}_weight") for kind in VARIANT_KINDS] + [1.0])
    per_variant = RELEVANCE[table.lists.source]
    return by_source[table.lists.source] * np.where(per_variant, by_kind[table.lists.kind], 1.0)


def _top_rank_bonus(rank: Ints, config: FusionConfig) -> Floats:
    bonus = config.top_rank_bonus
    return np.where(rank == 1, bonus.rank1, np.where(rank <= 3, bonus.rank2_3, 0.0))


def _minmax(raw: Floats, alive: Bools) -> Floats:
    low = np.where(alive, raw, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    high = np.where(alive, raw, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
    spread = np.where(high > low, high - low, 0.0)
    return np.divide(raw - np.where(spread > 0, low, 0.0), spread, out=np.ones_like(raw), where=spread > 0)


def _bypass(terms: Terms, table: CandidateTable, lists: ListArrays, bypassed: Bools) -> Terms:
    """For bypassed queries the single list's score is the whole account: one contribution, base = score."""
    one, two, present = bypassed[:, None], bypassed[:, None, None], lists.present
    return Terms(
        member=np.where(two, present, terms.member),
        rank=np.where(two & present, table.lists.position, terms.rank),
        weight=np.where(one, 1.0, terms.weight),
        base=np.where(two, np.where(present, lists.score, 0.0), terms.base),
        bonus=np.where(two, 0.0, terms.bonus),
        best_rank_bonus=np.where(one, 0.0, terms.best_rank_bonus),
        importance_bonus=np.where(one, 0.0, terms.importance_bonus),
        boost=np.where(one, 1.0, terms.boost),
    )


def _warnings(
    table: CandidateTable, present: Bools, config: FusionConfig, raw: Floats, alive: Bools, bypassed: Bools
) -> Callable[[int], list[str]]:
    def warnings(q: int) -> list[str]:
        found = []
        left_out = NOT_RELEVANCE[table.lists.source[q]] & present[q].any(axis=1)
        if config.method != "rrf" and left_out.any():
            names = ", ".join(table.lists.names[q][int(i)] for i in np.flatnonzero(left_out))
            found.append(f"{config.method} leaves out {names}: its scores are not relevance")
        living = raw[q, alive[q]]
        if len(living) > 1 and config.normalize == "minmax" and living.min() == living.max() and not bypassed[q]:
            found.append("every candidate has the same fused score; minmax makes all of them 1.0")
        if present[q].any(axis=1).sum() == 1 and not bypassed[q]:
            found.append("one non-empty list: the fused score says only the rank in it")
        return found

    return warnings
