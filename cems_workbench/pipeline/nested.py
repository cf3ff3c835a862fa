"""Lists that replay makes itself of what was gathered: CEMS's hybrid list, and its relations.

    hybrid     score of a chunk = share / (k + rank by meaning) + (1 - share) / (k + rank by ts_rank)
               a rank past inner_factor * d (by meaning also past index_rows), or a missing one, gives nothing;
               the best pool_factor * d chunks are kept; a memory takes its best; the first d memories are the list
               d = depth, for aggregation queries max(50, aggregation_factor * depth)
               Both cuts are of one order, so what is past them has a place here too; the stage `lists` cuts, as it does every list.
    relations  (mode `each`) of the first `seeds` of the hybrid list, else of the vector list, up to `per_seed` edges each, in order:
               a memory stands once for every edge that leads to it

so that its share, its k, its depths and the seeds are sliders: gathering keeps the ranks inside, and the edges of every memory that may
be a seed under some share.

Source: CEMS 0.9.3 as recorded; docs/internals/specification.md, "lists"; docs/use/cems.md.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cems_workbench.config.sections import HybridList, ListsConfig
from cems_workbench.pipeline.evidence import Evidence, Hit, RankedList
from cems_workbench.pipeline.table import Bools, CandidateTable, Floats, Ints, NestedTable, Places, memoized
from cems_workbench.records import Relation

MIN_AGGREGATION_DEPTH = 50
"""Least depth for an aggregation query whose depth is raised."""
SCORE_DECIMALS = 15
"""Scores inside the hybrid list are compared to this many decimals: PostgreSQL computes them exactly, floats nearly."""


def hybrid_depth(config: HybridList, aggregation: bool) -> int:
    """Memories of a hybrid list: its depth, raised for an aggregation query when the config says so."""
    if not aggregation or config.aggregation_factor <= 1:
        return config.depth
    return max(MIN_AGGREGATION_DEPTH, int(config.depth * config.aggregation_factor))


@dataclass(frozen=True, slots=True)
class HybridCuts:
    """Cuts of a hybrid list, by query: shapes (Q)."""

    memories: Floats
    """Memories of the list."""
    pool: Floats
    """Chunks of the list, before each memory takes its best."""
    by_meaning: Floats
    """Chunks of the list by meaning inside."""
    by_text: Floats
    """Chunks of the list by ts_rank inside."""


def hybrid_cuts(config: HybridList, aggregation: Bools) -> HybridCuts:
    """The cuts of the hybrid lists of queries; `aggregation` (Q): who asks for several memories."""
    depth = np.where(aggregation, hybrid_depth(config, True), config.depth).astype(np.float64)
    inner = np.ceil(config.inner_factor * depth)
    rows = inner if config.index_rows is None else np.minimum(inner, config.index_rows)
    return HybridCuts(depth, np.floor(config.pool_factor * depth), rows, inner)


def past_cuts(placed: Places, cuts: HybridCuts, q: Ints, row: Ints, candidate: Ints) -> Bools:
    """Is a candidate of a hybrid list past its memories or its pool? Query, list and candidate are of one shape."""
    place = placed.position[q, row, candidate]
    chunk = place if placed.chunk_rank is None else placed.chunk_rank[q, row, candidate]
    past: Bools = (place > cuts.memories[q]) | (chunk > cuts.pool[q])
    return past


def places(table: CandidateTable, config: ListsConfig, aggregation: Bools) -> tuple[Hashable, Places]:
    """The ranks in every list, those of nested lists under this config, and the parameters they depend on.
    `aggregation` (Q): who asks for several memories."""
    nested, gathered = table.lists.nested, table.lists.gathered
    if nested is None or not (config.hybrid.enabled or config.relations.enabled):
        return None, gathered
    # A slider of the weight or the ties must not place the lists again.
    hybrid = config.hybrid.model_copy(update={"weight": 0.0, "ties": "ordinal"})  # what fusion alone reads
    relations = (config.relations.enabled, config.relations.seeds, config.relations.per_seed)
    key = (hybrid, relations, aggregation.tobytes())
    return key, memoized(table.memo, "places", key, lambda: _placed(nested, gathered, config, aggregation))


def _placed(nested: NestedTable, gathered: Places, config: ListsConfig, aggregation: Bools) -> Places:
    position, dense, raw = gathered.position.copy(), gathered.dense.copy(), gathered.raw.copy()
    chunk = np.full(position.shape, -1) if gathered.chunk is None else gathered.chunk.copy()
    chunk_rank = None if gathered.chunk_rank is None else gathered.chunk_rank.copy()
    placed, cuts = Places(position, dense, raw, chunk, chunk_rank), hybrid_cuts(config.hybrid, aggregation)
    if config.hybrid.enabled:
        _place_hybrid(nested, placed, config.hybrid, cuts)
    if config.relations.enabled:
        _place_relations(nested, placed, config, cuts)
    return placed


def _place_hybrid(nested: NestedTable, placed: Places, config: HybridList, cuts: HybridCuts) -> None:
    _, count, width = placed.position.shape
    query = nested.slot // count if count else nested.slot
    # A chunk that a list lacks has rank inf there, so the cut also excludes it.
    by_vector, by_text = nested.vector_rank <= cuts.by_meaning[query], nested.text_rank <= cuts.by_text[query]
    score = np.where(by_vector, config.vector_weight / (config.k + nested.vector_rank), 0.0)
    # Float noise must not split chunks that PostgreSQL scores exactly equal.
    score = np.round(
        score + np.where(by_text, (1 - config.vector_weight) / (config.k + nested.text_rank), 0.0), SCORE_DECIMALS
    )
    chunks = np.flatnonzero(by_vector | by_text)
    # lexsort is stable: equal scores keep the order of the entries, those by meaning first.
    chunks = chunks[np.lexsort((-score[chunks], nested.slot[chunks]))]
    chunk_place = _place_within(nested.slot[chunks]) + 1
    cell = nested.slot[chunks] * width + nested.candidate[chunks]
    # np.unique sorts by cell; sorting the indices restores the order by score.
    best = np.sort(np.unique(cell, return_index=True)[1])  # the first row of a memory is its best chunk
    chunks, chunk_place = chunks[best], chunk_place[best]
    slot = nested.slot[chunks]
    at = (query[chunks], slot % count if count else slot, nested.candidate[chunks])
    placed.position[at] = _place_within(slot) + 1
    placed.raw[at] = score[chunks]
    placed.dense[at] = _dense_within(slot, score[chunks])
    if placed.chunk is not None:
        placed.chunk[at] = nested.chunk[chunks]
    if placed.chunk_rank is not None:
        placed.chunk_rank[at] = chunk_place


def _place_relations(nested: NestedTable, placed: Places, config: ListsConfig, cuts: HybridCuts) -> None:
    first = nested.seed_rows["hybrid" if config.hybrid.enabled else "vector"][nested.query]
    known = (first >= 0) & (nested.source >= 0) & (nested.order < config.relations.per_seed)
    if config.hybrid.enabled:
        known &= ~past_cuts(placed, cuts, nested.query, first, nested.source)
    place = np.where(known, placed.position[nested.query, first, nested.source], 0)
    edges = np.flatnonzero((place >= 1) & (place <= config.relations.seeds))
    edges = edges[np.lexsort((nested.order[edges], place[edges], nested.query[edges]))]
    query, target = nested.query[edges], nested.target[edges]
    # One cell holds one rank, so each further edge to the same memory goes into the next row.
    turn = _occurrence(query * placed.position.shape[2] + target)
    at = (query, nested.occurrence_rows[query, turn], target)
    placed.position[at] = placed.dense[at] = _place_within(query) + 1
    placed.raw[at] = nested.weight[edges]


@dataclass(frozen=True, slots=True)
class HybridPlace:
    """A memory in a hybrid list that nothing cuts: its rank, score and chunk, the place of that chunk, and its ranks inside."""

    rank: int
    score: float
    chunk: int | None
    chunk_rank: int
    vector_rank: float
    """1-based among the chunks by meaning, inf if the chunk is absent."""
    text_rank: float


def hybrid_place(
    memory_id: str, vector: RankedList, text: RankedList, config: HybridList, rows: tuple[float, float]
) -> HybridPlace | None:
    """A memory's place in the hybrid list of these two, of which the first `rows` chunks each count; None when it is in neither."""
    index = {key: c for c, key in enumerate(dict.fromkeys(hit.memory_id for hit in (*vector.hits, *text.hits)))}
    if memory_id not in index:
        return None
    table = nested_table([Evidence("", {})], [[NestedRow("hybrid", "hybrid", 0, vector, text)]], [index])
    assert table is not None
    chunks, shape = table.chunk, (1, 1, len(index))
    position, dense, chunk_rank = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    placed = Places(position, dense, np.zeros(shape), np.full(shape, -1), chunk_rank)
    # At most as many as there are: a rank of infinity is that of a chunk which is not there.
    everything, (first, second) = np.array([np.inf]), (np.minimum([own], len(chunks)) for own in rows)
    _place_hybrid(table, placed, config, HybridCuts(everything, everything, first, second))
    c = index[memory_id]
    if not position[0, 0, c]:
        return None
    assert placed.chunk is not None
    seq = int(placed.chunk[0, 0, c])
    own = int(np.flatnonzero((table.candidate == c) & (chunks == seq))[0])
    return HybridPlace(
        int(position[0, 0, c]),
        float(placed.raw[0, 0, c]),
        None if seq < 0 else seq,
        int(chunk_rank[0, 0, c]),
        float(table.vector_rank[own]),
        float(table.text_rank[own]),
    )


def _place_within(group: Ints) -> Ints:
    """0-based place of each entry within its group; groups stand together."""
    count = np.arange(len(group))
    # Without entries the leading True would claim a first group.
    starts = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1]))) if len(group) else count
    places: Ints = count - np.repeat(starts, np.diff(np.append(starts, len(group))))
    return places


def _dense_within(group: Ints, score: Floats) -> Ints:
    """1-based rank within each group, equal scores sharing one; both in order."""
    if not len(group):
        return group
    fresh = np.concatenate(([True], group[1:] != group[:-1]))
    steps: Ints = np.cumsum(fresh | np.concatenate(([True], score[1:] != score[:-1])))
    ranks: Ints = steps - np.repeat(steps[fresh], np.diff(np.append(np.flatnonzero(fresh), len(group)))) + 1
    return ranks


def _occurrence(keys: Ints) -> Ints:
    """0-based count of the same key before each entry."""
    order = np.argsort(keys, kind="stable")
    seen = np.empty(len(keys), dtype=np.int64)
    # The stable sort keeps equal keys in their order, so the place within a key is its count so far.
    seen[order] = _place_within(keys[order])
    return seen


@dataclass(frozen=True, slots=True)
class NestedRow:
    """A list that replay makes: its name and source, the variant, and of what: the two lists inside, or nothing for relations."""

    name: str
    source: str
    variant: int | None
    vector: RankedList | None = None
    text: RankedList | None = None


def with_nested(lists: Sequence[RankedList], relations: Sequence[Relation]) -> list[RankedList | NestedRow]:
    """The lists in order, each hybrid list before the ts_rank list it is made with, the relations' rows last."""
    vectors = {ranked.variant: ranked for ranked in lists if ranked.source == "vector"}
    rows: list[RankedList | NestedRow] = []
    for ranked in lists:
        if ranked.source == "ts_rank" and ranked.variant in vectors:
            name = f"hybrid:{ranked.variant}"
            rows.append(NestedRow(name, "hybrid", ranked.variant, vectors[ranked.variant], ranked))
        rows.append(ranked)
    for turn in range(_most_edges(relations)):
        rows.append(NestedRow("relations" if turn == 0 else f"relations:{turn + 1}", "relations", None))
    return rows


def _most_edges(relations: Sequence[Relation]) -> int:
    counts: dict[str, int] = {}
    for relation in relations:
        counts[relation.target_id] = counts.get(relation.target_id, 0) + 1
    return max(counts.values(), default=0)


def nested_table(
    evidences: Sequence[Evidence], rows: Sequence[Sequence[RankedList | NestedRow]], index: Sequence[dict[str, int]]
) -> NestedTable | None:
    """The input of nested rows; None if no evidence has any."""
    if not any(isinstance(row, NestedRow) for listed in rows for row in listed):
        return None
    count = max(len(listed) for listed in rows)
    slots: list[int] = []
    entries: list[tuple[int, int, float, float]] = []
    edges: list[tuple[int, int, int, int, float]] = []
    turns = max(_most_edges(evidence.relations) for evidence in evidences)
    occurrence_rows = np.full((len(evidences), max(turns, 1)), -1)
    seed_rows = {source: np.full(len(evidences), -1) for source in ("hybrid", "vector")}
    for q, (evidence, listed) in enumerate(zip(evidences, rows, strict=True)):
        turn = 0
        for i, row in enumerate(listed):
            if row.source in seed_rows and row.variant == 0:
                seed_rows[row.source][q] = i
            if isinstance(row, NestedRow) and row.source == "relations":
                occurrence_rows[q, turn] = i
                turn += 1
            elif isinstance(row, NestedRow):
                found = _entries(row, index[q])
                slots += [q * count + i] * len(found)
                entries += found
        order: dict[str, int] = {}
        for relation in evidence.relations:
            place = order[relation.source_id] = order.get(relation.source_id, -1) + 1
            source, target = index[q].get(relation.source_id, -1), index[q][relation.target_id]
            edges.append((q, source, target, place, relation.weight))
    chunk = np.array(entries, dtype=np.float64).reshape(-1, 4).T
    edge = np.array(edges, dtype=np.float64).reshape(-1, 5).T
    return NestedTable(
        slot=np.array(slots, dtype=np.int64),
        candidate=chunk[0].astype(np.int64),
        chunk=chunk[1].astype(np.int64),
        vector_rank=chunk[2],
        text_rank=chunk[3],
        query=edge[0].astype(np.int64),
        source=edge[1].astype(np.int64),
        target=edge[2].astype(np.int64),
        order=edge[3].astype(np.int64),
        weight=edge[4],
        occurrence_rows=occurrence_rows,
        seed_rows=seed_rows,
    )


def _entries(row: NestedRow, index: dict[str, int]) -> list[tuple[int, int, float, float]]:
    """(candidate, chunk, rank by meaning, rank by ts_rank) of every chunk in either list inside."""
    return [
        (index[memory_id], -1 if chunk is None else chunk, pair[0], pair[1])
        for (memory_id, chunk), pair in ranks_inside(row, index).items()
    ]


def ranks_inside(row: NestedRow, index: Mapping[str, int] | None = None) -> dict[tuple[str, int | None], list[float]]:
    """The `chunk_ranks` of the two lists that a hybrid list is made of; equal scores by `index`, without one by id."""
    assert row.vector is not None and row.text is not None
    place: Callable[[str], Any] = str if index is None else index.__getitem__
    by_meaning = sorted(row.vector.hits, key=lambda hit: (-hit.score, place(hit.memory_id), hit.chunk or 0))
    return chunk_ranks(by_meaning, row.text.hits)


def chunk_ranks(by_meaning: Sequence[Hit], by_text: Sequence[Hit]) -> dict[tuple[str, int | None], list[float]]:
    """By (memory id, chunk) the 1-based ranks by meaning and by ts_rank, infinite if it is not in that list."""
    ranks: dict[tuple[str, int | None], list[float]] = {}
    for side, hits in enumerate((by_meaning, by_text)):
        for rank, hit in enumerate(hits, 1):
            ranks.setdefault((hit.memory_id, hit.chunk), [np.inf, np.inf])[side] = rank
    return ranks
