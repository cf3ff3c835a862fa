"""gather: everything slow about a query, done once. Its result is the evidence that `replay` works on.

    embed and search every variant -> relation, added, recency and access lists -> metadata and embeddings of the candidates
    -> model scores of the candidates that the config would rerank -> the judge's scores of the results

Which scores are missing is read off a trace of what is there (`scoring.wanted_scores`), first for the reranker, then for the judge.

Every list is gathered whether or not it is enabled, because it is cheap and a switch is then instant. What was requested
but cannot be done (a missing backend) is a warning in the evidence, shown in the trace.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from cems_workbench.config import PipelineConfig, asks_source, list_depths
from cems_workbench.config.model import candidate_set_size
from cems_workbench.config.sections import ADDED_LISTS, ENGINE_LISTS
from cems_workbench.errors import InputError, StoreError, WorkbenchError, counted, short
from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.models.protocol import Float32
from cems_workbench.models.tokens import TokenCounts
from cems_workbench.pipeline.evidence import (
    ENGINES,
    GRAPH,
    LANGUAGE,
    PIECES,
    Evidence,
    Hit,
    ModelScore,
    RankedList,
    Variant,
)
from cems_workbench.pipeline.evidence import Request as Request
from cems_workbench.pipeline.lexical_engines import EngineRequest, lexical_engine
from cems_workbench.pipeline.list_sources import LIST_SOURCES
from cems_workbench.pipeline.mismatches import mismatches
from cems_workbench.pipeline.missing_evidence import ParameterNeed, portable_parameters
from cems_workbench.pipeline.relations import possible_seeds, relation_list
from cems_workbench.pipeline.replay import Clock, Trace, replay
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.retrievers import SearchRequest, added_lists, passes, ranked_list, retrieve
from cems_workbench.pipeline.scoring import RERANKING, Reader, scored, wanted_scores
from cems_workbench.pipeline.stages import JUDGE, RERANK
from cems_workbench.pipeline.stages.lists import hybrid_cuts_of
from cems_workbench.pipeline.stages.query import QueryFeatures, is_conversational
from cems_workbench.pipeline.supersession import Supersession, find_successors
from cems_workbench.pipeline.understanding import CorrectedQuery, UnderstoodQuery, asker, understand_request
from cems_workbench.progress import Progress, silent
from cems_workbench.records import ENGLISH, Chunk, Memory, Relation
from cems_workbench.store import Filter
from cems_workbench.store.search.entries import ChunkHits, truncate_to_memories
from cems_workbench.store.sources import UNPROVEN

if TYPE_CHECKING:
    from cems_workbench.pipeline.live_engine import LiveList
    from cems_workbench.sources.source import Distance, ListName, SourceInfo

LiveLists = Mapping[tuple[int, str], ChunkHits]
"""The lists of a running system, by the number of the variant and the name of the list."""

PAINTED_TEXTS = 16
"""Texts that the reranker reads between two rankings that an observer gets: a ranking costs a replay."""
MAX_DEPTH = 10_000
"""Most hits of a list whose depth is null."""


def search_filter(request: Request, config: PipelineConfig, resources: Resources) -> Filter:
    """Which memories the searches of this request may return."""
    author = config.query.author
    ids = None if author is None else resources.store.memories.ids_by(author)
    return Filter(request.project, request.only_project, config.query.scope, author, ids)


class GatherObserver(Protocol):
    """Follows a gather while it runs, so that a page can show rankings early and keep what a cancelled gather has finished."""

    def ranking(self, trace: Trace, read: tuple[int, int] | None) -> None:
        """A ranking so far: by the lists, with the cached scores, then after each batch of the reranker. `read` counts
        the texts that the reranker has read, and all that it will read; None before the first batch."""

    def evidence(self, evidence: Evidence) -> None:
        """Evidence so far: with the cached scores before the reranker starts, and with all scores at the end."""


class _Times(dict[str, float]):
    """Milliseconds by what took them (`list_sources.TIMED`)."""

    def since(self, name: str, begun: float) -> None:
        self[name] = self.get(name, 0.0) + 1000 * (perf_counter() - begun)


JudgeScope = Literal["results", "decisive"]
"""What the judge scores: every result, or only what `abstain.judge` decides on."""


def gather(
    request: Request,
    config: PipelineConfig,
    resources: Resources,
    progress: Progress = silent,
    *,
    known: Trace | None = None,
    judge: JudgeScope = "results",
    switched_off: Collection[int] = (),
    observer: GatherObserver | None = None,
    clock: Clock | None = None,
) -> Evidence:
    """Gather the evidence of one query: lists first, then the model scores that the config needs, then judgments.

    `known` is an earlier trace of this request under this config: its lists are reused unless a gather parameter differs, and its
    moment if the request has none. The other arguments are those of `gather_scores`.

    Raises InputError for an empty query; ModelError or StoreError when model or store cannot be used. A `Cancelled` from
    `progress` passes through; model scores that were finished by then stay in the store's cache.
    """
    reused = known is not None and not any(isinstance(need, ParameterNeed) for need in known.needs)
    if known is not None and reused:
        evidence = known.evidence
    else:
        moment = request.as_of or (known.evidence.as_of if known is not None else None)
        evidence = gather_lists(replace(request, as_of=moment), config, resources, progress)
    return gather_scores(
        evidence,
        config,
        resources,
        progress,
        trace=known if reused else None,
        judge=judge,
        switched_off=switched_off,
        observer=observer,
        clock=clock,
    )


def gather_trace(
    lists: Evidence,
    config: PipelineConfig,
    resources: Resources,
    progress: Progress = silent,
    *,
    judge: JudgeScope = "results",
    switched_off: Collection[int] = (),
    clock: Clock | None = None,
) -> Trace:
    """The replay of `gather_scores` of this evidence, its stages timed by `clock`. Raises as `gather` does."""
    trace = replay(lists, config, switched_off=switched_off, clock=clock)
    evidence = gather_scores(lists, config, resources, progress, trace=trace, judge=judge, switched_off=switched_off)
    return trace if evidence is lists else replay(evidence, config, switched_off=switched_off, clock=clock)


def gather_scores(
    evidence: Evidence,
    config: PipelineConfig,
    resources: Resources,
    progress: Progress = silent,
    *,
    trace: Trace | None = None,
    only: Reader | None = None,
    judge: JudgeScope = "results",
    switched_off: Collection[int] = (),
    also: Collection[str] = (),
    cached_only: bool = False,
    observer: GatherObserver | None = None,
    clock: Clock | None = None,
) -> Evidence:
    """The evidence with the scores of the reranker and of the judge that this config needs; the same object if none is missing.

    Args:
        trace: the replay of this evidence, or of one with the same scores of rerankers, under this config, if there is one already.
        only: ask the reranker, or the judge, alone.
        judge: what the judge scores.
        switched_off: the query variants left out, as in `replay`: they decide what is read.
        also: candidates that the reranker is to read too, whether or not they are in its head.
        cached_only: call no reranker: candidates outside the cache stay unscored.
        observer: gets rankings and evidence on the way; each ranking costs a replay, timed by `clock`.

    Raises as `gather` does.
    """
    reading, before = progress, evidence
    if observer is not None:
        evidence, trace, reading = _observed(
            evidence, trace, config, resources, progress, switched_off, observer, clock
        )
        before = evidence
    for reader in _readers(config, only, judge):
        if trace is None or _count(trace.evidence.model_scores) != _count(evidence.model_scores):
            trace = replay(evidence, config, switched_off=switched_off)
        if wanted_scores(trace, reader, also):
            followed, times, begun = observer is not None, _Times(evidence.ms), perf_counter()
            evidence = scored(reader, evidence, trace, resources, reading, cached_only, also, followed)
            times.since(reader, begun)
            evidence = replace(evidence, ms=times)
    if observer is not None and evidence is not before:
        observer.evidence(evidence)
    return evidence


def _readers(config: PipelineConfig, only: Reader | None, judge: JudgeScope) -> list[Reader]:
    """Who reads candidates under a config, in order: the judge reads what the reranker leaves as results."""
    readers: list[Reader] = []
    if only != "judge" and not RERANK.is_off(config):
        readers.append("rerank")
    if only != "rerank" and not JUDGE.is_off(config) and (judge == "results" or config.abstain.judge is not None):
        readers.append("judge")
    return readers


def _observed(
    evidence: Evidence,
    trace: Trace | None,
    config: PipelineConfig,
    resources: Resources,
    progress: Progress,
    switched_off: Collection[int],
    observer: GatherObserver,
    clock: Clock | None,
) -> tuple[Evidence, Trace, Progress]:
    """The evidence with the cached scores, its replay, and a progress that reports a ranking after each batch of the reranker."""

    def replayed(evidence: Evidence) -> Trace:
        return replay(evidence, config, switched_off=switched_off, clock=clock)

    read = partial(
        gather_scores, config=config, resources=resources, only="rerank", switched_off=switched_off, cached_only=True
    )
    first = trace
    if first is None:
        first = replayed(evidence)
        observer.ranking(first, None)
    cached = read(evidence, progress=progress, trace=first)
    observer.evidence(cached)  # before the slow part, which may be cancelled
    latest = first if _count(cached.model_scores) == _count(evidence.model_scores) else replayed(cached)
    if latest is trace or latest is not first:
        observer.ranking(latest, None)

    painted = 0

    def reading(label: str, done: int, total: int) -> None:
        nonlocal painted
        progress(label, done, total)
        if label == RERANKING and painted + PAINTED_TEXTS <= done < total:
            painted = done
            observer.ranking(replayed(read(cached, progress=silent, trace=latest)), (done, total))

    return cached, latest, reading


def _count(scores: Mapping[str, Mapping[str, ModelScore]]) -> int:
    """How many scores of rerankers there are. Scores are only ever added, so equal counts mean equal scores."""
    return sum(map(len, scores.values()))


def gather_lists(
    request: Request, config: PipelineConfig, resources: Resources, progress: Progress = silent
) -> Evidence:
    """The evidence without new model scores: everything that takes milliseconds. Raises as `gather` does."""
    request = replace(request, query=request.query.strip(), searched=(request.searched or "").strip() or None)
    _check(request)
    progress("searching", 0, 3)
    where = search_filter(request, config, resources)
    llm = asker(resources)
    spoken = resources.store.language.current
    times, begun = _Times(), perf_counter()
    understood = understand_request(request, config, resources, where, llm)
    times.since("query", begun)
    variants, warnings = understood.variants, understood.warnings
    inner = inner_depth(config, request.query, spoken)
    speech = understood.conversational
    search = _Searches(request, config, resources, where, variants, speech, inner, warnings["lists"], times)
    search.ask_engine()
    by_engine = search.by_engines()
    if config.lists.vector.index == "graph" and config.lists.candidate_set.mode == "all":
        with suppress(StoreError):  # reported by the lists, which are then exact
            resources.graph(progress)
    lists = search.by_meaning_and_words(understood.lexical, by_engine)
    if not any(name == "vector" for _, name in search.live):
        ours = ", ".join(ranked.name for ranked in lists if ranked.source == "vector")
        warnings["lists"] += [f"{ours}: {note}" for note in _order_notes(resources) if ours]
    warnings["lists"] += _unproven_vectors(resources)
    if problem := resources.store.memories.author_problem(config.query.author):
        warnings["lists"].append(problem)
    if isinstance(resources.embedder, TokenEmbedder) and resources.embedder.doubt:
        warnings["lists"].append(resources.embedder.doubt)
    if config.lists.hybrid.enabled or config.lists.ts_rank.enabled:
        lists += search.by_ts_rank()
    warnings["lists"] += [*_pool_warning(config, resources), *mismatches(config, resources)]
    lists = _by_variant(lists, [*by_engine, *search.fused_by_engine()])
    if resources.behind:
        warnings["lists"].append(resources.behind)
    progress("searching", 1, 3)
    asked = SearchRequest(variants[0].text, variants, tuple(lists), config, resources, where, request.as_of)
    added, failures = added_lists(asked, search.depths, times.since) if ADDED_LISTS else ([], [])
    warnings["lists"] += failures
    relations, begun = list[Relation](), perf_counter()
    if config.lists.relations.mode == "each":
        section = config.lists.relations
        relations = resources.store.relations.leading_from(possible_seeds(lists, section.seeds), section.per_seed)
    else:
        lists.append(relation_list(lists, config, resources, where, MAX_DEPTH))
    times.since("relations", begun)
    if config.lists.entities.enabled:
        begun = perf_counter()
        try:
            lists.append(retrieve("entities", asked, search.depths["entities"]))
        except InputError as error:
            lists.append(ranked_list("entities", {}))
            warnings["lists"].append(str(error))
        times.since("entities", begun)
    lists += added
    begun = perf_counter()
    memories = resources.store.memories.read(
        # In the order of the lists: that of a set differs from process to process.
        [*(hit.memory_id for ranked in lists for hit in ranked.hits), *(relation.target_id for relation in relations)]
    )
    lists = [_only_known(ranked, memories) for ranked in lists]
    as_of = request.as_of or datetime.now(UTC)
    noted, later = successors_of(memories, as_of, where, resources)
    memories |= later
    warnings["supersession"] = noted.warnings
    chunks = resources.store.chunks.read(memories)
    pieces: dict[str, str] = {}
    if config.lists.units == "chunks":
        lists, pieces = _as_candidates(lists, memories, chunks)
        successors = {piece: noted.successors[key] for piece, key in pieces.items() if key in noted.successors}
        noted = replace(noted, successors={**noted.successors, **successors})
    lists += metadata_lists(memories, lists, config)
    progress("searching", 2, 3)
    evidence = Evidence(
        query=request.query,
        memories=memories,
        variants=tuple(variants),
        lists=tuple(lists),
        as_of=as_of,
        project=request.project,
        embeddings=_with_pieces(resources.indexes.vectors.embeddings(sorted(memories.keys() - pieces)), pieces),
        chunks=chunks,
        tokens=TokenCounts(memories, chunks),
        relations=tuple(relation for relation in relations if relation.target_id in memories),
        notes=_notes(request, config, resources, understood)
        | {"llm": {"model": llm.chat.label, "calls": llm.calls, "cached": llm.cached} if llm else None}
        | ({"engine": search.answered} if search.answered else {})
        | ({ENGINES: search.answers} if search.answers else {})
        | ({GRAPH: search.missed} if search.missed else {})
        | ({LANGUAGE: spoken} if spoken != ENGLISH else {})
        | (noted.noted_in({}) if notes_superseded(config, resources) else {})
        | ({PIECES: pieces} if pieces else {}),
        ms=times,
    )
    times.since("candidates", begun)
    progress("searching", 3, 3)
    return evidence


def notes_superseded(config: PipelineConfig, resources: Resources) -> bool:
    """Whether gathered evidence has the note of superseded candidates: if the store has edges that say so, or the config reads it."""
    return config.supersession.mode != "off" or resources.store.relations.has_superseding()


def successors_of(
    memories: Mapping[str, Memory], as_of: datetime | None, where: Filter, resources: Resources
) -> tuple[Supersession, dict[str, Memory]]:
    """Which of the candidates are superseded, by what, and those of their successors that are no candidates yet."""
    found = find_successors(resources.store.relations.superseding(memories), as_of, where)
    return found, resources.store.memories.read(found.added - memories.keys())


def _check(request: Request) -> None:
    """Raise InputError for a text that cannot be searched, and for an engine query of a list that has no variants."""
    if not request.query:
        raise InputError("query: it is empty; type what you are looking for")
    sources = [source.name for source in LIST_SOURCES if source.per_variant]
    for name in request.engine_queries:
        source, _, variant = name.partition(":")
        if source not in sources or not (variant.isdecimal() or variant == ""):
            raise InputError(
                f"engine query: {short(name)} is no list; use one of {', '.join(sources)}, or such as lexical:1"
            )
    for text in (request.query, request.searched or "", *request.variants, *request.engine_queries.values()):
        if not text.isprintable() and any("\ud800" <= character <= "\udfff" for character in text):
            raise InputError("query: it holds bytes that are not UTF-8 text; type it again")


@dataclass
class _Searches:
    """The searches of one request: its lists, with their `warnings`."""

    request: Request
    config: PipelineConfig
    resources: Resources
    where: Filter
    variants: Sequence[Variant]
    conversational: bool
    inner: int
    """Memories of each list that a hybrid list is made of."""
    warnings: list[str]
    times: _Times
    live: LiveLists = field(default_factory=dict)
    """The lists that the running system answers, instead of the workbench."""
    answered: dict[str, Any] | None = None
    """The note of the running system."""
    answers: dict[str, Any] = field(default_factory=dict)
    """What each lexical engine answered, by list name."""
    missed: dict[str, dict[str, int]] = field(default_factory=dict)
    """By vector list that a graph was searched for the memories that it missed, with their exact ranks."""

    @cached_property
    def depths(self) -> dict[str, int]:
        """Hits of each list."""
        return _depths(self.config)

    def by_meaning_and_words(self, hybrid: bool, by_engine: Sequence[RankedList]) -> list[RankedList]:
        """One vector and one lexical list per variant; no lexical one when the query is routed to vector, `hybrid`
        false. A list holds every chunk down to the one that brings the memory that fills its depth; the vector list
        goes down to `inner` memories at least. What a graph missed is a warning."""
        config, resources, where = self.config, self.resources, self.where
        section, mode = config.lists.vector, config.lists.candidate_set.mode
        depth = max(self.depths["vector"], self.inner)
        lists: list[RankedList] = []
        for i, variant in enumerate(self.variants):
            words = _text_for("lexical", i, variant, self.request)
            begun = perf_counter()
            by_words = resources.lexical(config.lists.lexical)
            lexical = by_words.search_chunks(words, self.depths["lexical"], where) if hybrid else []
            self.times.since("lexical", begun)
            begun = perf_counter()
            vector = resources.embedder.encode_query(_text_for("vector", i, variant, self.request))
            if (i, "vector") in self.live:
                hits = truncate_to_memories(self.live[i, "vector"], depth)
            elif mode == "all" and section.text != "indexed":
                nearest = _nearest_piece(vector, section.text, resources)
                hits = truncate_to_memories(_passing(nearest, where, resources), depth)
            elif mode != "all":
                own = config.lists.lexical.enabled or not by_engine
                found = [memory_id for memory_id, _, _ in lexical] if own else []
                found += [hit.memory_id for ranked in by_engine if ranked.variant == i for hit in ranked.hits]
                chosen = candidate_set(found, config, resources, where)
                if section.text == "indexed":
                    pool = resources.cosines(vector, chosen)
                else:
                    allowed = set(chosen)
                    pool = [hit for hit in _nearest_piece(vector, section.text, resources) if hit[0] in allowed]
                hits = truncate_to_memories(pool, depth)
            else:
                hits = resources.indexes.vectors.search_chunks(vector, depth, where)
                if section.index == "graph":
                    begun = perf_counter()  # the exact list is there to compare
                    try:
                        exact, hits = (
                            hits,
                            resources.indexes.vectors.graph_chunks(vector, depth, where, section.ef_search),
                        )
                        self.warnings.append(f"vector:{i}: {graph_loss(exact, hits)}")
                        self.missed[f"vector:{i}"] = missed_by_graph(exact, hits)
                    except StoreError as error:
                        self.warnings.append(f"vector:{i}: exact, as the graph cannot be searched: {error}")
            self.times.since("vector", begun)
            lists.append(RankedList(f"vector:{i}", "vector", i, _hits(hits)))
            if hybrid:
                lists.append(RankedList(f"lexical:{i}", "lexical", i, _hits(lexical)))
        return lists

    def by_ts_rank(self) -> list[RankedList]:
        """One list of chunks by ts_rank per variant, in the order in which PostgreSQL returns equal ranks."""
        from pg_text_search.ts_rank import TsQueryError

        depth = max(self.config.lists.ts_rank.chunk_depth, self.inner)
        lists: list[RankedList] = []
        for i, variant in enumerate(self.variants):
            begun = perf_counter()
            try:
                hits = self.live.get((i, "ts_rank")) or []
                if (i, "ts_rank") not in self.live:
                    words = _text_for("ts_rank", i, variant, self.request)
                    hits = self.resources.full_text().search(words, depth, self.where, "window")
            except TsQueryError as error:
                self.warnings.append(f"ts_rank:{i} is empty: {error}")
            self.times.since("ts_rank", begun)
            lists.append(RankedList(f"ts_rank:{i}", "ts_rank", i, _hits(hits)))
        return lists

    def by_engines(self) -> list[RankedList]:
        """One list per variant of each lexical engine that is enabled; none of an engine that skips conversational queries for one."""
        lists: list[RankedList] = []
        for name in ENGINE_LISTS:
            section = getattr(self.config.lists, name)
            if not section.enabled:
                continue
            if self.conversational and getattr(section, "skip_if_conversational", False):
                self.warnings.append(f"the query is conversational: no {name} list was searched")
                continue
            for i, variant in enumerate(self.variants):
                if (i, name) in self.live:
                    lists.append(self._live_list(name, i))
                    continue
                recorded, begun = _engine_query(name, i, self.request), perf_counter()
                search = EngineRequest(
                    variant.text, self.depths[name], self.config, self.resources, self.where, recorded
                )
                try:
                    answer = lexical_engine(name).search(search)
                    self.times.since(name, begun)
                except WorkbenchError as error:
                    lists.append(RankedList(f"{name}:{i}", name, i, ()))
                    self.warnings.append(f"{name}:{i} is empty: {error}")
                    continue
                if answer.searched:
                    lists.append(RankedList(f"{name}:{i}", name, i, _hits(answer.hits)))
                else:
                    self.warnings.append(f"{name}:{i} was not searched: no word of the query is left")
                self.answers[f"{name}:{i}"] = answer.to_json()
                self.warnings += answer.warnings
        return lists

    def _live_list(self, name: str, i: int) -> RankedList:
        return RankedList(f"{name}:{i}", name, i, _hits(truncate_to_memories(self.live[i, name], self.depths[name])))

    def fused_by_engine(self) -> list[RankedList]:
        """The running system's own fused answer to each variant, where it gave one."""
        return [
            self._live_list("source_hybrid", i) for i in range(len(self.variants)) if (i, "source_hybrid") in self.live
        ]

    def ask_engine(self) -> None:
        """Have the running system answer the lists that the config requests of it. If a request fails there is no list
        of it at all, so that the lists of one query never come from two engines."""
        config, resources, request = self.config, self.resources, self.request
        if not asks_source(config):
            return
        from cems_workbench.pipeline.list_sources import engine_note
        from cems_workbench.sources.address import redact_address
        from cems_workbench.sources.source import SourceError

        everything = config.lists.answered_by == "source"
        lost = "the lists are the store's own" if everything else "there is no list source_hybrid"
        engine = resources.engine()
        if engine is None:
            self.warnings.append(f"these memories were taken from no running system: {lost}")
            return
        live: dict[tuple[int, str], ChunkHits] = {}
        asked: dict[str, LiveList] = {}
        said: list[str] = []
        begun = datetime.now(UTC)
        try:
            depths = engine_depths(config, engine.info(), request.query, resources.store.language.current)
            if not depths:
                self.warnings.append(f"the source answers none of the lists that are on: {lost}")
                return
            if config.lists.source_hybrid.enabled and "source_hybrid" not in depths:
                said.append("there is no list source_hybrid: the source has no fused answer of its own")
            for i, variant in enumerate(self.variants):
                said += [
                    f"{name}:{i}: the running system was asked with the text of the query, not with what this list was given"
                    for name in depths
                    if name != "vector" and _engine_query(name, i, request) is not None
                ]
                vector = resources.embedder.encode_query(_text_for("vector", i, variant, request))
                for name, found in engine.search(variant.text, vector, depths, self.where.required_scope).items():
                    live[i, name] = _passing(found.hits, self.where, resources)
                    asked[f"{name}:{i}"] = found
                    self.times[name] = self.times.get(name, 0.0) + 1000 * found.seconds
                    said += _unsupported_list(f"{name}:{i}", found, engine.info())
                    said += [f"{name}:{i}: {line}" for line in found.notes]
            self.answered = engine_note(engine.name, engine.info().kind, begun, asked)
        except SourceError as error:
            why = redact_address(str(error), engine.address).removeprefix("…: ")
            self.warnings.append(f"{lost}{', not those of the running system' if everything else ''}: {why}")
        else:
            self.live = live
            self.warnings += said


def graph_loss(exact: ChunkHits, found: ChunkHits) -> str:
    """How many of the exactly nearest memories the hits of a graph lack, as a line."""
    nearest = len({memory_id for memory_id, _, _ in exact})
    return f"Chroma's graph missed {len(missed_by_graph(exact, found))} of the {nearest} nearest memories"


def missed_by_graph(exact: ChunkHits, found: ChunkHits) -> dict[str, int]:
    """The exactly nearest memories that the hits of a graph lack, with their exact ranks."""
    had = {memory_id for memory_id, _, _ in found}
    nearest = enumerate(dict.fromkeys(memory_id for memory_id, _, _ in exact), 1)
    return {memory_id: rank for rank, memory_id in nearest if memory_id not in had}


def _by_variant(lists: Sequence[RankedList], by_engine: Sequence[RankedList]) -> list[RankedList]:
    """The lists with those of engines after the others of their variant, so that `first_seen` meets one query after the other."""
    placed = list(lists)
    for ranked in by_engine:
        same = [place for place, other in enumerate(placed) if other.variant == ranked.variant]
        placed.insert(same[-1] + 1 if same else len(placed), ranked)
    return placed


def _nearest_piece(vector: Float32, piece: str, resources: Resources) -> ChunkHits:
    from cems_workbench.pipeline.text_pieces import piece_vectors  # seldom needed

    return piece_vectors(resources, piece).nearest(vector)


def _engine_query(source: str, i: int, request: Request) -> str | None:
    """What the list of a source for variant i searches as given; None if it searches the text of the variant."""
    named = request.engine_queries.get(f"{source}:{i}")
    return request.engine_queries.get(source) if named is None and i == 0 else named


def _text_for(source: str, i: int, variant: Variant, request: Request) -> str:
    query = _engine_query(source, i, request)
    return variant.text if query is None else query


def engine_depths(
    config: PipelineConfig, probe: SourceInfo, query: str, language: str = ENGLISH
) -> dict[ListName, int]:
    """Rows of each list to request from an engine: as many chunks as CEMS requests, otherwise what fills the depth on
    average. Empty if the engine has none of the lists that the config asks it for."""
    wanted: dict[ListName, int] = {}
    depths, rows_of_one = _depths(config), probe.vectors / max(1, probe.memories)
    if config.lists.answered_by == "source":
        inner = inner_depth(config, query, language)
        wanted["vector"] = inner or math.ceil(depths["vector"] * rows_of_one)
        if config.lists.hybrid.enabled or config.lists.ts_rank.enabled:
            wanted["ts_rank"] = max(inner, config.lists.ts_rank.chunk_depth)
        lexical: tuple[ListName, ...] = ("ts_rank_cd", "fts5", "sparse")
        for name in lexical:
            if config.get(f"lists.{name}.enabled"):
                wanted[name] = math.ceil(depths[name] * rows_of_one)
    if config.lists.source_hybrid.enabled:
        wanted["source_hybrid"] = math.ceil(depths["source_hybrid"] * rows_of_one)
    return {name: depth for name, depth in wanted.items() if name in probe.lists}


def _order_notes(resources: Resources) -> list[str]:
    """Why vector lists of the workbench are in another order than those of the store's sources, a line for each that says so."""

    def notes() -> list[str]:
        sources = resources.store.sources
        stated = [each for each in sources.with_memories() if each.distance is not None]
        if not stated:
            return []
        from cems_workbench.pipeline.live_engine import DISTANCE_WORDS, order_note

        metric = [each for each in stated if each.distance in DISTANCE_WORDS]
        found = [order_note(cast("Distance", each.distance), sources.vector_lengths(each.id)) for each in metric]
        return list(dict.fromkeys(note for note in found if note))

    return resources.derived("order of sources", notes)


def _unproven_vectors(resources: Resources) -> list[str]:
    """A line for each source whose vectors are searched although no text reproduces them with the embedder."""

    def doubts() -> list[str]:
        unproven = [each for each in resources.store.sources.with_memories() if each.text_form == UNPROVEN]
        if not unproven:
            return []
        from cems_workbench.sources.address import short_name

        return [
            f"the vectors of {short_name(each.address)} were not reproduced by {each.model_id}: another text was embedded, or by "
            "another model"
            for each in unproven
        ]

    return resources.derived("unproven vectors", doubts)


def _passing(hits: ChunkHits, where: Filter, resources: Resources) -> ChunkHits:
    if where.trivial:
        return hits
    memories = resources.store.memories.read({memory_id for memory_id, _, _ in hits})
    return [hit for hit in hits if passes(memories[hit[0]], where)]


def _unsupported_list(name: str, found: LiveList, probe: SourceInfo) -> list[str]:
    """What a list of the engine lacks, judged by its length."""
    short = found.shortfall(probe.vectors)
    said = [f"{name}: {short}; Index check says why"] if short else []
    if found.unknown:
        said.append(f"{name}: the snapshot lacks {counted(len(found.unknown), 'hits')}; connect again to update it")
    return said


def inner_depth(config: PipelineConfig, query: str, language: str = ENGLISH) -> int:
    """Chunks of each list inside a hybrid list that replay may ask for; 0 while that is off. `query` is the query as
    typed: replay derives the depth of the hybrid list from its words."""
    if not config.lists.hybrid.enabled:
        return 0
    return int(hybrid_cuts_of(query, config, language).by_text[0])


def _depths(config: PipelineConfig) -> dict[str, int]:
    return {source: depth or MAX_DEPTH for source, depth in list_depths(config).items()}


def _pool_warning(config: PipelineConfig, resources: Resources) -> list[str]:
    mode, size = config.lists.candidate_set.mode, candidate_set_size(config)
    if mode == "all" or (mode != "lexical_or_newest" and resources.store.memories.count() <= size):
        return []
    return [f"the vector list ranks {CANDIDATE_SETS[mode].format(size=size)} only"]


CANDIDATE_SETS: Mapping[str, str] = {
    "recent_access": "the {size} most recently accessed memories and the lexical hits",
    "newest_created": "the {size} most recently created memories and the lexical hits",
    "lexical_or_newest": "the lexical hits, or without any the {size} most recently created memories",
}
"""What the vector list ranks, by `lists.candidate_set.mode`."""


def candidate_set(found: Sequence[str], config: PipelineConfig, resources: Resources, where: Filter) -> list[str]:
    """Ids of the memories that the vector list may rank, under every mode but `all`; `found` are those of the lexical lists."""
    mode, size, memories = config.lists.candidate_set.mode, candidate_set_size(config), resources.store.memories
    if mode == "lexical_or_newest" and found:
        return list(dict.fromkeys(found))
    newest = memories.newest_by_access if mode == "recent_access" else memories.newest_by_creation
    return list(dict.fromkeys([*newest(size, where), *found]))


def _hits(found: ChunkHits) -> tuple[Hit, ...]:
    return tuple(Hit(memory_id, float(score), chunk) for memory_id, score, chunk in found)


def _only_known(ranked: RankedList, memories: Mapping[str, Memory]) -> RankedList:
    """A memory deleted since the index was built is in no list."""
    return replace(ranked, hits=tuple(hit for hit in ranked.hits if hit.memory_id in memories))


def _as_candidates(
    lists: Sequence[RankedList], memories: dict[str, Memory], chunks: Mapping[str, Sequence[Chunk]]
) -> tuple[list[RankedList], dict[str, str]]:
    """The lists with each chunk of a memory but the first found as a separate candidate, which is added to the
    memories. Also of each such candidate the memory that it is of."""
    first: dict[str, int | None] = {}
    pieces: dict[str, str] = {}

    def own(hit: Hit) -> Hit:
        if hit.chunk is None or first.setdefault(hit.memory_id, hit.chunk) == hit.chunk:
            return hit
        key = f"{hit.memory_id}#{hit.chunk}"
        while key in memories and key not in pieces:
            key += "#"  # somebody's own id looks like this
        if key not in pieces:
            pieces[key] = hit.memory_id
            memories[key] = replace(memories[hit.memory_id], id=key, content=chunks[hit.memory_id][hit.chunk].text)
        return replace(hit, memory_id=key, chunk=None)

    return [replace(ranked, hits=tuple(map(own, ranked.hits))) for ranked in lists], pieces


def _with_pieces(embeddings: dict[str, Float32], pieces: Mapping[str, str]) -> dict[str, Float32]:
    return embeddings | {piece: embeddings[key] for piece, key in pieces.items() if key in embeddings}


def metadata_lists(
    memories: Mapping[str, Memory], lists: Sequence[RankedList], config: PipelineConfig
) -> list[RankedList]:
    """The union of candidates by created_at and by access_count; hits of another list count only while that list is on."""
    sources = {
        source.name
        for source in LIST_SOURCES
        if source.finds
        # What is only shown must not change the ranks by date and use.
        and not source.engine_fusion
        and (source.per_variant or config.get(f"lists.{source.name}.enabled"))
    }
    union = {hit.memory_id for ranked in lists if ranked.source in sources for hit in ranked.hits}
    created = {key: moment.timestamp() for key in union if (moment := memories[key].created_at)}
    accessed = {key: float(memories[key].access_count) for key in union}
    return [ranked_list("recency", created), ranked_list("access", accessed)]


def _notes(
    request: Request, config: PipelineConfig, resources: Resources, understood: UnderstoodQuery
) -> dict[str, Any]:
    """The trace's notes about gathering, and the gather parameters."""
    intent, correction = understood.intent, understood.correction
    return {
        "query": {
            "route": intent.route,
            "route_reason": intent.reason,
            "complexity": intent.complexity,
            "reasoning": intent.reasoning,
            "only_project": request.only_project,
            "conversational": _conversational(understood.shape, config),
            "searched": understood.variants[0].text,
            "corrections": [asdict(found) for found in correction.corrections],
            **_given(request, correction, understood.variants[0]),
            **({"replaced": True} if understood.replaced else {}),
        },
        "expansion": {
            "backend": config.expansion.backend,
            "manual": list(request.variants),
            "probe": asdict(understood.signal),
        },
        "warnings": {stage: lines for stage, lines in understood.warnings.items() if lines},
        "gathered": {path: _plain(value) for path, value in portable_parameters(config).items()},
        "models": {"embedder": resources.embedder.model_id},
        "content_version": resources.store.content_version,
    }


def _given(request: Request, correction: CorrectedQuery, searched: Variant) -> dict[str, Any]:
    """What was searched instead of the query, and for which list; nothing of a query that was searched itself."""
    said: dict[str, Any] = {}
    if searched.text != correction.query:
        said["corrected"] = correction.query
    if request.searched:
        said["given"] = searched.text
    if request.engine_queries:
        said["engine_queries"] = dict(request.engine_queries)
    return said


def _conversational(shape: QueryFeatures, config: PipelineConfig) -> dict[str, Any]:
    """The features of the query with what they were found in, and the verdict; `enabled` says whether the verdict has an effect."""
    settings = config.query.conversational
    return {
        "enabled": settings.enabled,
        "verdict": is_conversational(shape, settings),
        "words": shape.words,
        "domain_signal": shape.domain_signal,
        "max_domain_signal": settings.max_domain_signal,
        "stopword_ratio": shape.stopword_ratio,
        "min_stopword_ratio": settings.min_stopword_ratio,
        "has_code": shape.has_code,
        "stopwords": [match.signal for match in shape.stopwords],
        "terms": [match.signal for match in shape.terms],
        "code": [match.signal for match in shape.code],
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
