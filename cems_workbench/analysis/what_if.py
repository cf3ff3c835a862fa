"""What if: the way of one memory through the pipeline as stored and as edited, side by side; nothing is written.

The evidence is recomputed for that one memory; everything else, and the store, stays unchanged:

    vector    exact cosine of the embedding of the changed text with each query variant
    lexical   BM25 of the changed text with the index's statistics (text_evidence.py)
    ts_rank   ts_rank of the changed chunks, after candidates with the same score
    relations, recency, access   recomputed from those lists, as gathering does

A list is searched one deeper, the memory is moved to the rank of its new score, and the list is cut to its depth: the memory may
enter a list or drop out, and the next one moves up. The query variants are those that were searched. The list of an added retriever
stays unchanged: only the retriever can rank the edit.

Then the reranker's and judge's scores of the memory are computed again, and those of a reranker for what follows another question
by the edit, and both evidences are replayed under the same config.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from cems_workbench.analysis import text_evidence as bm25
from cems_workbench.analysis.ranks import target_rank
from cems_workbench.analysis.why.path import memory_path
from cems_workbench.config import PipelineConfig, list_depths
from cems_workbench.config.model import candidate_set_size
from cems_workbench.config.sections.gathering import ADDED_LISTS
from cems_workbench.errors import InputError
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline import Trace, replay
from cems_workbench.pipeline.evidence import QUESTIONS, Evidence, Hit, ModelScore, RankedList
from cems_workbench.pipeline.gather import MAX_DEPTH, Request, counted, inner_depth, metadata_lists
from cems_workbench.pipeline.missing_evidence import gathered_parameters
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.retrievers import passes, ranked_list
from cems_workbench.pipeline.retrievers.relations import neighbours
from cems_workbench.pipeline.scoring import judge_missing, questions_of, score_missing
from cems_workbench.pipeline.seeds import possible_seeds
from cems_workbench.pipeline.stages import candidate_stages
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Chunk, Memory, Relation
from cems_workbench.store import Filter
from cems_workbench.store.search.hits import ChunkHits, truncate_to_memories
from cems_workbench.store.search.postgres import postgres_text
from cems_workbench.store.search.postgres.postgres_text import TsQueryError
from cems_workbench.store.search.vectors.vector_index import EXACT_ROWS, mean_direction
from cems_workbench.store.text_rule import searched_text

UNDATED = datetime.min.replace(tzinfo=UTC)


def scratch_evidence(
    edited: Memory, evidence: Evidence, config: PipelineConfig, request: Request, resources: Resources
) -> Evidence:
    """The evidence with `edited` instead of the stored memory of the same id. Raises ModelError if it cannot be embedded.

    Scores of a reranker or a judge for a changed content are left out, so that they are computed again, and so are those of a reranker for
    what follows another question.
    """
    stored = resources.store.memories.get(edited.id) or edited
    scratch = _Scratch(stored, edited, evidence, config, request, resources)
    lists = scratch.searched()
    relations: list[Relation] = []
    related = []
    if config.lists.relations.mode == "each":  # replay makes those lists of the edges
        seeds = possible_seeds(lists, config.lists.relations.seeds)
        relations = resources.store.relations.leading_from(seeds, config.lists.relations.per_seed)
    else:
        related = [ranked_list("relations", neighbours(lists, config, resources))]
    added = [ranked for ranked in evidence.lists if ranked.source in ADDED_LISTS]
    ids = {hit.memory_id for ranked in (*lists, *related, *added) for hit in ranked.hits}
    ids |= {relation.target_id for relation in relations}
    memories = resources.store.memories.read(ids) | ({edited.id: edited} if edited.id in ids else {})
    known = [scratch.known(ranked, memories) for ranked in lists]
    allowed = {key: memory for key, memory in memories.items() if passes(memory, scratch.where)}
    known += [scratch.known(ranked, allowed) for ranked in (*related, *added)]
    relations = [relation for relation in relations if relation.target_id in memories]
    inside = {hit.memory_id for ranked in known for hit in ranked.hits}
    inside |= {relation.target_id for relation in relations}
    memories = {key: memory for key, memory in memories.items() if key in inside}
    known += metadata_lists(memories, known, config)
    embeddings = resources.indexes.vectors.embeddings(sorted(memories))
    chunks = resources.store.chunks.read(memories)
    if edited.id in embeddings or (edited.id in memories and scratch.rewritten):
        embeddings[edited.id] = mean_direction(list(scratch.vectors.values()))
    if edited.id in memories and scratch.rewritten:
        chunks.pop(edited.id, None)
        chunks |= {edited.id: scratch.would_be[0]} if scratch.would_be[0] else {}
    anew = {edited.id} if edited.content != stored.content else set()
    notes, asked = evidence.notes, anew
    if config.rerank.prepend_question:  # the memory may be what another follows, or follow another
        questions = questions_of(memories.values(), resources, edited)
        notes = {**notes, QUESTIONS: questions}
        asked = anew | {key for key in memories if questions.get(key) != evidence.questions.get(key)}
    return replace(
        evidence,
        memories=memories,
        lists=tuple(known),
        embeddings=embeddings,
        relations=tuple(relations),
        chunks=chunks,
        tokens=counted(memories, chunks) if evidence.tokens else {},
        notes=notes,
        model_scores=_without(evidence.model_scores, asked),
        judge_scores=_without(evidence.judge_scores, anew),
    )


@dataclass(frozen=True)
class _Scratch:
    """One edit on one evidence: its rank in every list that was searched."""

    stored: Memory
    edited: Memory
    evidence: Evidence
    config: PipelineConfig
    request: Request
    resources: Resources

    @cached_property
    def where(self) -> Filter:
        """The filter that the lists were searched with."""
        return Filter(self.request.project, self.request.project_only, self.config.query.scope)

    @cached_property
    def rewritten(self) -> bool:
        """Whether the edit changes the embedded and searched text."""
        return _searched_differently(self.stored, self.edited, self.resources)

    @cached_property
    def would_be(self) -> tuple[tuple[Chunk, ...], dict[int | None, str]]:
        """The chunks of the memory as edited, and its searched texts."""
        return self.resources.store.chunks.preview(self.edited, self.resources.embedder)

    @cached_property
    def vectors(self) -> dict[int | None, Float32]:
        """The embeddings of the chunks as edited, or under None that of the whole text."""
        kept = {} if self.rewritten else self.resources.indexes.vectors.chunk_embeddings([self.edited.id])
        if self.edited.id in kept:
            return kept[self.edited.id]
        texts = self.would_be[1]
        return dict(zip(texts, self.resources.embedder.encode(list(texts.values())), strict=True))

    def _cosines(self, vector: Float32) -> dict[int | None, float]:
        return {chunk: float(own @ vector) for chunk, own in self.vectors.items()}

    def searched(self) -> list[RankedList]:
        """The per-variant lists, with the memory at the rank of the edit."""
        found: dict[str, RankedList] = {}
        lexical: dict[int | None, ChunkHits] = {}
        for ranked in sorted(self.evidence.lists, key=lambda ranked: ranked.source != "lexical"):
            text = "" if ranked.variant is None else self.evidence.text_for(ranked.source, ranked.variant)
            if ranked.source == "lexical":
                hits = lexical[ranked.variant] = self._lexical(text)
            elif ranked.source == "vector":
                hits = self._vector(text, lexical.get(ranked.variant, []))
            elif ranked.source == "ts_rank":
                hits = self._ts_rank(text)
            else:
                continue
            found[ranked.name] = replace(
                ranked, hits=tuple(Hit(key, float(score), chunk) for key, score, chunk in hits)
            )
        return [found[ranked.name] for ranked in self.evidence.lists if ranked.name in found]

    def known(self, ranked: RankedList, memories: Mapping[str, Memory]) -> RankedList:
        """The list restricted to these memories."""
        return replace(ranked, hits=tuple(hit for hit in ranked.hits if hit.memory_id in memories))

    def _depth(self, source: str) -> int:
        """The depth that the evidence was gathered with, which may exceed that of the config."""
        return self._gathered(f"lists.{source}.depth", list_depths(self.config)[source]) or MAX_DEPTH

    def _gathered(self, path: str, otherwise: int | None) -> Any:
        return gathered_parameters(self.evidence).get(path, otherwise)

    def _lexical(self, text: str) -> ChunkHits:
        depth = self._depth("lexical")
        index = self.resources.lexical(self.config.lists.lexical)
        hits = index.search_chunks(text, depth + 1, self.where)
        own: dict[int | None, float] = {}
        if passes(self.edited, self.where):
            if not self.rewritten and passes(self.stored, self.where):
                own = self._own(hits)
            else:
                scores = {chunk: bm25.score(index, text, piece) for chunk, piece in self.would_be[1].items()}
                own = {chunk: score for chunk, score in scores.items() if score}
        return self._placed(hits, own, depth)

    def _own(self, hits: ChunkHits) -> dict[int | None, float]:
        return {chunk: score for memory_id, score, chunk in hits if memory_id == self.edited.id}

    def _ts_rank(self, text: str) -> ChunkHits:
        """Chunks by ts_rank, as many as gathering takes."""
        depth = max(self._gathered("lists.ts_rank.chunk_depth", self.config.lists.ts_rank.chunk_depth), self._inner)
        index = self.resources.full_text()
        try:
            asked = postgres_text.or_query(text)
            hits = index.search(asked, index.chunk_count, self.where, "window", depth)
        except TsQueryError:
            return []
        if not self.rewritten and passes(self.edited, self.where) == passes(self.stored, self.where):
            return hits[:depth]
        hits = [hit for hit in hits if hit[0] != self.edited.id]
        if passes(self.edited, self.where):
            documents = {chunk: postgres_text.lexemes(piece) for chunk, piece in self.would_be[1].items()}
            hits += [
                (self.edited.id, postgres_text.ts_rank(document, asked), chunk)
                for chunk, document in documents.items()
                if postgres_text.matches(document, asked)
            ]
        return sorted(hits, key=lambda hit: -hit[1])[:depth]  # of equal ranks the row that was written last comes last

    @cached_property
    def _inner(self) -> int:
        return inner_depth(self.config, self.evidence.query, self.evidence.language)

    def _vector(self, text: str, lexical: ChunkHits) -> ChunkHits:
        depth = max(self._depth("vector"), self._inner)
        vector = self.resources.embedder.encode_query(text)
        if self.config.lists.candidate_set.mode != "all":
            return self._pooled(vector, lexical, depth)
        hits = self.resources.indexes.vectors.search_chunks(vector, depth + 1, self.where)
        if not passes(self.edited, self.where):
            return self._placed(hits, {}, depth)
        own = {} if self.rewritten else self._own(hits)
        return self._placed(hits, own or self._cosines(vector), depth)

    def _pooled(self, vector: Float32, lexical: ChunkHits, depth: int) -> ChunkHits:
        """The newest memories and the lexical hits, by cosine."""
        alone = self.config.lists.candidate_set.mode == "lexical_or_newest" and bool(lexical)
        pool = dict.fromkeys([*([] if alone else self._newest()), *(memory_id for memory_id, _, _ in lexical)])
        hits = self.resources.cosines(vector, [memory_id for memory_id in pool if memory_id != self.edited.id])
        return self._placed(hits, self._cosines(vector) if self.edited.id in pool else {}, depth)

    def _newest(self) -> list[str]:
        """The most recently accessed or created, with the memory at the rank of its edited dates."""
        size, memories = candidate_set_size(self.config), self.resources.store.memories
        by_access = self.config.lists.candidate_set.mode == "recent_access"
        read, moment = (memories.newest_by_access, _accessed) if by_access else (memories.newest_by_creation, _created)
        newest = [key for key in read(size + 1, self.where) if key != self.edited.id]
        if not passes(self.edited, self.where):
            return newest[:size]
        moments = {key: moment(memory) for key, memory in memories.read(newest).items()}
        moments[self.edited.id] = moment(self.edited)
        return sorted(sorted(moments), key=lambda key: moments[key], reverse=True)[:size]

    def _placed(self, hits: ChunkHits, own: Mapping[int | None, float], depth: int) -> ChunkHits:
        rest = [hit for hit in hits if hit[0] != self.edited.id]
        rest += [(self.edited.id, score, chunk) for chunk, score in own.items()]
        return truncate_to_memories(sorted(rest, key=lambda hit: (-hit[1], hit[0], hit[2] or 0)), depth)


def _accessed(memory: Memory) -> datetime:
    return memory.last_accessed or memory.created_at or UNDATED


def _created(memory: Memory) -> datetime:
    return memory.created_at or UNDATED


def _without(
    scores: Mapping[str, Mapping[str, ModelScore]], memory_ids: Collection[str]
) -> Mapping[str, Mapping[str, ModelScore]]:
    return {model: {key: score for key, score in of.items() if key not in memory_ids} for model, of in scores.items()}


@dataclass(frozen=True, slots=True)
class EditedRank:
    """Rank and score in a list or after a stage, and its effect in words; `kept` is False if it was dropped."""

    rank: int | None
    score: float | None
    kept: bool
    words: str


@dataclass(frozen=True, slots=True)
class BeforeAfter:
    """The same list or stage before and after the edit; None if the memory is not in it."""

    name: str
    before: EditedRank | None
    after: EditedRank | None

    @property
    def same(self) -> bool:
        """Nothing is different."""
        return self.before == self.after


@dataclass(frozen=True, slots=True)
class MovedMemory:
    """Another result with a changed rank; None: it is not among the results."""

    memory_id: str
    before: int | None
    after: int | None


@dataclass(frozen=True)
class WhatIf:
    """One edit and its effects; `approximated` lists, in sentences, the differences from a real edit."""

    stored: Memory
    edited: Memory
    before: Trace
    after: Trace
    approximated: tuple[str, ...]

    @property
    def changes(self) -> list[tuple[str, Any, Any]]:
        """The fields that differ, as (name, stored, edited)."""
        pairs = (
            (field.name, getattr(self.stored, field.name), getattr(self.edited, field.name)) for field in fields(Memory)
        )
        return [(name, was, now) for name, was, now in pairs if was != now]

    @property
    def rank(self) -> tuple[int | None, int | None]:
        """The memory's rank among the results, before and after."""
        before, after = (_ranks(trace).get(self.edited.id) for trace in (self.before, self.after))
        return before, after

    def lists(self) -> list[BeforeAfter]:
        """The memory's rank in every list of either evidence."""
        before, after = (_in_lists(trace, self.edited.id) for trace in (self.before, self.after))
        names = dict.fromkeys(
            listed.name for trace in (self.before, self.after) for listed in trace.stage(LISTS).fields.lists
        )
        return [BeforeAfter(name, before.get(name), after.get(name)) for name in names]

    def stages(self) -> list[BeforeAfter]:
        """The memory's way through the stages after the lists."""
        before, after = (_in_stages(trace, self.edited.id) for trace in (self.before, self.after))
        return [
            BeforeAfter(stage.name, before.get(stage.name), after.get(stage.name))
            for stage in candidate_stages(self.after.config)[1:]
        ]

    def others(self) -> list[MovedMemory]:
        """The other results with a changed rank, by their rank afterwards; those that are gone come last."""
        before, after = _ranks(self.before), _ranks(self.after)
        moved = [
            MovedMemory(key, before.get(key), after.get(key))
            for key in before.keys() | after.keys()
            if key != self.edited.id and before.get(key) != after.get(key)
        ]
        return sorted(
            moved, key=lambda result: (result.after is None, result.after or 0, result.before or 0, result.memory_id)
        )


def what_if(
    edited: Memory,
    evidence: Evidence,
    config: PipelineConfig,
    request: Request,
    resources: Resources,
    *,
    switched_off: Collection[int] = (),
    progress: Progress = silent,
) -> WhatIf:
    """The effect on `evidence` if the stored memory of that id were `edited`.

    Raises InputError if there is no such memory, ModelError if its text cannot be embedded. Only scores of a reranker or judge
    for the changed text are kept, in their cache; no memory is written.
    """
    stored = resources.store.memories.get(edited.id)
    if stored is None:
        raise InputError(f"{edited.id}: no such memory; it may have been deleted")
    scratch = scratch_evidence(edited, evidence, config, request, resources)
    scratch = score_missing(scratch, config, resources, progress, switched_off=switched_off)
    if any(edited.id in scores for scores in evidence.judge_scores.values()):
        scratch = judge_missing(scratch, config, resources, progress, switched_off=switched_off)
    before, after = (replay(one, config, switched_off=switched_off) for one in (evidence, scratch))
    return WhatIf(stored, edited, before, after, tuple(_approximated(stored, edited, evidence, config, resources)))


def _searched_differently(stored: Memory, edited: Memory, resources: Resources) -> bool:
    rule = resources.store.texts.rule
    return searched_text(stored, rule) != searched_text(edited, rule)


def _approximated(
    stored: Memory, edited: Memory, evidence: Evidence, config: PipelineConfig, resources: Resources
) -> list[str]:
    if not _searched_differently(stored, edited, resources):
        return []
    said = []
    relations = config.lists.relations
    by_bm25 = config.lists.lexical.enabled or (
        relations.enabled and relations.mode == "strongest"
    )  # whose seeds it finds
    if by_bm25 and any(ranked.source == "lexical" for ranked in evidence.lists):
        said.append(
            "BM25 takes word frequencies and mean length from the unchanged store; a real edit would shift them a little."
        )
    added = [ranked.name for ranked in evidence.lists if ranked.source in ADDED_LISTS]
    if added:
        said.append(
            f"The lists of added sources ({', '.join(added)}) stay unchanged; only those sources know what they would return."
        )
    if len(evidence.variants) > 1:
        said.append(
            "The query variants are those that were searched; expansion might choose other words after a real edit."
        )
    if len(resources.indexes.vectors) > EXACT_ROWS:
        said.append(
            "The vector index searches approximately in a store of this size; the edited memory is placed by its exact cosine."
        )
    return said


def _ranks(trace: Trace) -> dict[str, int]:
    return {result.memory_id: result.rank for result in trace.results}


def _in_lists(trace: Trace, memory_id: str) -> dict[str, EditedRank]:
    stage = trace.stage(LISTS)
    row = stage.by_id.get(memory_id)
    cut = {
        one.name: f"inside {hybrid}"
        if (hybrid := stage.fields.inside(one))
        else "past its depth"
        if one.active
        else "off"
        for one in stage.fields.lists
    }
    return {
        entry.list: EditedRank(entry.rank, entry.raw, entry.kept, "" if entry.kept else cut[entry.list])
        for entry in (row.lists if row else ())
    }


def _in_stages(trace: Trace, memory_id: str) -> dict[str, EditedRank]:
    path = memory_path(trace, memory_id, target_rank(trace.config))
    return {step.stage: EditedRank(step.rank, step.score, step.kept, step.words) for step in path.steps}
