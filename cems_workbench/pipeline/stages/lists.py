"""lists: which gathered lists take part, cut to their depth, with scores made comparable.

A list takes part if its source is enabled and its query variant is not switched off. It is cut to its depth first and
normalised after (`NORMALISATIONS`), lexical scores by default, the others if a config says so. Otherwise scores are not changed, not
even negative cosines, unless `lists.vector.scale` puts the vector lists on
another scale (`list_sources`), which comes before the normalisation. Recency and access rank every gathered candidate, or with
`lists.metadata_ranks: in_use` those alone that another list in use returns.

Source: CEMS plan, phase 2; docs/internals/specification.md, "lists".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from cems_workbench.config import PipelineConfig, list_depths
from cems_workbench.config.fields import Section
from cems_workbench.config.sections import ListsConfig
from cems_workbench.pipeline import nested
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.list_sources import (
    INSIDE,
    LIST_SOURCES,
    NORMALISATIONS,
    SCALE_WORDS,
    SOURCES,
    VECTOR_SCALES,
    Source,
    list_index,
    list_label,
    ordinal,
    own_scale,
    scale_of,
)
from cems_workbench.pipeline.stages.query import aggregations, is_aggregation
from cems_workbench.pipeline.stages.result import StageArrays, StageFields, StageRow, StageTrace, rows_of
from cems_workbench.pipeline.stages.stage import Stage, StageInput, Switch
from cems_workbench.pipeline.table import Bools, CandidateTable, Floats, Ints, ListArrays, Places, memoized, unranked

VECTOR, TS_RANK, HYBRID = SOURCES.index("vector"), SOURCES.index("ts_rank"), SOURCES.index("hybrid")
NORMALISED = tuple(source for source in SOURCES if "normalization" in type(getattr(ListsConfig(), source)).model_fields)
"""Lists whose scores a config can normalise."""
_FOR_FUSION = ("weight", "ties")
_READS = tuple(
    f"lists.{name}" if not isinstance(section, Section) else f"lists.{name}.{own}"
    for name, section in ListsConfig()
    for own in (type(section).model_fields if isinstance(section, Section) else ("",))
    if own not in _FOR_FUSION or name == "source_hybrid"  # which only shows its list at weight 0
)
# Every replay reads these of all lists, so one call does it.
_switches = attrgetter(*(f"{source}.enabled" for source in SOURCES))
_FUSIONS = tuple((SOURCES.index(one.name), one.name) for one in LIST_SOURCES if one.engine_fusion)
_methods = attrgetter(*(f"{source}.normalization" for source in NORMALISED))
ONLY_RANKED = "only recency or access lists have it, and they rank what another list in use returns"
"""Why a candidate is dropped that is in no other list (`lists.metadata_ranks: in_use`)."""
# Looked up by source index; the last entry is for padding, whose source is -1.
ONLY_RANKS = np.array([not source.finds for source in LIST_SOURCES] + [False])


def shown_only(config: ListsConfig, source: Source) -> bool:
    """Whether lists of this source are on and have no weight: the fused answer of another system is then shown, and takes no part."""
    if all(source != name for _, name in _FUSIONS):
        return False
    section = getattr(config, source)
    return bool(section.enabled and section.weight == 0)


def _enabled(config: ListsConfig) -> tuple[bool, ...]:
    """By source, whether its lists take part."""
    switches: tuple[bool, ...] = _switches(config)
    for place, name in _FUSIONS:
        if shown_only(config, name):
            switches = (*switches[:place], False, *switches[place + 1 :])
    return switches


@dataclass(frozen=True, slots=True)
class ListEntry:
    """A candidate in one list: its 1-based rank and raw score, and the normalised one if the list includes it (`kept`).
    A list of an external trace may have no scores: then both are None. `chunk` is the chunk that was found, by its
    `seq`, and `chunk_rank` its place among the chunks of the list; None if the memory was searched as a whole."""

    list: str
    rank: int
    raw: float | None
    normalized: float | None
    kept: bool
    chunk: int | None = None
    chunk_rank: int | None = None


@dataclass(frozen=True, slots=True)
class ListsRow(StageRow):
    """The lists that returned the candidate, in the order of the evidence."""

    lists: tuple[ListEntry, ...]


@dataclass(frozen=True, slots=True)
class ListUse:
    """One gathered list: whether it takes part, and how many of its hits are within its depth. `variant` is that of the query."""

    name: str
    source: Source
    variant: int | None
    active: bool
    gathered: int
    used: int


@dataclass(frozen=True, slots=True)
class ListsFields(StageFields):
    """Every gathered list."""

    lists: tuple[ListUse, ...] = ()

    @property
    def in_use(self) -> list[str]:
        """Names of the lists that take part and have a hit within their depth."""
        return [entry.name for entry in self.lists if entry.active and entry.used]

    def shown(self, config: PipelineConfig, inner: bool = False) -> list[str]:
        """Names of the lists in use, and of those that are only shown; with `inner` also of those inside a hybrid list."""
        return [
            entry.name
            for entry in self.lists
            if (entry.used if entry.active else entry.gathered and shown_only(config.lists, entry.source))
            or (inner and self.inside(entry) is not None)
        ]

    def inside(self, entry: ListUse) -> str | None:
        """The hybrid list that a list inside belongs to; None for every other list."""
        if entry.active or entry.source not in INSIDE:
            return None
        same = [one for one in self.lists if one.variant == entry.variant and one.active]
        return next((one.name for one in same if one.source == "hybrid"), None)


def apply_lists(given: StageInput) -> StageArrays[ListsRow, ListsFields]:
    """Select, cut and normalise the lists. Weights and ties are fusion's, so that most configs share their lists, which
    are kept with the table."""
    table, config, depths = given.table, given.config.lists, list_depths(given.config)
    several = aggregations(table, given.config.query.detectors)
    made_with, places = nested.places(table, config, several)
    scales = (*_normalisations(config), config.vector.scale, config.ts_rank.chunk_depth, config.metadata_ranks)
    shown = tuple(shown_only(config, name) for _, name in _FUSIONS)
    key = (made_with, _enabled(config), shown, scales, tuple(depths.items()), given.variants_off, given.lists_off)

    def prepared() -> StageArrays[ListsRow, ListsFields]:
        return _prepared(table, places, config, depths, _left_out(given), several)

    return memoized(table.memo, "lists", key, prepared)


def _normalisations(config: ListsConfig) -> tuple[Any, ...]:
    """The normalisation of each list that has one, and the parameters of those that are used."""
    methods = _methods(config)
    own = {"minmax": config.equal_scores, "logistic": config.logistic, "exponential": config.recency.half_life_days}
    return (*methods, *[value for name, value in own.items() if name in methods])


def _left_out(given: StageInput) -> Bools:
    """(Q, L) the lists of variants and names that are off. Lists made from one that is left out are unchanged."""
    lists = given.table.lists
    out: Bools = np.isin(lists.variant, list(given.variants_off))
    for q, listed in enumerate(lists.names if given.lists_off else ()):
        out[q, : len(listed)] |= np.array([name in given.lists_off for name in listed], dtype=bool)
    return out


def _prepared(
    table: CandidateTable,
    places: Places,
    config: ListsConfig,
    depths: Mapping[str, int | None],
    left_out: Bools,
    aggregation: Bools,
) -> StageArrays[ListsRow, ListsFields]:
    lists = table.lists
    # The extra entry serves source -1, the padding of queries with fewer lists.
    enabled = np.array([*_enabled(config), False])
    active = enabled[lists.source] & ~left_out
    depth = np.array(
        [np.inf if depths.get(source) is None else depths[source] for source in SOURCES] + [0], dtype=float
    )
    gathered = places.position > 0
    present = gathered & active[:, :, None] & (places.position <= depth[lists.source][:, :, None])
    by_ts_rank = lists.source == TS_RANK
    if by_ts_rank.any():
        chunk_rank = places.position if places.chunk_rank is None else places.chunk_rank
        # This depth counts chunks, before each memory takes its best.
        present &= ~(by_ts_rank[:, :, None] & (chunk_rank > config.ts_rank.chunk_depth))
    cuts = nested.hybrid_cuts(config.hybrid, aggregation)
    if config.hybrid.enabled:
        at = np.nonzero(present & (lists.source == HYBRID)[:, :, None])
        present[at] = ~nested.past_cuts(places, cuts, *at)
    anywhere: Bools = np.any(gathered, axis=1)
    if config.metadata_ranks == "in_use":
        only_ranks = ONLY_RANKS[lists.source]
        returned = np.any(present & ~only_ranks[:, :, None], axis=1)
        present &= ~only_ranks[:, :, None] | returned[:, None]
        places = _ranked_among(returned, places, only_ranks)
    raw = places.raw
    if config.vector.scale != "cosine":
        by_vector = ((lists.source == VECTOR) & ~own_scale(table))[:, :, None]
        raw = np.where(by_vector, VECTOR_SCALES[config.vector.scale].of_cosine(raw), raw)
    score = np.where(present, raw, 0.0)
    for source in NORMALISED:
        method = getattr(config, source).normalization
        if method == "none":
            continue
        scaled = (lists.source == SOURCES.index(source))[:, :, None] & present
        if scaled.any():
            score = np.where(scaled, NORMALISATIONS[method](raw, scaled, config, table), score)
    # Scores may be negative, so absence cannot be 0.
    best = np.where(present, score, -np.inf).max(axis=1, initial=-np.inf)
    alive: Bools = np.any(present, axis=1)
    return StageArrays(
        entered=anywhere,
        before=unranked(anywhere, np.full(best.shape, np.nan)),
        after=unranked(alive, np.where(alive, best, np.nan)),
        row=rows_of(ListsRow, lambda q: _entries(table, places, present, score, q)),
        fields=partial(_fields, table, places, active, present),
        reason=partial(_reason, table, places, active, depth, config, cuts),
        warnings=partial(_warnings, table, places, config, active, present),
        lists=ListArrays(places, present, score, active, _incomparable(table, config)),
    )


def _incomparable(table: CandidateTable, config: ListsConfig) -> Bools | None:
    """(Q, L) the lists on the source's own scale, unless normalised; None without any."""
    own = own_scale(table)
    return own if config.vector.normalization == "none" and own.any() else None


def _ranked_among(returned: Bools, places: Places, rows: Bools) -> Places:
    """The places with the lists `rows` (Q, L) ranked again among the candidates (Q, C) `returned`."""
    q, i = np.nonzero(rows)
    position, dense = places.position.copy(), places.dense.copy()
    kept = (position[q, i] > 0) & returned[q]
    order = np.argsort(np.where(kept, position[q, i], np.iinfo(np.int64).max), axis=1, kind="stable")
    shared = np.take_along_axis(dense[q, i], order, axis=1)
    ranks = np.zeros_like(shared)
    for new, at in ((position, np.arange(1, shared.shape[1] + 1)), (dense, _counted_changes(shared))):
        np.put_along_axis(ranks, order, np.broadcast_to(at, shared.shape), axis=1)
        new[q, i] = np.where(kept, ranks, 0)
    return replace(places, position=position, dense=dense)


def _counted_changes(values: Ints) -> Ints:
    """(R, C) 1 for the first of a row, and one more wherever the value differs from the one before."""
    first = np.ones((len(values), min(1, values.shape[1])), bool)
    counted: Ints = np.cumsum(np.concatenate((first, values[:, 1:] != values[:, :-1]), axis=1), axis=1)
    return counted


def _reason(
    table: CandidateTable,
    places: Places,
    active: Bools,
    depth: Floats,
    config: ListsConfig,
    cuts: nested.HybridCuts,
    q: int,
    c: int,
) -> str:
    lists = table.lists
    parts, off = [], []
    for i, name in enumerate(lists.names[q]):
        place, source = int(places.position[q, i, c]), lists.source[q, i]
        if source == HYBRID and active[q, i]:
            cut = _hybrid_reason(table, places, cuts, q, i, c)
        elif not place or (not active[q, i] and SOURCES[source] in INSIDE and config.hybrid.enabled):
            cut = None  # of what is inside a hybrid list, that list says why
        elif not active[q, i]:
            why = "it is only shown: its weight is 0" if shown_only(config, SOURCES[source]) else "list is off"
            off.append((f"{list_label(name)}: {why}", bool(ONLY_RANKS[source])))
            continue
        elif source == TS_RANK and place <= depth[source]:
            cut = f"its chunk is past the first {config.ts_rank.chunk_depth}"
        else:
            cut = f"rank {place} is past the depth {depth[source]:g}"
        parts += [f"{list_label(name)}: {cut}"] if cut else []
    found = [words for words, only_ranks in off if not only_ranks]
    return "; ".join(parts + found or [words for words, _ in off]) or ONLY_RANKED


def _hybrid_reason(
    table: CandidateTable, places: Places, cuts: nested.HybridCuts, q: int, i: int, c: int
) -> str | None:
    """The reason why a candidate is not in a hybrid list; None if neither list inside has it."""
    place = int(places.position[q, i, c])
    if place > cuts.memories[q]:
        return f"rank {place} is past the depth {cuts.memories[q]:g}"
    if place:
        chunk = place if places.chunk_rank is None else int(places.chunk_rank[q, i, c])
        return f"its chunk is {ordinal(chunk)}, past the pool of {cuts.pool[q]:g}"
    parts = []
    limits = {"vector": ("by meaning", cuts.by_meaning[q]), "ts_rank": ("by ts_rank", cuts.by_text[q])}
    for j, source in enumerate(table.lists.source[q]):
        inside = limits.get(SOURCES[source]) if source >= 0 else None
        if inside and table.lists.variant[q, j] == table.lists.variant[q, i] and places.position[q, j, c]:
            rank = int((places.position if places.chunk_rank is None else places.chunk_rank)[q, j, c])
            parts.append(f"{ordinal(rank)} {inside[0]}, past the first {inside[1]:g}")
    return " and ".join(parts) or None


def _entries(
    table: CandidateTable, places: Places, present: Bools, score: Floats, q: int
) -> list[tuple[ListEntry, ...]]:
    entries: list[list[ListEntry]] = [[] for _ in range(table.shape[1])]
    candidates, hit = np.nonzero(places.position[q].T)
    columns = [values[q, hit, candidates].tolist() for values in (places.position, places.raw, score, present)]
    names = table.lists.names[q]
    for c, i, rank, raw, scaled, used in zip(candidates.tolist(), hit.tolist(), *columns, strict=True):
        entry = ListEntry(names[i], rank, raw, scaled if used else None, used, *_chunk(places, q, i, c))
        entries[c].append(entry)
    return list(map(tuple, entries))


def _chunk(places: Places, q: int, i: int, c: int) -> tuple[int | None, int | None]:
    """The chunk by which a candidate is in a list, and the chunk's rank; None for a memory that was found as a whole."""
    if places.chunk is None or places.chunk[q, i, c] < 0:
        return None, None
    rank = 0 if places.chunk_rank is None else int(places.chunk_rank[q, i, c])
    return int(places.chunk[q, i, c]), rank or None


def _warnings(
    table: CandidateTable, places: Places, config: ListsConfig, active: Bools, present: Bools, q: int
) -> list[str]:
    found = []
    for i, name in enumerate(table.lists.names[q]):
        if not active[q, i]:
            continue
        size = int(present[q, i].sum())
        source = SOURCES[table.lists.source[q, i]]
        if size == 0 and list_index(name) is None:  # a further one holds what several edges lead to, mostly nothing
            found.append(f"{list_label(name)} is empty{_EMPTY.get(source, '')}")
        elif size == 1 and source in NORMALISED and getattr(config, source).normalization in ("max", "minmax"):
            method = getattr(config, source).normalization
            becomes = 1.0 if method == "max" else config.equal_scores
            found.append(f"{list_label(name)} has one hit, which {method} scales to {becomes} however weak it is")
        raw = source == "vector" and config.vector.normalization == "none"
        own = scale_of(table.notes[q], name) if source == "vector" else "cosine"
        shown_raw = raw and config.vector.scale == "cosine" and own == "cosine"
        if own != "cosine":
            alone = "thresholds, blends and floors" if raw else "the vector floor and abstain.vector"
            found.append(f"{list_label(name)} has {SCALE_WORDS.get(own, own)}, not cosines: {alone} leave it alone")
        negative = int((present[q, i] & (places.raw[q, i] < 0)).sum()) if shown_raw else 0
        if negative:
            found.append(f"{list_label(name)} has {negative} negative cosine{'s' if negative > 1 else ''}, shown raw")
        if ONLY_RANKS[table.lists.source[q, i]] and size:
            found += _ranks_nothing(list_label(name), source, places.raw[q, i, present[q, i]], config)
    ranks_only = ONLY_RANKS[table.lists.source[q]]
    stray = int((present[q].any(axis=0) & ~present[q, ~ranks_only].any(axis=0)).sum())
    if stray:
        found.append(f"{stray} of the candidates only in recency or access lists, gathered for deeper lists than these")
    return found


_EMPTY: Mapping[Source, str] = {
    "recency": ": no candidate has a date of creation, so its weight does nothing",
    "relations": ": no relation leads from the first hits, so its weight does nothing",
}
"""What an empty list lacks."""


def _ranks_nothing(label: str, source: Source, raw: Floats, config: ListsConfig) -> list[str]:
    """A line about a list by metadata in which all have the same value, so that it can order nothing."""
    if len(raw) < 2 or raw.min() < raw.max():
        return []
    value = f"a count of {raw[0]:g}" if source == "access" else "the same date"
    ties = getattr(config, source).ties
    cost = "its ranks are the order of ids" if ties == "ordinal" else "it gives all of them the same rank"
    return [f"{label} tells nothing apart: every candidate has {value}, and {cost}"]


def _fields(table: CandidateTable, places: Places, active: Bools, present: Bools, q: int) -> ListsFields:
    lists = table.lists
    return ListsFields(
        tuple(
            ListUse(
                name=name,
                source=SOURCES[lists.source[q, i]],
                variant=int(lists.variant[q, i]) if lists.variant[q, i] >= 0 else None,
                active=bool(active[q, i]),
                gathered=int((places.position[q, i] > 0).sum()),
                used=int(present[q, i].sum()),
            )
            for i, name in enumerate(lists.names[q])
        )
    )


def hybrid_cuts_of(query: str, config: PipelineConfig, language: str) -> nested.HybridCuts:
    """Cuts of the hybrid lists of one query as typed: arrays of one."""
    asked = is_aggregation(query, config.query.detectors, language)
    return nested.hybrid_cuts(config.lists.hybrid, np.array([asked]))


def inner_ranks(
    evidence: Evidence, config: PipelineConfig, name: str
) -> dict[tuple[str, int | None], tuple[int | None, int | None]]:
    """Of a hybrid list: by memory and chunk, its rank by meaning and by ts_rank within their cuts; empty for other lists."""
    every = nested.with_nested(evidence.lists, evidence.relations)
    rows = (row for row in every if isinstance(row, nested.NestedRow) and row.source == "hybrid")
    row = next((row for row in rows if row.name == name), None)
    if row is None:
        return {}
    cuts = hybrid_cuts_of(evidence.query, config, evidence.language)

    def counted(rank: float, limit: float) -> int | None:
        return int(rank) if rank <= limit and rank < np.inf else None

    return {
        key: (counted(by_meaning, cuts.by_meaning[0]), counted(by_text, cuts.by_text[0]))
        for key, (by_meaning, by_text) in nested.ranks_inside(row).items()
    }


def ranks_text(fields: ListsFields, row: ListsRow | None, absent: Mapping[str, str] | None = None) -> str:
    """ "22nd in vector:0 (0.41), not in lexical:0": a memory's place in each list that takes part; row None: it is in
    none. `absent` says, by list, why the memory is not in it."""
    inside = {entry.list: entry for entry in row.lists if entry.kept} if row else {}
    why = dict(absent or {})
    parts = []
    for listed in fields.lists:
        name = listed.name
        reason = why.pop(name, None)
        if not listed.active:
            continue
        if name in inside:
            raw = inside[name].raw
            scored = "" if raw is None else f" ({raw:.4g})"
            parts.append(f"{ordinal(inside[name].rank)} in {list_label(name)}{scored}")
        elif reason or list_index(name) is None:
            parts.append(f"not in {list_label(name)}" + (f": {reason}" if reason else ""))
    parts += [f"{list_label(name)}: {reason}" for name, reason in why.items()]  # lists that were not searched
    return ", ".join(parts) or "no list takes part"


def _words(row: ListsRow, stage: StageTrace[ListsRow, ListsFields]) -> str:
    return ranks_text(stage.fields, row)


LISTS = Stage(
    name="lists",
    title="Lists",
    description="Ranked lists that take part, cut to their depth and normalised.",
    works_on="lists",
    reads=(*_READS, "query.detectors", "assembly.limit", "rerank.oversample_factor"),
    apply=apply_lists,
    row=ListsRow,
    fields=ListsFields,
    sections={"variants": "Variant weights"},
    parts=tuple(Switch(f"{source} list", {f"lists.{source}.enabled": False}) for source in SOURCES),
    words=_words,
    detail=lambda row, config: ", ".join(
        f"{list_label(entry.list)} {entry.normalized:.4f}" for entry in row.lists if entry.normalized is not None
    ),
)
