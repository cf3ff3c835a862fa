"""fusion: many ranked lists become one score.

    weight  = list weight * variant weight          (recency, access, relations: * 1)
    base    = what the method makes of weight and rank or score (pipeline/fusion_methods); with rrf, plus
              the top-rank bonus, not weighted:
                per_list  in every list             (CEMS)
                best_rank once, by the best rank    (QMD)
              and, for importance = high, 1/(k+1) - 1/(k+1+importance_bonus_ranks)
    raw     = boost * (sum or max of base + bonuses),   boost = 1 + multi_list_boost * (lists containing it - 1)
    score   = (1 - score_blend) * normalised + score_blend * best vector/lexical list score (0 if in neither)

Ranks are 1-based in every list. Equal scores share a rank under `dense` ties (1 1 2) and `competition` (1 1 3). A list contributes nothing
to a memory that it does not contain. Methods that read scores leave recency and access out: their scores are dates and counts, not
relevance. With `single_list: bypass` and one non-empty list, score and order are that list's own (ACE).

Hits are flat arrays, because most cells of (query, list, candidate) are empty. They do not depend on weights, so configs with the same
lists and ties share them.

Source: CEMS plan, phase 3; QMD; two-stage RRF plan; docs/internals/specification.md, "fusion".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.config.sections.gathering import ListsConfig, VariantWeights
from cems_workbench.config.sections.ranking import FusionConfig
from cems_workbench.pipeline.evidence import VARIANT_KINDS
from cems_workbench.pipeline.fusion_methods import (
    Contribution,
    FusionMethod,
    Hits,
    fusion_method,
    hit_bases,
    share_of_first,
)
from cems_workbench.pipeline.list_sources import LIST_SOURCES, SOURCES
from cems_workbench.pipeline.stages.result import RowContract, StageArrays, StageFields, StageRow, StageTrace
from cems_workbench.pipeline.stages.stage import Stage, StageInput, Switch
from cems_workbench.pipeline.table import (
    Bools,
    CandidateTable,
    Floats,
    Ints,
    ListArrays,
    Places,
    Ranking,
    along,
    memoized,
    ranked,
)
from cems_workbench.pipeline.wording import list_label, ordinal

# Looked up by source index; the last entry is for padding, whose source is -1.
NOT_RELEVANCE = np.array([not source.relevance for source in LIST_SOURCES] + [False])
PER_VARIANT = np.array([source.per_variant for source in LIST_SOURCES] + [False])
RELATIONS = SOURCES.index("relations")
TOP_RANK_BONUS, IMPORTANCE_BONUS = "fusion.top_rank_bonus", "fusion.importance_bonus_ranks"


@dataclass(frozen=True, slots=True)
class FusionRow(StageRow):
    """Terms of the raw score: boost_factor * (sum or max of base + bonus, + best_rank_bonus + importance_bonus)."""

    raw: float
    normalized: float
    contributions: tuple[Contribution, ...]
    """One for each list that contains the candidate."""
    best_rank_bonus: float
    importance_bonus: float
    boost_factor: float
    best_list_score: float


@dataclass(frozen=True, slots=True)
class FusionFields(StageFields):
    """The method; whether a single list's own scores were used instead; how contributions combine."""

    method: str = "rrf"
    bypassed: bool = False
    combine: Literal["sum", "max"] = "sum"
    score_blend: float = 0.0
    """The share of the best list score in the score; 0 if bypassed."""


PartKind = Literal["base", "top-rank bonus", "importance bonus", "score blend", "minmax"]


@dataclass(frozen=True, slots=True)
class ScorePart:
    """One addend of the score after fusion, and the list that it is from, if it is from one."""

    kind: PartKind
    list: str | None
    value: float


def score_parts(row: FusionRow, fields: FusionFields) -> tuple[ScorePart, ...]:
    """The addends of the score after fusion that are not 0: those of the lists in their order, then the others.

    Each term of the raw score is multiplied by boost, normalised / raw and 1 - score_blend. With combine = max only the largest counts. If
    every raw score is 0, minmax makes it 1, which is a separate addend.
    """
    share = 1 - fields.score_blend
    scale = row.boost_factor * share * row.normalized / row.raw if row.raw else 0.0
    terms: Sequence[Contribution] = row.contributions
    if fields.combine == "max":
        terms = [max(terms, key=lambda term: term.base + term.bonus)] if terms else []
    parts = []
    for term in terms:
        parts.append(ScorePart("base", term.list, scale * term.base))
        parts.append(ScorePart("top-rank bonus", term.list, scale * term.bonus))
    parts.append(ScorePart("top-rank bonus", None, scale * row.best_rank_bonus))
    parts.append(ScorePart("importance bonus", None, scale * row.importance_bonus))
    parts.append(ScorePart("score blend", None, fields.score_blend * row.best_list_score))
    parts.append(ScorePart("minmax", None, 0.0 if row.raw else share * row.normalized))
    return tuple(part for part in parts if part.value)


@dataclass(eq=False, kw_only=True, slots=True)
class FusionArrays(StageArrays[FusionRow, FusionFields]):
    """Also (Q, C) raw scores and best list scores."""

    raw: Floats
    best_list_score: Floats


def find_hits(table: CandidateTable, lists: ListArrays, by_rank: bool, ties: Sequence[str]) -> Hits:
    """The hits of the lists; those of recency and access only `by_rank`. `ties` of each source, in their order."""
    source = table.lists.source
    member = lists.present if by_rank else lists.present & ~NOT_RELEVANCE[source][:, :, None]
    queries, width = table.shape
    q, c, i = np.nonzero(member.transpose(0, 2, 1))
    places = lists.places
    # The extra entry serves source -1, the padding of queries with fewer lists.
    dense = np.array([*(how == "dense" for how in ties), False])
    rank: Ints = np.where(dense[source[q, i]], places.dense[q, i, c], places.position[q, i, c])
    if "competition" in ties:
        shared = np.array([*(how == "competition" for how in ties), False])[source[q, i]]
        rank[shared] = _competition(q[shared] * source.shape[1] + i[shared], places, (q[shared], i[shared], c[shared]))
    cell = q * width + c
    cells, first = np.unique(cell, return_index=True)
    alive: Bools = np.any(member, axis=1)
    found, starts = np.unique(cells // width if width else cells, return_index=True)
    best = np.full(queries * width, np.iinfo(np.int64).max)
    if len(cells):
        best[cells] = np.minimum.reduceat(rank, first)
    return Hits(
        slot=q * source.shape[1] + i,
        cell=cell,
        rank=rank.astype(np.float64),
        score=lists.score[q, i, c],
        cells=cells,
        first=first,
        top=np.flatnonzero(rank <= 3),
        alive=alive,
        queries=found,
        starts=starts,
        lists=member.sum(axis=1),
        best_rank=best.reshape(table.shape),
    )


def _competition(slot: Ints, places: Places, at: tuple[Ints, Ints, Ints]) -> Ints:
    """(N) ranks of hits `at` (query, list, candidate) in which equal scores have the place of the first of them; `slot` (N) is the list."""
    position, dense = places.position[at], places.dense[at]
    order = np.lexsort((position, dense, slot))
    starts = np.ones(len(order), dtype=bool)
    starts[1:] = (slot[order][1:] != slot[order][:-1]) | (dense[order][1:] != dense[order][:-1])
    first = position[order][np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))]
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = first
    return rank


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
    table: CandidateTable,
    lists: ListArrays,
    before: Ranking,
    config: FusionConfig,
    list_config: ListsConfig,
    variants: VariantWeights,
) -> FusionArrays:
    """Fuse the lists into one ranking."""
    method, present = fusion_method(config), lists.present
    hits = _hits(table, lists, method, list_config)
    weight = _weights(table, list_config, variants)
    alive, best = hits.alive, best_list_score(table, lists, config.blend_with)
    base, extra = (
        hit_bases(method, hits, weight.reshape(-1).take(hits.slot), config),
        _extra(table, hits, method, config),
    )
    raw = _raw(table, hits, base, extra, method)
    normalised = _minmax(raw, hits) if config.normalize == "minmax" else raw
    score = (1 - config.score_blend) * normalised
    if config.score_blend:
        score += config.score_blend * best
    bypassed = _bypassed(table, lists, config, list_config)
    if bypassed.any():
        alone = np.where(present, lists.score, 0.0).sum(axis=1)
        raw, normalised, score = (np.where(bypassed[:, None], alone, value) for value in (raw, normalised, score))
        alive = np.where(bypassed[:, None], present.any(axis=1), alive)

    @cache
    def terms() -> Terms:
        dense = _terms(table, lists, hits, weight, base, extra, config)
        return _bypass(dense, table, lists, bypassed) if bypassed.any() else dense

    def row(q: int) -> Callable[[int, RowContract], FusionRow]:
        given, account = contributions(table, terms(), q), terms()
        columns = [
            values[q].tolist()
            for values in (raw, normalised, account.best_rank_bonus, account.importance_bonus, account.boost, best)
        ]
        raws, normals, best_ranks, importances, boosts, bests = columns

        def make(c: int, contract: RowContract) -> FusionRow:
            terms_of = tuple(given.get(c, ()))
            return FusionRow(
                *contract, raws[c], normals[c], terms_of, best_ranks[c], importances[c], boosts[c], bests[c]
            )

        return make

    ignored = "only in recency or access lists, which " + config.method + " leaves out"
    return FusionArrays(
        entered=before.alive,
        before=before,
        after=ranked(
            score, alive, None if config.tie_break == "id" else lambda: first_seen(table, lists, config.seen_first)
        ),
        row=row,
        fields=lambda q: FusionFields(
            config.method,
            bool(bypassed[q]),
            "sum" if bypassed[q] else method.combine,
            0.0 if bypassed[q] else config.score_blend,
        ),
        reason=lambda q, c: ignored,
        warnings=_warnings(table, present, method, config, raw, alive, bypassed),
        raw=raw,
        best_list_score=best,
    )


def _bypassed(table: CandidateTable, lists: ListArrays, config: FusionConfig, list_config: ListsConfig) -> Bools:
    if config.single_list == "fuse":
        return np.zeros(len(lists.present), dtype=bool)
    alone: Bools = memoized(lists.memo, "single", None, lambda: lists.present.any(axis=2).sum(axis=1) == 1)
    if config.single_list == "bypass_searched":
        # CEMS has lists of the other sources only when they are not empty.
        alone = alone & ((lists.active & PER_VARIANT[table.lists.source]).sum(axis=1) == 1)
    return alone


def best_list_score(table: CandidateTable, lists: ListArrays, of: str = "searched") -> Floats:
    """(Q, C) the largest score in any list of the query's variants, with `all` in any whose score is relevance; 0 in none."""

    def best() -> Floats:
        largest: Floats = np.where(_scoring(table, lists, of), lists.score, 0.0).max(axis=1, initial=0.0)
        return largest

    return memoized(lists.memo, "best", of, best)


def best_version(table: CandidateTable, lists: ListArrays, of: str) -> Ints:
    """(Q, C) the list in which a candidate has its best score, the first of several; -1 for a candidate in none."""

    def version() -> Ints:
        scoring = _scoring(table, lists, of)
        if not scoring.shape[1]:
            return np.full(table.shape, -1)
        best: Ints = np.where(scoring, lists.score, -np.inf).argmax(axis=1)
        return np.where(scoring.any(axis=1), best, -1)

    return memoized(lists.memo, "version", of, version)


def by_relations(table: CandidateTable, lists: ListArrays, of: str) -> Bools:
    """(Q, C) whether a candidate's best score is from the relation list."""
    version = best_version(table, lists, of)
    source = np.append(table.lists.source, np.full((len(version), 1), -1), axis=1)  # the last one is for no list
    found: Bools = along(source, version) == RELATIONS
    return found


def _scoring(table: CandidateTable, lists: ListArrays, of: str) -> Bools:
    counts = PER_VARIANT if of == "searched" else ~NOT_RELEVANCE
    scoring: Bools = lists.present & counts[table.lists.source][:, :, None]
    return scoring


def first_seen(table: CandidateTable, lists: ListArrays, first: str = "as_listed") -> Ints:
    """(Q, C) the order in which candidates occur in the lists, read one after the other, those of the source `first` before others."""

    def order() -> Ints:
        queries, count, width = lists.present.shape
        place = np.broadcast_to(np.arange(count), (queries, count))
        if first in SOURCES:
            # Stable, so that lists of one kind keep their order.
            order = np.argsort(table.lists.source != SOURCES.index(first), axis=1, kind="stable")
            place = np.argsort(order, axis=1)
        met = np.where(lists.present, place[:, :, None] * (width + 1) + lists.places.position, count * (width + 1))
        seen: Ints = met.min(axis=1, initial=count * (width + 1))
        return seen

    return memoized(lists.memo, "first seen", first, order)


def contributions(table: CandidateTable, terms: Terms, q: int) -> dict[int, list[Contribution]]:
    """By candidate index of query q, a contribution of each list that contains it, in the order of the lists."""
    found: dict[int, list[Contribution]] = {}
    names, weights = table.lists.names[q], terms.weight[q].tolist()
    candidates, hit = np.nonzero(terms.member[q].T)
    columns = [values[q, hit, candidates].tolist() for values in (terms.rank, terms.base, terms.bonus)]
    for c, i, rank, base, bonus in zip(candidates.tolist(), hit.tolist(), *columns, strict=True):
        found.setdefault(c, []).append(Contribution(names[i], rank, weights[i], base, bonus))
    return found


def _hits(table: CandidateTable, lists: ListArrays, method: FusionMethod, list_config: ListsConfig) -> Hits:
    """The hits of the lists that the method fuses, ranked as `ties` of each list says."""
    by_rank = method.reads == "ranks"
    ties = tuple([getattr(getattr(list_config, name), "ties", "ordinal") for name in SOURCES])
    return memoized(lists.memo, "hits", (by_rank, ties), lambda: find_hits(table, lists, by_rank, ties))


@dataclass(frozen=True, eq=False)
class _Extra:
    """Bonuses and boost, None if there are none. `bonus` is per hit of `Hits.top`, the others (Q, C)."""

    bonus: Floats | None
    best_rank: Floats | None
    importance: Floats | None
    boost: Floats | None


def _extra(table: CandidateTable, hits: Hits, method: FusionMethod, config: FusionConfig) -> _Extra:
    bonus = best_rank = importance = boost = None
    top, ranks = config.top_rank_bonus, config.importance_bonus_ranks
    if method.uses(TOP_RANK_BONUS) and (top.rank1 or top.rank2_3):
        if top.mode == "per_list":
            bonus = _top_rank_bonus(hits.rank[hits.top], config)
        else:
            best_rank = _top_rank_bonus(hits.best_rank, config)
    if method.uses(IMPORTANCE_BONUS) and ranks and table.important.any():
        step = share_of_first(config) - share_of_first(config, ranks)
        importance = np.where(table.important & hits.alive, step, 0.0)
    if config.multi_list_boost:
        boost = 1 + config.multi_list_boost * np.maximum(hits.lists - 1, 0)
    return _Extra(bonus, best_rank, importance, boost)


def _raw(table: CandidateTable, hits: Hits, base: Floats, extra: _Extra, method: FusionMethod) -> Floats:
    """(Q, C) boost * (sum or max of the bases + bonuses); 0 for a candidate in no list."""
    size = table.valid.size
    raw: Floats = np.zeros(size)
    terms = base
    if extra.bonus is not None:
        terms = base.copy()  # the trace shows base and bonus apart
        terms[hits.top] += extra.bonus
    if method.combine == "sum":
        raw = np.asarray(np.bincount(hits.cell, weights=terms, minlength=size), dtype=np.float64)
    elif len(hits.cells):
        raw[hits.cells] = np.maximum.reduceat(terms, hits.first)
    raw = raw.reshape(table.shape)
    for more in (extra.best_rank, extra.importance):
        raw = raw if more is None else raw + more
    return raw if extra.boost is None else extra.boost * raw


def _terms(
    table: CandidateTable,
    lists: ListArrays,
    hits: Hits,
    weight: Floats,
    base: Floats,
    extra: _Extra,
    config: FusionConfig,
) -> Terms:
    """The terms as dense arrays, for the trace."""
    shape, width = lists.present.shape, table.shape[1]
    place = hits.slot * width + (hits.cell % width if width else hits.cell)
    member, rank = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=np.int64)
    bases, bonus = np.zeros(shape), np.zeros(shape)
    member.reshape(-1)[place], rank.reshape(-1)[place], bases.reshape(-1)[place] = True, hits.rank, base
    if extra.bonus is not None:
        bonus.reshape(-1)[place[hits.top]] = extra.bonus
    nothing = np.zeros(table.shape)
    return Terms(
        member,
        rank,
        weight,
        bases,
        bonus,
        nothing if extra.best_rank is None else extra.best_rank,
        nothing if extra.importance is None else extra.importance,
        nothing + 1 if extra.boost is None else extra.boost,
    )


def _weights(table: CandidateTable, list_config: ListsConfig, variants: VariantWeights) -> Floats:
    """(Q, L) list weight * variant weight."""
    by_source = np.array([getattr(list_config, name).weight for name in SOURCES] + [0.0])
    by_kind = np.array([getattr(variants, f"{kind}_weight") for kind in VARIANT_KINDS] + [1.0])
    per_variant = PER_VARIANT[table.lists.source]
    return by_source[table.lists.source] * np.where(per_variant, by_kind[table.lists.kind], 1.0)


def _top_rank_bonus(rank: Floats | Ints, config: FusionConfig) -> Floats:
    bonus = config.top_rank_bonus
    return np.where(rank == 1, bonus.rank1, np.where(rank <= 3, bonus.rank2_3, 0.0))


def _minmax(raw: Floats, hits: Hits) -> Floats:
    """(Q, C) scaled to 0 to 1 over the candidates with a hit; 1 if all are equal."""
    low, spread = np.zeros((len(raw), 1)), np.zeros((len(raw), 1))
    if len(hits.cells):
        held = raw.reshape(-1).take(hits.cells)
        least = np.minimum.reduceat(held, hits.starts)
        range_of = np.maximum.reduceat(held, hits.starts) - least
        low[hits.queries, 0], spread[hits.queries, 0] = np.where(range_of > 0, least, 0.0), range_of
    normalised: Floats = raw - low
    normalised /= np.where(spread > 0, spread, 1.0)
    normalised[spread[:, 0] == 0] = 1.0
    return normalised


def _bypass(terms: Terms, table: CandidateTable, lists: ListArrays, bypassed: Bools) -> Terms:
    """For bypassed queries one contribution, base = the single list's score."""
    one, two, present = bypassed[:, None], bypassed[:, None, None], lists.present
    return Terms(
        member=np.where(two, present, terms.member),
        rank=np.where(two & present, lists.places.position, terms.rank),
        weight=np.where(one, 1.0, terms.weight),
        base=np.where(two, np.where(present, lists.score, 0.0), terms.base),
        bonus=np.where(two, 0.0, terms.bonus),
        best_rank_bonus=np.where(one, 0.0, terms.best_rank_bonus),
        importance_bonus=np.where(one, 0.0, terms.importance_bonus),
        boost=np.where(one, 1.0, terms.boost),
    )


def _warnings(
    table: CandidateTable,
    present: Bools,
    method: FusionMethod,
    config: FusionConfig,
    raw: Floats,
    alive: Bools,
    bypassed: Bools,
) -> Callable[[int], list[str]]:
    def warnings(q: int) -> list[str]:
        found = []
        left_out = NOT_RELEVANCE[table.lists.source[q]] & present[q].any(axis=1)
        if method.reads == "scores" and left_out.any():
            names = ", ".join(list_label(table.lists.names[q][int(i)]) for i in np.flatnonzero(left_out))
            found.append(f"{method.name} leaves out {names}: its scores are not relevance")
        living = raw[q, alive[q]]
        if len(living) > 1 and config.normalize == "minmax" and living.min() == living.max() and not bypassed[q]:
            found.append("every candidate has the same fused score; minmax makes all of them 1.0")
        if present[q].any(axis=1).sum() == 1 and not bypassed[q]:
            found.append("one non-empty list: the fused score says only the rank in it")
        return found

    return warnings


def _apply(given: StageInput) -> FusionArrays:
    config = given.config
    return apply_fusion(given.table, given.lists, given.ranking, config.fusion, config.lists, config.variants)


def _words(row: FusionRow, stage: StageTrace[FusionRow, FusionFields]) -> str:
    """ "3rd of 20: vector 0.0159 + lexical 0.0164 + score blend 0.12 = 0.1523": the addends of the score."""
    given = [
        f"{'' if part.list is None else list_label(part.list)} {'' if part.kind == 'base' else part.kind} {part.value:.4f}"
        for part in score_parts(row, stage.fields)
    ]
    total = f" = {row.score:.4f}" if len(given) > 1 else ""
    return f"{ordinal(row.rank_out or 0)} of {stage.candidates_out}: {' + '.join(' '.join(part.split()) for part in given)}{total}"


def _applies(parameter: str) -> Callable[[PipelineConfig], bool]:
    return lambda config: fusion_method(config.fusion).uses(parameter)


FUSION = Stage(
    name="fusion",
    title="Fusion",
    description="Many lists become one score.",
    works_on="ranking",
    apply=_apply,
    row=FusionRow,
    fields=FusionFields,
    parts=(
        Switch(
            "top-rank bonus",
            {"fusion.top_rank_bonus.rank1": 0.0, "fusion.top_rank_bonus.rank2_3": 0.0},
            applies=_applies(TOP_RANK_BONUS),
        ),
        Switch("multi-query boost", {"fusion.multi_list_boost": 0.0}, title="multi-list boost"),
        Switch("importance bonus", {"fusion.importance_bonus_ranks": 0}, applies=_applies(IMPORTANCE_BONUS)),
        Switch("score blend", {"fusion.score_blend": 0.0}),
    ),
    words=_words,
)
