"""Counterfactuals that need a gather: deeper lists, another route or filter, choices of a list, an expansion term of the memory.

Each is actually gathered, without language model and judge, and replayed; only a change that then puts it in the top k is a
counterfactual. Terms are rare ones of the memory itself that the query lacks.

How deep a list has to be follows from the memory's rank in it if it were as long as the store, by exact cosine, BM25 or ts_rank; a hybrid
list is computed from complete lists by meaning and by ts_rank, as in replay.

    depth that surely holds a memory of a hybrid list = max(its rank there, ceil(place of its chunk / pool_factor),
                                                            ceil(rank of its chunk inside / inner_factor))

because hits that a shallower list omits only lower the scores of others.

A list that a running system answered is never computed as ours: the memory's place is that of the answer. If it is not in it, the exact
rank here is named as what it is, and no depth is advised that the answer had already.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cems_workbench.analysis.why.counterfactual import (
    Breakpoint,
    Counterfactual,
    bisected,
    change_of,
    distance,
    measured,
    others,
    round_values,
    single_counterfactuals,
)
from cems_workbench.analysis.why.path import ListEntry, source_of
from cems_workbench.analysis.why.trial import Trials
from cems_workbench.config import FieldSpec, PipelineConfig, field_spec, field_specs, list_depths, with_values
from cems_workbench.config.model import changed
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline import nested
from cems_workbench.pipeline.evidence import Evidence, Hit, RankedList
from cems_workbench.pipeline.gather import MAX_DEPTH, Request, gather_lists, gather_scores, search_filter
from cems_workbench.pipeline.list_sources import LIST_SOURCES, Source, ordinal, provenance_of
from cems_workbench.pipeline.missing_evidence import gather_parameters
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.scoring import Reading
from cems_workbench.pipeline.stages.lists import hybrid_cuts_of
from cems_workbench.pipeline.stages.query import is_aggregation
from cems_workbench.pipeline.stages.rerank import RERANK, model_key
from cems_workbench.pipeline.stages.supersession import SUPERSESSION
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory
from cems_workbench.store import Filter
from cems_workbench.store.search.entries import ChunkHits
from cems_workbench.store.search.tokenizer import chunks, terms_of
from cems_workbench.store.search.vector_index import EXACT_ROWS, VectorIndex

EF_SEARCH = "lists.vector.ef_search"
NEARER = frozenset({"lists.vector.index", EF_SEARCH})
"""Parameters whose change finds nearer vectors, or loses some."""
_COMPUTED = ("vector", "lexical", "ts_rank", "hybrid")


@dataclass(frozen=True, slots=True)
class ListRank:
    """A memory in a list: its rank among memories, its score, which of its chunks it is and the place of that among the
    chunks. None if that is unknown."""

    rank: int | None = None
    score: float | None = None
    chunk: int | None = None
    chunk_rank: int | None = None


Placed = ListRank | nested.HybridPlace


@dataclass(frozen=True, slots=True)
class DepthLimits:
    """Cuts of a list: memories, and chunks before each memory takes its best; None is all."""

    memories: int | None = None
    chunks: int | None = None

    def hold(self, place: Placed) -> bool:
        pairs = ((place.rank, self.memories), (place.chunk_rank, self.chunks))
        return all(limit is None or (rank is not None and rank <= limit) for rank, limit in pairs)


def list_ranks(
    memory_id: str, evidence: Evidence, config: PipelineConfig, request: Request, resources: Resources
) -> list[ListEntry]:
    """The memory's rank for each variant, by meaning and by words; also in lists that were not searched, and in every other that is on."""
    where = search_filter(request, config, resources)
    memory = resources.store.memories.get(memory_id)
    if memory is not None:
        barred = _barred(where, memory)
        if barred:
            return [ListEntry("every list", None, None, None, False, barred)]
    cuts = hybrid_cuts_of(evidence.query, config, evidence.language)
    search = _Search(memory_id, evidence, config, where, resources, cuts)
    return [*(place for i in range(len(evidence.variants)) for place in search.places(i)), *search.further()]


def _barred(where: Filter, memory: Memory) -> str | None:
    if where.required_project not in (None, memory.project):
        return f"it belongs to {memory.project or 'no project'}, and only {where.required_project} is searched"
    if where.required_scope not in (None, memory.scope):
        return f"its scope is {memory.scope}, and only {where.required_scope} memories are searched"
    if where.author not in (None, memory.author):
        return f"its author is {memory.author or 'nobody'}, and only memories of {where.author} are searched"
    return None


@dataclass(frozen=True)
class _Search:
    """Ranks of one memory in the whole store."""

    memory_id: str
    evidence: Evidence
    config: PipelineConfig
    where: Filter
    resources: Resources
    cuts: nested.HybridCuts

    def places(self, i: int) -> Iterator[ListEntry]:
        """The place in every list of one variant of the query."""
        lists, text = self.config.lists, self.evidence.text_for("vector", i)
        by_ts_rank = lists.ts_rank.enabled or lists.hybrid.enabled
        by_meaning = self._by_cosine(text)
        yield self._place("vector", i, self._cosine_place(text, by_meaning))
        by_meaning = self._live("vector", i) or by_meaning
        if lists.lexical.enabled or not by_ts_rank:
            yield self._place("lexical", i, self._by_terms(self.evidence.text_for("lexical", i)))
        if by_ts_rank:
            by_words = self.resources.full_text().ranking(self.evidence.text_for("ts_rank", i), self.where)
            found = _placed(self.memory_id, by_words)
            yield self._place("ts_rank", i, ListRank(found.rank, found.score or 0.0, found.chunk, found.chunk_rank))
            by_words = self._live("ts_rank", i) or by_words
            if lists.hybrid.enabled and by_meaning is not None:
                yield self._hybrid_place(i, by_meaning, by_words)

    def further(self) -> Iterator[ListEntry]:
        """The place in the lists that are on and that no search here computes in full: what they returned."""
        for source in LIST_SOURCES:
            name = source.name
            if name in _COMPUTED or not source.finds or not self.config.get(f"lists.{name}.enabled"):
                continue
            if name == "relations":
                edges = sum(edge.target_id == self.memory_id for edge in self.evidence.relations)
                words = f"{edges} edges lead to it" if edges else "no edge leads to it"
                yield ListEntry(name, None, None, None, bool(edges), words)
                continue
            found = [ranked for ranked in self.evidence.lists if ranked.source == name]
            depth = list_depths(self.config).get(name)
            if not found:
                yield ListEntry(
                    f"{name}:0" if source.per_variant else name, None, None, depth, False, "it was not searched"
                )
            for ranked in found:
                own, limits = _placed(self.memory_id, _hits(ranked)), DepthLimits(depth)
                returned = own.rank is not None and limits.hold(own)
                words = "it returned nothing" if not ranked.hits else f"not among its {len(ranked.hits)} hits"
                words = words if own.rank is None else _returned_words(own, limits)
                deeper = () if own.rank is None or returned else tuple(self._raised({f"lists.{name}.depth": own.rank}))
                yield ListEntry(ranked.name, own.rank, own.score, depth, returned, words, None, deeper)

    def _by_cosine(self, text: str) -> ChunkHits | None:
        """All chunks by cosine, None if there are too many to list."""
        vectors = self.resources.indexes.vectors
        if len(vectors) > EXACT_ROWS:
            return None
        return vectors.search_chunks(self.resources.embedder.encode_query(text), len(vectors), self.where)

    def _cosine_place(self, text: str, found: ChunkHits | None) -> ListRank:
        if found is not None:
            return _placed(self.memory_id, found)
        own = self.resources.cosines(self.resources.embedder.encode_query(text), [self.memory_id])
        return ListRank(None, own[0][1] if own else None)

    def _by_terms(self, text: str) -> ListRank:
        found = self.resources.lexical(self.config.lists.lexical).rank_of(text, self.memory_id, self.where)
        return (
            ListRank(score=0.0) if found is None else ListRank(found.rank, found.score, found.chunk, found.chunk_rank)
        )

    def _gathered(self, source: Source, i: int) -> RankedList | None:
        return next((ranked for ranked in self.evidence.lists if (ranked.source, ranked.variant) == (source, i)), None)

    def _live(self, source: Source, i: int) -> ChunkHits | None:
        """The hits of a list that a running system answered; None for a list of the store."""
        ranked = self._gathered(source, i) if provenance_of(self.evidence.notes, f"{source}:{i}") else None
        return None if ranked is None else _hits(ranked)

    def _place(self, source: Source, i: int, found: ListRank) -> ListEntry:
        """The memory's rank in a gathered list, and in the whole store."""
        name, ranked, limits = f"{source}:{i}", self._gathered(source, i), self._limits(source)
        own = ListRank() if ranked is None else _placed(self.memory_id, _hits(ranked))
        returned = own.rank is not None and limits.hold(own)
        if whose := provenance_of(self.evidence.notes, name):
            return self._answered(source, name, own, found, limits, whose)
        words = _words(source, found, limits, ranked is not None, returned)
        if not returned and self._only_inside(source) and limits.chunks is not None:
            words += f", of which hybrid:{i} is made" if found.chunk_rank and found.chunk_rank > limits.chunks else ""
        deeper = () if returned or ranked is None else tuple(self._deeper(source, found))
        return ListEntry(name, found.rank, found.score, limits.memories, returned, words, limits.chunks, deeper)

    def _answered(
        self, source: Source, name: str, own: ListRank, found: ListRank, limits: DepthLimits, whose: str
    ) -> ListEntry:
        """The place in a live list; for a memory that is not in it, its exact rank here, and deeper lists only past the depth."""
        returned = own.rank is not None and limits.hold(own)
        if own.rank is not None:
            words, deeper = _returned_words(own, limits, whose), () if returned else tuple(self._deeper(source, own))
            return ListEntry(name, own.rank, own.score, limits.memories, returned, words, limits.chunks, deeper)
        exact = _words(source, found, DepthLimits(), True, False)
        passed_by = found.rank is not None and limits.hold(found)
        says_why = "; Index check says why" if passed_by else ""
        words = f"not returned, {whose}; compared exactly here, {exact}{says_why}"
        deeper = () if passed_by else tuple(self._deeper(source, found))
        return ListEntry(name, None, found.score, limits.memories, False, words, limits.chunks, deeper)

    def _only_inside(self, source: Source) -> bool:
        """Whether this is an inner list of a hybrid list."""
        lists = self.config.lists
        inside = {"vector": lists.vector.enabled, "ts_rank": lists.ts_rank.enabled}
        return lists.hybrid.enabled and not inside.get(source, True)

    def _limits(self, source: Source) -> DepthLimits:
        if self._only_inside(source):
            cut = self.cuts.by_meaning if source == "vector" else self.cuts.by_text
            return DepthLimits(chunks=int(cut[0]))
        chunks = self.config.lists.ts_rank.chunk_depth if source == "ts_rank" else None
        return DepthLimits(list_depths(self.config)[source], chunks)

    def _deeper(self, source: Source, found: ListRank) -> Iterator[dict[str, Any]]:
        """The depths at which a plain list would contain the memory."""
        if found.rank is None or not self.config.get(f"lists.{source}.enabled"):
            return
        needed = {f"lists.{source}.depth": found.rank}
        if source == "ts_rank" and found.chunk_rank is not None:
            needed["lists.ts_rank.chunk_depth"] = found.chunk_rank
        yield from self._raised(needed)

    def _raised(self, needed: Mapping[str, float]) -> Iterator[dict[str, Any]]:
        """The depths that exceed the present ones, if all are allowed."""
        raised = {path: value for path, value in needed.items() if value > (self.config.get(path) or math.inf)}
        limits = [(value, field_spec(path).high) for path, value in raised.items()]
        if raised and all(high is None or value <= high for value, high in limits):
            yield raised

    def _hybrid_place(self, i: int, by_meaning: ChunkHits, by_words: ChunkHits) -> ListEntry:
        whole = self._in_hybrid(i, by_meaning, by_words, math.inf)
        present = self._in_hybrid(i, by_meaning, by_words, self.config.lists.hybrid.inner_factor)
        limits = DepthLimits(int(self.cuts.memories[0]), int(self.cuts.pool[0]))
        returned = present is not None and limits.hold(present)
        shown = present if returned else whole
        found = shown or ListRank()
        deeper = () if returned or whole is None else tuple(self._deeper_hybrid(i, whole, by_meaning, by_words))
        words = _words("hybrid", found, limits, True, returned) if shown else "neither list inside has it"
        return ListEntry(
            f"hybrid:{i}", found.rank, found.score, limits.memories, returned, words, limits.chunks, deeper
        )

    def _in_hybrid(
        self, i: int, by_meaning: ChunkHits, by_words: ChunkHits, factor: float
    ) -> nested.HybridPlace | None:
        """The rank in a hybrid list whose inner lists are `factor` times as deep as it."""
        config = changed(self.config, "lists.hybrid.inner_factor", factor)
        cuts = hybrid_cuts_of(self.evidence.query, config, self.evidence.language)
        return nested.hybrid_place(
            self.memory_id,
            _ranked("vector", i, by_meaning),
            _ranked("ts_rank", i, by_words),
            config.lists.hybrid,
            (float(cuts.by_meaning[0]), float(cuts.by_text[0])),
        )

    def _deeper_hybrid(
        self, i: int, whole: nested.HybridPlace, by_meaning: ChunkHits, by_words: ChunkHits
    ) -> Iterator[dict[str, Any]]:
        """A deeper list; and, if the lists inside are too short, a larger multiple for those."""
        section, own = self.config.lists.hybrid, float(self.cuts.memories[0])
        ranks = [rank for rank in (whole.vector_rank, whole.text_rank) if math.isfinite(rank)]
        depth = max(whole.rank, whole.chunk_rank / section.pool_factor, max(ranks) / section.inner_factor)
        several = is_aggregation(self.evidence.query, self.config.query.detectors, self.evidence.language)
        grown = section.aggregation_factor if several else 1.0
        yield from self._raised({"lists.hybrid.depth": math.ceil(depth / grown)})
        limits = DepthLimits(int(own), int(self.cuts.pool[0]))
        step = field_spec("lists.hybrid.inner_factor").step or 1.0
        for factor in sorted({math.ceil(rank / own / step) * step for rank in ranks}):
            there = self._in_hybrid(i, by_meaning, by_words, factor)
            if factor > section.inner_factor and there is not None and limits.hold(there):
                yield from self._raised({"lists.hybrid.inner_factor": factor})
                return


def _hits(ranked: RankedList) -> ChunkHits:
    return [(hit.memory_id, hit.score, hit.chunk) for hit in ranked.hits]


def _ranked(source: Source, i: int, hits: ChunkHits) -> RankedList:
    return RankedList(f"{source}:{i}", source, i, tuple(Hit(key, float(score), chunk) for key, score, chunk in hits))


def _placed(memory_id: str, hits: ChunkHits) -> ListRank:
    ahead: set[str] = set()
    for place, (key, score, chunk) in enumerate(hits, 1):
        if key == memory_id:
            return ListRank(len(ahead) + 1, float(score), chunk, place)
        ahead.add(key)
    return ListRank()


def _returned_words(own: ListRank, limits: DepthLimits, whose: str = "") -> str:
    """ "3rd (0.71), past the depth of 2": the place in what a list returned, and whose answer that is."""
    words = f"{ordinal(own.rank or 0)} ({own.score:.4g})" + (f", {whose}" if whose else "")
    depth = limits.chunks if limits.memories is None else limits.memories
    return words if limits.hold(own) else f"{words}, past the depth of {depth}"


MEASURES: Mapping[Source, str] = {
    "vector": "cosine {:.3f}",
    "lexical": "BM25 {:.2f}",
    "ts_rank": "ts_rank {:.4f}",
    "hybrid": "score {:.5f}",
}


def _words(source: Source, found: Placed, limits: DepthLimits, searched: bool, returned: bool) -> str:
    if source in ("lexical", "ts_rank") and not found.score:
        return "it shares no term with the query"
    if found.score is None:
        return "it has no embedding"
    rank, measure = found.rank, MEASURES[source].format(found.score)
    if found.chunk is not None:
        measure += f", its {ordinal(found.chunk + 1)} chunk"
    place = (
        f"it would be {ordinal(rank)} ({measure})" if rank is not None else f"its {measure} is not among the nearest"
    )
    if returned:
        return f"{ordinal(rank)} ({measure})" if rank is not None else measure
    if not searched:
        return f"{place}, but this list was not searched"
    if limits.memories is not None and (rank is None or rank > limits.memories):
        return f"{place}, past the depth of {limits.memories}"
    if limits.chunks is not None and found.chunk_rank is not None and found.chunk_rank > limits.chunks:
        return f"{place}, {ordinal(found.chunk_rank)} of the chunks, past the first {limits.chunks}"
    return place


MAX_RARE_TERMS, MAX_TERMS = 16, 4
"""Number of the memory's rarest words that are compared with the query, and of those that are tried."""

CHOICES: tuple[tuple[str, Any], ...] = (
    ("query.mode", "hybrid"),
    ("query.mode", "vector"),
    ("query.scope", "both"),
    ("query.author", None),
    ("query.detectors.matching", "word"),
    ("query.detectors.enabled", False),
    ("query.conversational.enabled", False),
    ("query.typo_correction.enabled", True),
    ("lists.candidate_set.mode", "all"),
    ("expansion.backend", "feedback"),
    ("expansion.backend", "dictionary"),
)
"""Values of gather parameters that need no model beyond the embedder."""

PROMISING = 2
MAX_COUNTERFACTUALS = 5

NO_LEARNING = {"query.typo_correction.auto_learn": False, "query.typo_correction.validate": False}
"""Values that keep a trial from changing the store."""


@dataclass(frozen=True)
class Missed:
    """A gather change that does not succeed, and what it gathered; not `read`: the best that scores of the reranker could make of it."""

    change: Counterfactual
    evidence: Evidence
    read: bool = True


def gather_counterfactuals(
    trials: Trials,
    config: PipelineConfig,
    request: Request,
    resources: Resources,
    tries: Sequence[Counterfactual],
    progress: Progress = silent,
) -> tuple[list[Counterfactual], list[Missed]]:
    """Those of `tries` that succeed, and those that do not. The reranker reads the memory; the others, where they can only
    lower it, not unless it is among the first k without them."""
    counterfactuals: list[Counterfactual] = []
    missed: list[Missed] = []
    for i, attempt in enumerate(tries):
        progress("gathering again", i, len(tries))
        evidence = searched(attempt, config, request, resources, trials.evidence)
        after = attempt.config(config)
        if trials.memory_id not in evidence.candidate_ids:
            missed.append(Missed(attempt, evidence, read=False))
            continue
        if others_only_lower(after):
            inner = with_own_score(trials.on(evidence), after, resources)
            evidence, hoped = inner.evidence, [inner.outcome(one) for one in {after, hope(after)}]
            if not any(in_reach(one.stood, trials.k) for one in hoped):
                place = min((one.stood for one in hoped if one.stood), default=None)
                missed.append(Missed(replace(attempt, place=place), evidence, read=False))
                continue
        inner = trials.on(_read(evidence, after, trials, resources))
        evidence = inner.evidence
        if attempt.values and attempt.values.keys() <= NEARER:
            inner.now = (
                None  # Where a graph missed every near memory, the right results share none with the present ones.
            )
        if inner.succeeds(after):
            counterfactuals.append(measured(_least(attempt, inner, config), trials, inner, config))
        else:
            missed.append(Missed(measured(attempt, trials, inner, config), evidence))
    progress("gathering again", len(tries), len(tries))
    return counterfactuals, missed


def nearest_missed(
    missed: Sequence[Missed], trials: Trials, config: PipelineConfig, resources: Resources, count: int
) -> tuple[list[Missed], list[Counterfactual]]:
    """The nearest first, of which the reranker has read what the first `count` need; and those that succeed once it has."""
    found, good = sorted(missed, key=_nearness), list[Counterfactual]()
    while (unread := next((i for i, one in enumerate(found[:count]) if not one.read), None)) is not None:
        one = found.pop(unread)
        after = one.change.config(config)
        evidence = _read(one.evidence, after, trials, resources)
        inner = trials.on(evidence)
        if inner.succeeds(after):
            good.append(measured(_least(one.change, inner, config), trials, inner, config))
        else:
            found = sorted([*found, Missed(measured(one.change, trials, inner, config), evidence)], key=_nearness)
    return found, good


def _read(evidence: Evidence, config: PipelineConfig, trials: Trials, resources: Resources) -> Evidence:
    """The evidence with the reranker's score of the memory, and those that the config needs."""
    also = [trials.memory_id] if trials.memory_id in evidence.candidate_ids else []
    return gather_scores(evidence, config, resources, only="rerank", switched_off=trials.switched_off, also=also)


def _nearness(one: Missed) -> tuple[bool, bool, int]:
    return one.change.rank is None, one.change.place is None, one.change.place or 0


REACH = 2
"""Ranks past the k-th at which a memory may yet come in by scores of others: they can move the scale."""


def others_only_lower(config: PipelineConfig) -> bool:
    """Whether a score of another candidate can only put that above the memory: no scale, succession or rule reads them together."""
    of_each = config.rerank.raw_scale in ("raw", "identity", "divide_by_10", "sigmoid")
    alone = SUPERSESSION.is_off(config) and config.abstain.reranker is None and config.lists.units == "memories"
    return not RERANK.is_off(config) and of_each and alone


def in_reach(rank: int | None, k: int) -> bool:
    return rank is not None and rank <= k + REACH


def hope(config: PipelineConfig) -> PipelineConfig:
    """The config that puts below the memory what the reranker would have to read yet."""
    return changed(config, "rerank.expected_misses", None)


def with_own_score(trials: Trials, config: PipelineConfig, resources: Resources) -> Trials:
    """The trials with the reranker's score of the memory, whether or not the rule of reading wants it."""
    if trials.column is None or RERANK.is_off(config):
        return trials
    evidence = _read(trials.evidence, changed(hope(config), "rerank.depth", 1), trials, resources)
    return trials if evidence is trials.evidence else trials.on(evidence)


def with_a_parameter(
    missed: Sequence[Missed],
    trials: Trials,
    config: PipelineConfig,
    score: Callable[[Evidence, PipelineConfig], Evidence],
    progress: Progress = silent,
) -> list[Counterfactual]:
    """At most `MAX_COUNTERFACTUALS`, each one of the `PROMISING` nearest gather changes plus one parameter replayed on
    its evidence. A breakpoint holds on that evidence; `score` returns it with the scores that a config lacks."""
    counterfactuals = []
    for one, inner in [(near.change, trials.on(near.evidence)) for near in missed[:PROMISING]]:
        after = one.config(config)
        if inner.column is None:
            continue
        for further in single_counterfactuals(inner, after, progress)[0]:
            both = replace(one, changes=(*one.changes, *further.changes))
            scored = inner.on(score(inner.evidence, both.config(config))) if further.needs else inner
            if scored.succeeds(both.config(config)):
                counterfactuals.append(measured(both, trials, scored, config))
    return sorted(counterfactuals, key=lambda one: (one.distance, str(one.values)))[:MAX_COUNTERFACTUALS]


def cause_tries(config: PipelineConfig, causes: Collection[str]) -> Iterator[Counterfactual]:
    """Of the parameters that made the loss, the other values of choices and switches that only gathering reads. No
    other model is asked: of a backend only "none" is tried."""
    for path in sorted(causes):
        for one in _choices(config, field_spec(path)):
            if path.split(".")[0] not in ("rerank", "judge", "expansion") or one.values[path] == "none":
                yield one


def depth_tries(config: PipelineConfig, request: Request, places: Sequence[ListEntry]) -> Iterator[Counterfactual]:
    """Depths at which a list would hold the memory, and the search of every project."""
    for values in shallowest(places):
        yield _try(config, values)
    if request.only_project:
        yield replace(_try(config, {}), everywhere=True)


LONG_WORDS, LAST_SHARE = 25, 1 / 3
"""Words from which a query is long, and the largest share of them that its last sentence has where the rest may be an envelope."""
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|\n+")


def sentence_tries(config: PipelineConfig, request: Request) -> Iterator[Counterfactual]:
    """The last sentence of a long query alone: the rest may be the envelope of a message."""
    words = request.query.split()
    last = next((part for part in reversed(_SENTENCE_END.split(request.query)) if part.strip()), "").strip()
    if not request.searched and len(words) >= LONG_WORDS and 2 < len(last.split()) <= LAST_SHARE * len(words):
        yield replace(_try(config, {}), searched=last)


def graph_tries(
    trials: Trials, config: PipelineConfig, request: Request, resources: Resources
) -> Iterator[Counterfactual]:
    """The least ef_search with which Chroma's graph finds a memory that it missed, if there is one."""
    name, _ = trials.evidence.missed_by_graph.get(trials.memory_id, ("", 0))
    if name:
        i, where = int(name.partition(":")[2]), search_filter(request, config, resources)
        depth = list_depths(config)["vector"] or MAX_DEPTH
        vector = resources.embedder.encode_query(trials.evidence.text_for("vector", i))
        own = resources.store.indexes.graph_settings(resources.embedder)["ef_search"]
        ef_search = max(config.lists.vector.ef_search or own, depth)
        vectors = resources.indexes.vectors.with_graph(ef_search)
        if point := least_ef_search(vectors, vector, depth, where, trials.memory_id, ef_search):
            less = _try(config, {EF_SEARCH: int(point.fails)})
            known = gathered(less, config, request, resources, trials.evidence)
            before = trials.on(known).succeeds(less.config(config))
            change = change_of(config, EF_SEARCH, int(point.succeeds), None if before else point)
            yield Counterfactual((change,), gathers=True)


def least_ef_search(
    vectors: VectorIndex, vector: Float32, k: int, where: Filter, memory_id: str, fails: int
) -> Breakpoint | None:
    """The ef_search above `fails` with which the graph has the memory in a list of k, and with one less has not; None if there is none."""

    def finds(ef_search: int) -> bool:
        return any(key == memory_id for key, _ in vectors.approximate(vector, k, where, ef_search))

    spec, success = field_spec(EF_SEARCH), fails
    if finds(fails):
        return None
    while success < min(spec.high or 0, len(vectors)):
        fails, success = success, min(2 * success, int(spec.high or 0))
        if finds(success):
            return bisected(finds, spec, fails, success)
    return None


def other_tries(
    config: PipelineConfig, causes: Collection[str], places: Sequence[ListEntry]
) -> Iterator[Counterfactual]:
    """Choices that need no model, and those of the lists by words that are on and lack the memory."""
    known = gather_parameters(config)
    for path, value in CHOICES:
        if config.get(path) != value and path in known and path not in causes:
            yield _try(config, {path: value})
    lacking = tuple(f"lists.{source_of(place)}." for place in places if not place.returned)
    for spec in field_specs():
        name, own = spec.path.split(".")[1], spec.path.split(".")[-1]
        here = spec.path.startswith(lacking) and name != "vector" and own != "enabled" and spec.path not in causes
        if here and config.get(f"lists.{name}.enabled"):
            yield from _choices(config, spec)


def _choices(config: PipelineConfig, spec: FieldSpec) -> Iterator[Counterfactual]:
    if spec.cost == "gather" and (spec.choices or spec.type is bool):
        for value in others(spec, config):
            yield _try(config, {spec.path: value})


def word_tries(trials: Trials, config: PipelineConfig, resources: Resources) -> Iterator[Counterfactual]:
    """Words of the memory, searched for beside the query."""
    backend = config.expansion.backend
    if backend in ("none", "manual"):
        switch = {"expansion.backend": "manual"} if backend == "none" else {}
        for term in own_terms(trials, resources):
            yield replace(_try(config, switch), terms=(term,))


def _try(config: PipelineConfig, values: Mapping[str, Any]) -> Counterfactual:
    return Counterfactual(tuple(change_of(config, path, value) for path, value in values.items()), gathers=True)


def shallowest(places: Sequence[ListEntry]) -> list[Mapping[str, Any]]:
    """The depths at which some list would contain the memory; the least per set of parameters."""
    least: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for values in (values for place in places for values in place.deeper):
        known = least.setdefault(tuple(values), values)
        if tuple(values.values()) < tuple(known.values()):
            least[tuple(values)] = values
    return list(least.values())


def _least(counterfactual: Counterfactual, inner: Trials, config: PipelineConfig) -> Counterfactual:
    """One depth that succeeds, minimised: lower depths are replayed on the evidence gathered for it."""
    if (
        len(counterfactual.changes) != 1
        or counterfactual.parts != 1
        or field_spec(counterfactual.changes[0].path).cost != "deepen"
    ):
        return counterfactual
    change = counterfactual.changes[0]
    spec = field_spec(change.path)
    if spec.type not in (int, float) or change.was is None or inner.succeeds(config):
        return counterfactual
    point = bisected(lambda value: inner.succeeds(changed(config, change.path, value)), spec, change.was, change.now)
    rounded = [value for value in round_values(spec, point) if inner.succeeds(changed(config, change.path, value))]
    now = rounded[0] if rounded else point.succeeds
    least = replace(change, now=now, distance=distance(spec, change.was, point.succeeds), breakpoint=point)
    return replace(counterfactual, changes=(least,))


def own_terms(trials: Trials, resources: Resources) -> list[str]:
    """The memory's rarest words, as written, nearest in meaning to the query: `MAX_TERMS` of `MAX_RARE_TERMS`. A rare
    word finds the memory and little else; one near to the query is one that a user could have typed. The query's own
    words are left out, and numbers. Ties fall by the order in the memory."""
    memory = resources.store.memories.get(trials.memory_id)
    if memory is None:
        return []
    searched = trials.evidence.searched
    spoken = resources.store.language.current
    known = {term for chunk in chunks(searched) for term in terms_of(chunk, spoken)}
    frequency: dict[str, int] = {}
    for chunk in chunks(resources.store.texts.of(memory)):
        terms = terms_of(chunk, spoken)
        if len(terms) == 1 and terms[0] not in known and chunk.isalpha() and len(chunk) > 2:
            frequency.setdefault(chunk.lower(), resources.indexes.lexical.document_frequency(terms[0]))
    rarest = sorted(frequency, key=lambda word: frequency[word])[:MAX_RARE_TERMS]
    query = resources.embedder.encode_query(searched)
    near = {word: float(resources.embedder.encode_query(word) @ query) for word in rarest}
    return sorted(rarest, key=lambda word: -round(near[word], 6))[:MAX_TERMS]


def gathered(
    counterfactual: Counterfactual,
    config: PipelineConfig,
    request: Request,
    resources: Resources,
    known: Evidence | None = None,
) -> Evidence:
    """The evidence that a counterfactual needs, with the scores its reranker needs."""
    evidence = searched(counterfactual, config, request, resources, known)
    return gather_scores(evidence, counterfactual.config(config), resources, only="rerank")


def searched(
    counterfactual: Counterfactual,
    config: PipelineConfig,
    request: Request,
    resources: Resources,
    known: Evidence | None,
) -> Evidence:
    """The lists that a counterfactual needs, as of the same moment. Scores that `known`, the evidence of the config,
    has of the same texts are taken from it."""
    after = counterfactual.config(config)
    evidence = gather_lists(counterfactual.request(request), with_values(after, NO_LEARNING), resources)
    key = model_key(config.rerank)
    if known is not None and after.rerank == config.rerank:
        before, there = Reading.of(known, config), Reading.of(evidence, after)
        alike = (there.query, there.language) == (before.query, before.language)
        scores = {
            one: score
            for one, score in known.model_scores.get(key, {}).items()
            if alike and one in evidence.memories and before.by_reranker(one) == there.by_reranker(one)
        }
        evidence = replace(evidence, model_scores={key: scores} if scores else {})
    return evidence
