"""fusion: many ranked lists become one score.

    weight  = list weight * variant weight          (recency, access, relations: * 1)
    base    = what the method makes of weight and rank or score (pipeline/fusion_methods); with rrf, plus
              the top-rank bonus, not weighted:
                per_list  in every list             (CEMS)
                best_rank once, by the best rank    (QMD)
              and, for importance = high, 1/(k+1) - 1/(k+1+importance_bonus_ranks)
    raw     = boost * (sum or max of base + bonuses) / divisor, at most the cap
              boost = 1 + multi_list_boost * (lists containing it - 1)
              divisor = 1, or the sum of the weights of the query's lists that have a hit (mem0)
              an importance floor adds what the lists of relevance lack to it, for importance = high (engram)
    score   = (1 - score_blend) * normalised + score_blend * best vector/lexical list score (0 if in neither)

Ranks are 1-based in every list. Equal scores share a rank under `dense` ties (1 1 2) and `competition` (1 1 3). A list contributes nothing
to a memory that it does not contain. Methods that read scores leave recency and access out: their scores are dates and counts, not
relevance, unless a normalisation makes it that. `candidates_from` names the lists whose hits may enter. With `single_list: bypass` and
one non-empty list, score and order are that list's own (ACE).

Hits are flat arrays, because most cells of (query, list, candidate) are empty. They do not depend on weights, so configs with the same
lists and ties share them.

Source: CEMS plan, phase 3; QMD; two-stage RRF plan; docs/internals/specification.md, "fusion".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from operator import attrgetter
from typing import Literal

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.config.sections import FusionConfig, ListsConfig
from cems_workbench.pipeline.evidence import VARIANT_KINDS
from cems_workbench.pipeline.fusion_methods import (
    Contribution,
    FusionMethod,
    Hits,
    fusion_method,
    hit_bases,
    share_of_first,
)
from cems_workbench.pipeline.list_sources import LIST_SOURCES, SOURCES, Source, list_label, ordinal
from cems_workbench.pipeline.stages.lists import NORMALISED
from cems_workbench.pipeline.stages.result import PartColumn, StageArrays, StageFields, StageRow, StageTrace, rows_of
from cems_workbench.pipeline.stages.stage import Stage, StageInput, Switch
from cems_workbench.pipeline.table import (
    Bools,
    CandidateTable,
    Floats,
    Ints,
    ListArrays,
    Places,
    along,
    memoized,
    ranked,
)

# Looked up by source index; the last entry is for padding, whose source is -1.
NOT_RELEVANCE = np.array([not source.relevance for source in LIST_SOURCES] + [False])
PER_VARIANT = np.array([source.per_variant for source in LIST_SOURCES] + [False])
TIED = tuple(name for name in SOURCES if "ties" in type(getattr(ListsConfig(), name)).model_fields)
"""Sources whose equal scores a config ranks."""
# Every replay reads these of all lists, so one call does it.
_ties = attrgetter(*(f"{name}.ties" for name in TIED))
_list_weights = attrgetter(*(f"{name}.weight" for name in SOURCES))
_kind_weights = attrgetter(*(f"{kind}_weight" for kind in VARIANT_KINDS))
ONLY_METADATA = tuple(source.name for source in LIST_SOURCES if not source.relevance)
RELATIONS = SOURCES.index("relations")
TOP_RANK_BONUS, IMPORTANCE_BONUS = "fusion.top_rank_bonus", "fusion.importance_bonus_ranks"


@dataclass(frozen=True, slots=True)
class FusionRow(StageRow):
    """Terms of the raw score. raw = boost_factor * (sum or max of base + bonus, + best_rank_bonus + importance_bonus +
    importance_floor) / divisor, at most the cap."""

    raw: float
    normalized: float
    contributions: tuple[Contribution, ...]
    """One for each list that contains the candidate."""
    best_rank_bonus: float
    importance_bonus: float
    boost_factor: float
    best_list_score: float
    importance_floor: float = 0.0
    """What `fusion.importance_floor` adds."""


@dataclass(frozen=True, slots=True)
class FusionFields(StageFields):
    """The method; whether a single list's own scores were used instead; how contributions combine."""

    method: str = "rrf"
    bypassed: bool = False
    combine: Literal["sum", "max"] = "sum"
    score_blend: float = 0.0
    """The share of the best list score in the score; 0 if bypassed."""
    divisor: float = 1.0
    """What every raw score of the query was divided by."""
    cap: float | None = None
    """The largest raw score; None without a limit, or if bypassed."""


PartKind = Literal["base", "top-rank bonus", "importance bonus", "importance floor", "score blend", "minmax"]


def _part_columns(
    terms: Terms,
    names: Sequence[str],
    q: int,
    raw: Floats,
    normalised: Floats,
    best: Floats,
    alive: Bools,
    fields: FusionFields,
) -> list[PartColumn]:
    """The addends of the scores of query q after fusion, NaN for 0: those of the lists in their order, then the others.

    Each term of the raw score is multiplied by normalised / sum of the terms and by 1 - score_blend, so that boost, divisor and cap are in
    all of them. With combine = max only the largest counts. If the terms come to 0, what minmax makes of that is a separate addend.
    """
    member, bases, bonuses = terms.member[q], terms.base[q], terms.bonus[q]
    if fields.combine == "max":
        largest = np.where(member, bases + bonuses, -np.inf).argmax(axis=0) if len(member) else np.zeros(0, np.int64)
        member = member & (np.arange(len(member))[:, None] == largest)
    bases, bonuses = np.where(member, bases, 0.0), np.where(member, bonuses, 0.0)
    alone = (terms.best_rank_bonus[q], terms.importance_bonus[q], terms.importance_floor[q])
    every = [*[values for pair in zip(bases, bonuses, strict=True) for values in pair], *alone]
    total, most = np.zeros_like(raw), np.zeros_like(raw)
    for values in every:  # one after the other, as `sum` adds them: another order would round differently
        total, most = total + values, np.maximum(most, np.abs(values))
    share = 1 - fields.score_blend
    # Terms that cancel out leave rounding behind, which is no scale.
    counts = (np.abs(total) > 1e-12 * most) & (raw != 0)
    scale = np.divide(share * normalised, total, out=np.zeros_like(raw), where=counts)
    columns: list[tuple[PartKind, str | None, Floats]] = []
    for name, base, bonus in zip(names, bases, bonuses, strict=False):  # the arrays are padded
        columns += [("base", name, scale * base), ("top-rank bonus", name, scale * bonus)]
    kinds: tuple[PartKind, ...] = ("top-rank bonus", "importance bonus", "importance floor")
    columns += [(kind, None, scale * values) for kind, values in zip(kinds, alone, strict=True)]
    columns.append(("score blend", None, fields.score_blend * best))
    columns.append(("minmax", None, np.where(counts, 0.0, share * normalised)))
    return [
        PartColumn(kind, name, np.where(alive & (values != 0), values, np.nan))
        for kind, name, values in columns
        if values.any()
    ]


@dataclass(eq=False, kw_only=True, slots=True)
class FusionArrays(StageArrays[FusionRow, FusionFields]):
    """Also (Q, C) raw scores and best list scores."""

    raw: Floats
    best_list_score: Floats


def find_hits(
    table: CandidateTable, lists: ListArrays, left_out: Collection[Source], ties: Mapping[Source, str]
) -> Hits:
    """The hits of the lists but those of the sources `left_out`. `ties` by source, ordinal where there are none."""
    source = table.lists.source
    member = lists.present
    if left_out:
        member = member & ~np.array([*(name in left_out for name in SOURCES), False])[source][:, :, None]
    queries, width = table.shape
    q, c, i = np.nonzero(member.transpose(0, 2, 1))
    places = lists.places
    # The extra entry serves source -1, the padding of queries with fewer lists.
    dense = np.array([*(ties.get(name) == "dense" for name in SOURCES), False])
    rank: Ints = np.where(dense[source[q, i]], places.dense[q, i, c], places.position[q, i, c])
    if "competition" in ties.values():
        shared = np.array([*(ties.get(name) == "competition" for name in SOURCES), False])[source[q, i]]
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
    importance_floor: Floats
    boost: Floats


def apply_fusion(given: StageInput) -> FusionArrays:
    """Fuse the lists into one ranking."""
    table, lists, before = given.table, given.lists, given.ranking
    config, list_config = given.config.fusion, given.config.lists
    method, present = fusion_method(config), lists.present
    hits = _hits(table, lists, method, list_config)
    weight = _weights(table, given.by_row or [given.config])
    alive, best = hits.alive, best_list_score(table, lists, config.blend_with)
    base, extra = (
        hit_bases(method, hits, weight.reshape(-1).take(hits.slot), config),
        _extra(table, hits, method, config, weight),
    )
    raw, floor = _raw(table, hits, base, extra, method, config)
    if config.candidates_from:
        admitted = _admitted(table, lists, config.candidates_from)
        alive = alive & admitted
        normalised = _minmax_of(raw, alive) if config.normalize == "minmax" else raw
    else:
        normalised = _minmax(raw, hits) if config.normalize == "minmax" else raw
    score = (1 - config.score_blend) * normalised
    if config.score_blend:
        score += config.score_blend * best
    bypassed = _bypassed(table, lists, config, list_config)
    if bypassed.any():
        alone = np.where(present, lists.score, 0.0).sum(axis=1)
        raw, normalised, score = (np.where(bypassed[:, None], alone, value) for value in (raw, normalised, score))
        alone_alive = present.any(axis=1)
        if config.candidates_from:
            alone_alive = alone_alive & admitted
        alive = np.where(bypassed[:, None], alone_alive, alive)

    @cache
    def terms() -> Terms:
        dense = _terms(table, lists, hits, weight, base, extra, floor)
        return _bypass(dense, table, lists, bypassed) if bypassed.any() else dense

    def reason(q: int, c: int) -> str:
        if config.candidates_from and (hits.alive[q, c] or bypassed[q]):
            return f"only in lists whose hits cannot enter; candidates come from {', '.join(config.candidates_from)}"
        return f"only in recency or access lists, which {config.method} leaves out"

    def fields(q: int) -> FusionFields:
        return FusionFields(
            config.method,
            bool(bypassed[q]),
            "sum" if bypassed[q] else method.combine,
            0.0 if bypassed[q] else config.score_blend,
            1.0 if bypassed[q] or extra.divisor is None else float(extra.divisor[q]),
            None if bypassed[q] else config.cap,
        )

    return FusionArrays(
        entered=before.alive,
        before=before,
        after=ranked(score, alive, _ties_of_scores(table, lists, config)),
        row=lambda q: rows_of(
            FusionRow,
            raw,
            normalised,
            lambda q: contributions(table, terms(), q),
            terms().best_rank_bonus,
            terms().importance_bonus,
            terms().boost,
            best,
            terms().importance_floor,
        )(q),
        fields=fields,
        parts=lambda q: _part_columns(
            terms(), table.lists.names[q], q, raw[q], normalised[q], best[q], alive[q], fields(q)
        ),
        reason=reason,
        warnings=partial(
            _warnings, table, present, method, config, raw, alive, bypassed, left_out_sources(method, list_config)
        ),
        raw=raw,
        best_list_score=best,
    )


def left_out_sources(method: FusionMethod, config: ListsConfig) -> tuple[Source, ...]:
    """The sources whose lists a method cannot fuse: it reads scores, and theirs are dates or counts that are not normalised."""
    if method.reads == "ranks":
        return ()
    return tuple([name for name in ONLY_METADATA if getattr(getattr(config, name), "normalization", "none") == "none"])


def linear_in_weights(config: FusionConfig) -> bool:
    """Whether raw scores are straight lines in each list and variant weight, the top-rank bonuses and the boost."""
    return (
        fusion_method(config).linear
        and config.divisor == "none"
        and config.cap is None
        and config.importance_floor is None
    )


def _admitted(table: CandidateTable, lists: ListArrays, sources: tuple[Source, ...]) -> Bools:
    def admitted() -> Bools:
        counts = np.array([*(name in sources for name in SOURCES), False])
        inside: Bools = (lists.present & counts[table.lists.source][:, :, None]).any(axis=1)
        return inside

    return memoized(lists.memo, "admitted", sources, admitted)


def _bypassed(table: CandidateTable, lists: ListArrays, config: FusionConfig, list_config: ListsConfig) -> Bools:
    if config.single_list == "fuse":
        return np.zeros(len(lists.present), dtype=bool)
    alone: Bools = memoized(lists.memo, "single", None, lambda: lists.present.any(axis=2).sum(axis=1) == 1)
    if config.single_list == "bypass_searched":
        # CEMS has lists of the other sources only when they are not empty.
        alone = alone & ((lists.active & PER_VARIANT[table.lists.source]).sum(axis=1) == 1)
    if lists.own_scale is not None:
        # Its scores mean nothing to the stages that follow, so its ranks are fused.
        alone = alone & ~(lists.own_scale[:, :, None] & lists.present).any(axis=(1, 2))
    return alone


def best_list_score(table: CandidateTable, lists: ListArrays, of: str = "searched") -> Floats:
    """(Q, C) the largest score in any list of the query's variants, with `all` in any whose score is relevance; 0 in none."""

    def best() -> Floats:
        scoring = _scoring(table, lists, of)
        if lists.own_scale is not None:
            scoring = scoring & ~lists.own_scale[:, :, None]
        largest: Floats = np.where(scoring, lists.score, 0.0).max(axis=1, initial=0.0)
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


def _ties_of_scores(table: CandidateTable, lists: ListArrays, config: FusionConfig) -> Callable[[], Ints] | None:
    """What orders equal scores, (Q, C), smaller first; None: memory ids, the order of the candidates."""
    if config.tie_break == "id":
        return None
    if config.tie_break == "newest":
        return lambda: _newest(table)
    return lambda: first_seen(table, lists, config.seen_first)


def _newest(table: CandidateTable) -> Ints:
    """(Q, C) place of each candidate by date of creation, the newest first, then by id downwards; those without a date come last."""

    def places() -> Ints:
        age = np.where(np.isnan(table.created), np.inf, -table.created)
        # Read backwards, so that the stable sort leaves equal dates in falling order of ids.
        order = table.shape[1] - 1 - np.argsort(age[:, ::-1], axis=1, kind="stable")
        place = np.empty(table.shape, dtype=np.int64)
        np.put_along_axis(place, order, np.arange(table.shape[1])[None, :], axis=1)
        return place

    return memoized(table.memo, "newest", None, places)


def contributions(table: CandidateTable, terms: Terms, q: int) -> list[tuple[Contribution, ...]]:
    """(C) of query q, a contribution of each list that contains the candidate, in the order of the lists."""
    found: list[list[Contribution]] = [[] for _ in range(table.shape[1])]
    names, weights = table.lists.names[q], terms.weight[q].tolist()
    candidates, hit = np.nonzero(terms.member[q].T)
    columns = [values[q, hit, candidates].tolist() for values in (terms.rank, terms.base, terms.bonus)]
    for c, i, rank, base, bonus in zip(candidates.tolist(), hit.tolist(), *columns, strict=True):
        found[c].append(Contribution(names[i], rank, weights[i], base, bonus))
    return list(map(tuple, found))


def _hits(table: CandidateTable, lists: ListArrays, method: FusionMethod, list_config: ListsConfig) -> Hits:
    """The hits of the lists that the method fuses, ranked as `ties` of each list says."""
    left_out = left_out_sources(method, list_config)
    ties = _ties(list_config)
    return memoized(
        lists.memo,
        "hits",
        (left_out, ties),
        lambda: find_hits(table, lists, left_out, dict(zip(TIED, ties, strict=True))),
    )


@dataclass(frozen=True, eq=False)
class _Extra:
    """Bonuses, boost and divisor, None if there are none. `bonus` is per hit of `Hits.top`, `divisor` (Q), the others
    (Q, C). `floor` is (Q, C) too: what the relevance of a candidate is at least, and `relevance` (H) says which hits
    are relevance."""

    bonus: Floats | None
    best_rank: Floats | None
    importance: Floats | None
    boost: Floats | None
    divisor: Floats | None
    floor: Floats | None
    relevance: Bools | None


def _extra(table: CandidateTable, hits: Hits, method: FusionMethod, config: FusionConfig, weight: Floats) -> _Extra:
    bonus = best_rank = importance = boost = divisor = floor = relevance = None
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
    if config.divisor == "active_lists":
        most = np.array([source.most for source in LIST_SOURCES] + [1.0])
        divisor = _divisor(hits, weight * most[table.lists.source])
    if config.importance_floor is not None and table.important.any():
        floor = np.where(table.important & hits.alive, config.importance_floor, -np.inf)
        relevance = ~NOT_RELEVANCE[table.lists.source.reshape(-1).take(hits.slot)]
    return _Extra(bonus, best_rank, importance, boost, divisor, floor, relevance)


def _divisor(hits: Hits, weight: Floats) -> Floats:
    """(Q) the sum of the weights of the lists that have a hit, each times its largest score; 1 where that is 0."""
    queries, count = weight.shape
    filled = np.unique(hits.slot)
    total = (
        np.bincount(filled // count, weights=weight.reshape(-1)[filled], minlength=queries)
        if count
        else np.ones(queries)
    )
    divisor: Floats = np.where(total > 0, total, 1.0)
    return divisor


def _raw(
    table: CandidateTable, hits: Hits, base: Floats, extra: _Extra, method: FusionMethod, config: FusionConfig
) -> tuple[Floats, Floats | None]:
    """(Q, C) boost * (sum or max of the bases + bonuses) / divisor, at most the cap, and what the floor adds. 0 for a
    candidate in no list."""
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
    added = None if extra.floor is None else _below_floor(table, hits, terms, extra, method)
    raw = raw if added is None else raw + added
    raw = raw if extra.boost is None else extra.boost * raw
    raw = raw if extra.divisor is None else raw / extra.divisor[:, None]
    return (raw if config.cap is None else np.minimum(raw, config.cap)), added


def _below_floor(table: CandidateTable, hits: Hits, terms: Floats, extra: _Extra, method: FusionMethod) -> Floats:
    """(Q, C) what a candidate of high importance lacks to the floor in the lists that measure relevance."""
    assert extra.floor is not None and extra.relevance is not None
    cell, term = hits.cell[extra.relevance], terms[extra.relevance]
    if method.combine == "sum":
        relevance = np.bincount(cell, weights=term, minlength=table.valid.size)
    else:
        relevance = np.full(table.valid.size, -np.inf)
        np.maximum.at(relevance, cell, term)
        relevance[np.isinf(relevance)] = 0.0
    lacking: Floats = np.maximum(extra.floor - relevance.reshape(table.shape), 0.0)
    return lacking


def _terms(
    table: CandidateTable,
    lists: ListArrays,
    hits: Hits,
    weight: Floats,
    base: Floats,
    extra: _Extra,
    floor: Floats | None,
) -> Terms:
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
        nothing if floor is None else floor,
        nothing + 1 if extra.boost is None else extra.boost,
    )


def _weights(table: CandidateTable, configs: Sequence[PipelineConfig]) -> Floats:
    """(Q, L) list weight * variant weight; of one config for all queries, or one each."""
    by_source = np.array([[*_list_weights(one.lists), 0.0] for one in configs])
    by_kind = np.array([[*_kind_weights(one.variants), 1.0] for one in configs])
    rows = np.arange(len(configs))[:, None]
    per_variant = PER_VARIANT[table.lists.source]
    weight: Floats = by_source[rows, table.lists.source] * np.where(per_variant, by_kind[rows, table.lists.kind], 1.0)
    return weight


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


def _minmax_of(raw: Floats, alive: Bools) -> Floats:
    """(Q, C) as `_minmax`, over some of the candidates with a hit."""
    low = np.where(alive, raw, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    spread = np.where(alive, raw, -np.inf).max(axis=1, keepdims=True, initial=-np.inf) - low
    some = spread > 0
    normalised: Floats = np.where(some, raw - np.where(some, low, 0.0), 1.0) / np.where(some, spread, 1.0)
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
        importance_floor=np.where(one, 0.0, terms.importance_floor),
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
    ignored: Collection[Source],
    q: int,
) -> list[str]:
    found = []
    left_out = np.array([*(name in ignored for name in SOURCES), False])[table.lists.source[q]] & present[q].any(axis=1)
    if left_out.any():
        names = ", ".join(list_label(table.lists.names[q][int(i)]) for i in np.flatnonzero(left_out))
        found.append(f"{method.name} leaves out {names}: its scores are not relevance")
    living = raw[q, alive[q]]
    if len(living) > 1 and config.normalize == "minmax" and living.min() == living.max() and not bypassed[q]:
        found.append("every candidate has the same fused score; minmax makes all of them 1.0")
    if method.reads == "ranks" and present[q].any(axis=1).sum() == 1 and not bypassed[q]:
        found.append("one non-empty list: the fused score says only the rank in it")
    if alive[q].any() and not (alive[q] & table.important[q]).any():
        found += [f"no candidate is of high importance: {what} does nothing" for what in _of_importance(config)]
    return found


def _of_importance(config: FusionConfig) -> list[str]:
    bonus = [f"the bonus of {config.importance_bonus_ranks} ranks"] if config.importance_bonus_ranks else []
    return bonus + ([] if config.importance_floor is None else [f"the floor of {config.importance_floor:g}"])


def _words(row: FusionRow, stage: StageTrace[FusionRow, FusionFields]) -> str:
    """ "3rd of 20: vector 0.0159 + lexical 0.0164 + score blend 0.12 = 0.1523": the addends of the score."""
    given = [
        f"{'' if part.list is None else list_label(part.list)} {'' if part.kind == 'base' else part.kind} {part.value:.4f}"
        for part in stage.score_parts(row.memory_id)
    ]
    total = f" = {row.score:.4f}" if len(given) > 1 else ""
    return f"{ordinal(row.rank_out or 0)} of {stage.candidates_out}: {' + '.join(' '.join(part.split()) for part in given)}{total}"


def _applies(parameter: str) -> Callable[[PipelineConfig], bool]:
    return lambda config: fusion_method(config.fusion).uses(parameter)


FUSION = Stage(
    name="fusion",
    title="Fusion",
    description="Many lists become one score.",
    reads=(
        "fusion",
        *(f"lists.{name}.ties" for name in TIED),
        *(f"lists.{name}.normalization" for name in ONLY_METADATA if name in NORMALISED),
    ),
    reads_by_row=(
        *(f"lists.{name}.weight" for name in SOURCES),
        *(f"variants.{kind}_weight" for kind in VARIANT_KINDS),
    ),
    apply=apply_fusion,
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
