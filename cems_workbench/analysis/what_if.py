"""What if: the way of one memory through the pipeline as stored, and edited, absent or new, side by side; nothing is written.

The evidence is recomputed for that one memory; everything else, and the store, stays unchanged:

    vector    exact cosine of the embedding of the changed text with each query variant
    lexical   BM25 in the index as it would be: with the edit's word frequencies and lengths
    ts_rank   ts_rank of the changed chunks, after candidates with the same score
    relations, recency, access   recomputed from those lists, as gathering does

A list is searched one deeper, the memory is moved to the rank of its new score, and the list is cut to its depth: the memory may
enter a list or drop out, and the next one moves up. The query variants are those that were searched. The list of an added retriever
stays unchanged: only the retriever can rank the edit. An absent memory leaves such a list too, and nobody moves up into it; so it is with
lists that a running system answered. A new memory is put into the lists of the evidence, which need no search for it.

Then the reranker's and judge's scores of the memory are computed again, and those of a reranker for what follows another question
by the edit, and both evidences are replayed under the same config.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from cems_workbench.analysis.ranks import loss, target_rank
from cems_workbench.analysis.why.path import memory_path
from cems_workbench.analysis.why.report import require_stored
from cems_workbench.config import PipelineConfig, list_depths
from cems_workbench.config.model import candidate_set_size
from cems_workbench.config.sections.gathering import ADDED_LISTS
from cems_workbench.errors import InputError, short
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
from cems_workbench.pipeline.supersession import SUPERSEDED, Supersession, find_successors
from cems_workbench.pipeline.wording import ordinal
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Chunk, Memory, Relation
from cems_workbench.store import Filter
from cems_workbench.store.search.entries import Document
from cems_workbench.store.search.hits import ChunkHits, truncate_to_memories
from cems_workbench.store.search.lexical.lexical_index import LexicalIndex
from cems_workbench.store.search.postgres import postgres_text
from cems_workbench.store.search.postgres.postgres_text import TsQueryError
from cems_workbench.store.search.vectors.vector_index import EXACT_ROWS, mean_direction
from cems_workbench.store.text_rule import searched_text

UNDATED = datetime.min.replace(tzinfo=UTC)
RANKED_AGAIN = ("lexical", "vector", "ts_rank", "relations", "recency", "access")
"""The sources whose lists are made again after an edit; every other list is kept as it was gathered."""
NEW_ID = "new-memory"
"""The id of a memory that is not in the store."""
MAX_NEW_CHARS = 100_000
"""Longest text of one; it is cut into chunks as the store's rule says."""


@dataclass(frozen=True)
class Edit:
    """A memory as stored and as edited: None as stored, it is new; None as edited, it is absent. Its texts are embedded once."""

    stored: Memory | None
    edited: Memory | None
    resources: Resources
    _lexical: dict[LexicalIndex, LexicalIndex] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise ValueError without a memory, or for two different ones."""
        if len({memory.id for memory in (self.stored, self.edited) if memory is not None}) != 1:
            raise ValueError("an edit is of one memory")

    @property
    def memory_id(self) -> str:
        """The memory's id."""
        return self.either.id

    @property
    def either(self) -> Memory:
        """The memory as edited, or as stored if it is absent."""
        memory = self.edited or self.stored
        assert memory is not None
        return memory

    @cached_property
    def rewritten(self) -> bool:
        """Whether the edit changes the embedded and searched text."""
        if self.stored is None or self.edited is None:
            return self.edited is not None
        rule = self.resources.store.texts.rule
        return searched_text(self.stored, rule) != searched_text(self.edited, rule)

    @cached_property
    def would_be(self) -> tuple[tuple[Chunk, ...], dict[int | None, str]]:
        """The chunks of the memory as edited, and its searched texts."""
        return self.resources.store.chunks.preview(self.either, self.resources.embedder)

    @cached_property
    def vectors(self) -> dict[int | None, Float32]:
        """The embeddings of the chunks as edited, or under None that of the whole text."""
        kept = {} if self.rewritten else self.resources.indexes.vectors.chunk_embeddings([self.memory_id])
        if self.memory_id in kept:
            return kept[self.memory_id]
        texts = self.would_be[1]
        return dict(zip(texts, self.resources.embedder.encode(list(texts.values())), strict=True))

    def lexical(self, index: LexicalIndex) -> LexicalIndex:
        """The lexical index as it would be after the edit; made once for each analysis, k1 and b."""
        if index not in self._lexical:
            self._lexical[index] = index.replaced(self.memory_id, self._document)
        return self._lexical[index]

    @property
    def _document(self) -> Document | None:
        if self.edited is None:
            return None
        chunks, texts = self.would_be
        whole = searched_text(self.edited, self.resources.store.texts.rule)
        pieces = tuple((chunk.seq, texts[chunk.seq]) for chunk in chunks)
        return Document(self.memory_id, whole, self.edited.project, self.edited.scope, pieces)

    @cached_property
    def chunk_count(self) -> int:
        """Index entries of the memory as stored."""
        return max(1, len(self.resources.store.chunks.read([self.memory_id]).get(self.memory_id, ())))

    @property
    def in_no_session(self) -> Memory:
        """The memory as what follows it in its session sees it: as edited, or without a place in it if it is absent."""
        return self.edited or replace(self.either, session=None)


def scratch_evidence(
    edited: Memory, evidence: Evidence, config: PipelineConfig, request: Request, resources: Resources
) -> Evidence:
    """The evidence with `edited` instead of the stored memory of the same id, or with it as a new one.

    Raises ModelError if it cannot be embedded. As `edited_evidence`.
    """
    stored = resources.store.memories.get(edited.id)
    return edited_evidence(Edit(stored, edited, resources), evidence, config, request)


def edited_evidence(edit: Edit, evidence: Evidence, config: PipelineConfig, request: Request) -> Evidence:
    """The evidence as it would be with the edit. Raises ModelError if the text cannot be embedded.

    Scores of a reranker or a judge for a changed content are left out, so that they are computed again, and so are those of a reranker for
    what follows another question. Of the request only project and restriction to it are read.
    """
    scratch = _Scratch(edit, evidence, config, request)
    resources, memory_id = edit.resources, edit.memory_id
    lists = scratch.searched()
    relations: list[Relation] = []
    related = []
    if config.lists.relations.mode == "each":  # replay makes those lists of the edges
        seeds = possible_seeds(lists, config.lists.relations.seeds)
        relations = _leading_from(seeds, config.lists.relations.per_seed, edit)
    else:
        without = memory_id if edit.edited is None else None
        related = [ranked_list("relations", neighbours(lists, config, resources, without=without))]
    added = [ranked for ranked in evidence.lists if ranked.source in ("entities", *ADDED_LISTS)]
    ids = {hit.memory_id for ranked in (*lists, *related, *added) for hit in ranked.hits}
    ids |= {relation.target_id for relation in relations}
    own = {} if edit.edited is None else {memory_id: edit.edited}
    memories = resources.store.memories.read(ids - {memory_id}) | (own if memory_id in ids else {})
    known = [scratch.known(ranked, memories) for ranked in lists]
    allowed = {key: memory for key, memory in memories.items() if passes(memory, scratch.where)}
    known += [scratch.known(ranked, allowed) for ranked in (*related, *added)]
    relations = [relation for relation in relations if relation.target_id in memories]
    inside = {hit.memory_id for ranked in known for hit in ranked.hits}
    inside |= {relation.target_id for relation in relations}
    memories = {key: memory for key, memory in memories.items() if key in inside}
    notes: Mapping[str, Any] = evidence.notes
    if SUPERSEDED in notes:
        noted = _superseded(memories, evidence, scratch.where, edit)
        memories |= resources.store.memories.read(noted.added - memories.keys() - {memory_id})
        memories |= own if memory_id in noted.added else {}
        notes = {**notes, SUPERSEDED: noted.to_json()}
    known += metadata_lists(memories, known, config)
    embeddings = resources.indexes.vectors.embeddings(sorted(memories))
    chunks = resources.store.chunks.read(memories)
    if edit.edited is not None and (memory_id in embeddings or (memory_id in memories and edit.rewritten)):
        embeddings[memory_id] = mean_direction(list(edit.vectors.values()))
    if memory_id in memories and edit.rewritten:
        chunks.pop(memory_id, None)
        chunks |= {memory_id: edit.would_be[0]} if edit.would_be[0] else {}
    again = {memory_id} if edit.edited is None or edit.stored is None else set()
    if edit.edited is not None and edit.stored is not None and edit.edited.content != edit.stored.content:
        again = {memory_id}
    asked = again
    if config.rerank.prepend_question:  # the memory may be what another follows, or follow another
        questions = questions_of(memories.values(), resources, edit.in_no_session)
        notes = {**notes, QUESTIONS: questions}
        asked = again | {key for key in memories if questions.get(key) != evidence.questions.get(key)}
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
        judge_scores=_without(evidence.judge_scores, again),
    )


def _leading_from(seeds: Sequence[str], most: int, edit: Edit) -> list[Relation]:
    """The edges of each seed, at most `most`; those to an absent memory make room for the next."""
    relations = edit.resources.store.relations
    if edit.edited is not None:
        return relations.leading_from(seeds, most)
    kept: list[Relation] = []
    for edge in relations.leading_from([seed for seed in seeds if seed != edit.memory_id], MAX_DEPTH):
        own = sum(one.source_id == edge.source_id for one in kept)
        if edge.target_id != edit.memory_id and own < most:
            kept.append(edge)
    return kept


def _superseded(memories: Mapping[str, Memory], evidence: Evidence, where: Filter, edit: Edit) -> Supersession:
    """What supersedes the candidates. An absent memory is none of them; one with another date or place is as edited."""
    edges = edit.resources.store.relations.superseding(memories)
    edited = edit.edited
    edges = [
        edge
        if edge.newer != edit.memory_id
        else replace(edge, live=False)
        if edited is None
        else replace(edge, created_at=edited.created_at, project=edited.project, scope=edited.scope)
        for edge in edges
    ]
    return find_successors(edges, evidence.as_of, where)


@dataclass(frozen=True)
class _Scratch:
    """One edit on one evidence: its rank in every list that was searched."""

    edit: Edit
    evidence: Evidence
    config: PipelineConfig
    request: Request

    @property
    def resources(self) -> Resources:
        """The open store with its models."""
        return self.edit.resources

    @cached_property
    def where(self) -> Filter:
        """The filter that the lists were searched with."""
        return Filter(self.request.project, self.request.project_only, self.config.query.scope)

    @cached_property
    def inside(self) -> bool:
        """Whether the edited memory is searched: it is there, and the filter lets it pass."""
        return self.edit.edited is not None and passes(self.edit.edited, self.where)

    @cached_property
    def was_inside(self) -> bool:
        """Whether the stored memory was searched."""
        return self.edit.stored is not None and passes(self.edit.stored, self.where)

    def _cosines(self, vector: Float32) -> dict[int | None, float]:
        return {chunk: float(own @ vector) for chunk, own in self.edit.vectors.items()}

    def searched(self) -> list[RankedList]:
        """The per-variant lists, with the memory at the rank of the edit."""
        found: dict[str, RankedList] = {}
        lexical: dict[int | None, ChunkHits] = {}
        for ranked in sorted(self.evidence.lists, key=lambda ranked: ranked.source != "lexical"):
            text = "" if ranked.variant is None else self.evidence.text_for(ranked.source, ranked.variant)
            elsewhere = answered_elsewhere(self.evidence)
            # A new memory, and one that the filter hides before and after, moves nobody up: no search is needed.
            unsearched = elsewhere or self.edit.stored is None or not (self.inside or self.was_inside)
            kept = [(hit.memory_id, hit.score, hit.chunk) for hit in ranked.hits] if unsearched else None
            if ranked.source == "lexical":
                hits = lexical[ranked.variant] = self._lexical(text, kept if elsewhere else None)
            elif ranked.source == "vector":
                hits = self._vector(text, lexical.get(ranked.variant, []), kept)
            elif ranked.source == "ts_rank":
                hits = self._ts_rank(text, kept)
            else:
                if ranked.variant is not None:  # not searched again: `approximated` says so
                    found[ranked.name] = ranked if self.inside else self._without_it(ranked)
                continue
            found[ranked.name] = replace(
                ranked, hits=tuple(Hit(key, float(score), chunk) for key, score, chunk in hits)
            )
        return [found[ranked.name] for ranked in self.evidence.lists if ranked.name in found]

    def _without_it(self, ranked: RankedList) -> RankedList:
        return replace(ranked, hits=tuple(hit for hit in ranked.hits if hit.memory_id != self.edit.memory_id))

    def known(self, ranked: RankedList, memories: Mapping[str, Memory]) -> RankedList:
        """The list restricted to these memories."""
        return replace(ranked, hits=tuple(hit for hit in ranked.hits if hit.memory_id in memories))

    def _depth(self, source: str) -> int:
        """The depth that the evidence was gathered with, which may exceed that of the config."""
        return self._gathered(f"lists.{source}.depth", list_depths(self.config)[source]) or MAX_DEPTH

    def _gathered(self, path: str, otherwise: int | None) -> Any:
        return gathered_parameters(self.evidence).get(path, otherwise)

    def _lexical(self, text: str, kept: ChunkHits | None) -> ChunkHits:
        depth = self._depth("lexical")
        if kept is not None:
            return self._placed(kept, {}, depth)
        # Also if the filter hides the memory: frequencies and lengths are those of the whole store.
        index = self.edit.lexical(self.resources.lexical(self.config.lists.lexical))
        return index.search_chunks(text, depth, self.where)

    def _own(self, hits: ChunkHits) -> dict[int | None, float]:
        return {chunk: score for memory_id, score, chunk in hits if memory_id == self.edit.memory_id}

    def _ts_rank(self, text: str, kept: ChunkHits | None) -> ChunkHits:
        """Chunks by ts_rank, as many as gathering takes."""
        depth = max(self._gathered("lists.ts_rank.chunk_depth", self.config.lists.ts_rank.chunk_depth), self._inner)
        index = self.resources.full_text()
        try:
            asked = postgres_text.or_query(text)
            more = depth + self.edit.chunk_count  # as many may leave
            hits = index.search(asked, index.chunk_count, self.where, "window", more) if kept is None else kept
        except TsQueryError:
            return []
        if not self.edit.rewritten and self.inside == self.was_inside:
            return hits[:depth]
        hits = [hit for hit in hits if hit[0] != self.edit.memory_id]
        if self.inside:
            documents = {chunk: postgres_text.lexemes(piece) for chunk, piece in self.edit.would_be[1].items()}
            hits += [
                (self.edit.memory_id, postgres_text.ts_rank(document, asked), chunk)
                for chunk, document in documents.items()
                if postgres_text.matches(document, asked)
            ]
        return sorted(hits, key=lambda hit: -hit[1])[:depth]  # of equal ranks the row that was written last comes last

    @cached_property
    def _inner(self) -> int:
        return inner_depth(self.config, self.evidence.query, self.evidence.language)

    def _vector(self, text: str, lexical: ChunkHits, kept: ChunkHits | None) -> ChunkHits:
        depth = max(self._depth("vector"), self._inner)
        if kept is not None and not self.inside:
            return self._placed(kept, {}, depth)
        vector = self.resources.embedder.encode_query(text)
        if self.config.lists.candidate_set.mode != "all":
            return self._pooled(vector, lexical, depth)
        hits = self.resources.indexes.vectors.search_chunks(vector, depth + 1, self.where) if kept is None else kept
        if not self.inside:
            return self._placed(hits, {}, depth)
        own = {} if self.edit.rewritten else self._own(hits)
        return self._placed(hits, own or self._cosines(vector), depth)

    def _pooled(self, vector: Float32, lexical: ChunkHits, depth: int) -> ChunkHits:
        """The newest memories and the lexical hits, by cosine."""
        alone = self.config.lists.candidate_set.mode == "lexical_or_newest" and bool(lexical)
        pool = dict.fromkeys([*([] if alone else self._newest()), *(memory_id for memory_id, _, _ in lexical)])
        hits = self.resources.cosines(vector, [memory_id for memory_id in pool if memory_id != self.edit.memory_id])
        return self._placed(hits, self._cosines(vector) if self.edit.memory_id in pool else {}, depth)

    def _newest(self) -> list[str]:
        """The most recently accessed or created, with the memory at the rank of its edited dates."""
        size, memories = candidate_set_size(self.config), self.resources.store.memories
        by_access = self.config.lists.candidate_set.mode == "recent_access"
        read, moment = (memories.newest_by_access, _accessed) if by_access else (memories.newest_by_creation, _created)
        newest = [key for key in read(size + 1, self.where) if key != self.edit.memory_id]
        if not self.inside:
            return newest[:size]
        moments = {key: moment(memory) for key, memory in memories.read(newest).items()}
        moments[self.edit.memory_id] = moment(self.edit.either)
        return sorted(sorted(moments), key=lambda key: moments[key], reverse=True)[:size]

    def _placed(self, hits: ChunkHits, own: Mapping[int | None, float], depth: int) -> ChunkHits:
        rest = [hit for hit in hits if hit[0] != self.edit.memory_id]
        rest += [(self.edit.memory_id, score, chunk) for chunk, score in own.items()]
        return truncate_to_memories(sorted(rest, key=lambda hit: (-hit[1], hit[0], hit[2] or 0)), depth)


def answered_elsewhere(evidence: Evidence) -> bool:
    """Whether a running system answered the lists: the store's own indexes cannot fill them."""
    return bool(evidence.notes.get("engine"))


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

    stored: Memory | None
    """None: it is new."""
    edited: Memory | None
    """None: it is absent."""
    before: Trace
    after: Trace
    approximated: tuple[str, ...]

    @property
    def memory_id(self) -> str:
        """The id of the memory."""
        memory = self.edited or self.stored
        assert memory is not None
        return memory.id

    @property
    def changes(self) -> list[tuple[str, Any, Any]]:
        """The fields that differ, as (name, stored, edited); none of a memory that is new or absent."""
        if self.stored is None or self.edited is None:
            return []
        pairs = ((one.name, getattr(self.stored, one.name), getattr(self.edited, one.name)) for one in fields(Memory))
        return [(name, was, now) for name, was, now in pairs if was != now]

    @property
    def rank(self) -> tuple[int | None, int | None]:
        """The memory's rank among the results, before and after."""
        before, after = (_ranks(trace).get(self.memory_id) for trace in (self.before, self.after))
        return before, after

    def lists(self) -> list[BeforeAfter]:
        """The memory's rank in every list of either evidence."""
        before, after = (_in_lists(trace, self.memory_id) for trace in (self.before, self.after))
        names = dict.fromkeys(
            listed.name for trace in (self.before, self.after) for listed in trace.stage(LISTS).fields.lists
        )
        return [BeforeAfter(name, before.get(name), after.get(name)) for name in names]

    def stages(self) -> list[BeforeAfter]:
        """The memory's way through the stages after the lists."""
        before, after = (_in_stages(trace, self.memory_id) for trace in (self.before, self.after))
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
            if key != self.memory_id and before.get(key) != after.get(key)
        ]
        return sorted(
            moved, key=lambda result: (result.after is None, result.after or 0, result.before or 0, result.memory_id)
        )

    def came(self, k: int) -> list[MovedMemory]:
        """The other memories that enter the first k results: what comes in an absent memory's place."""
        return [one for one in self.others() if within(one.after, k) and not within(one.before, k)]

    def left(self, k: int) -> list[MovedMemory]:
        """The other memories that leave the first k results."""
        return [one for one in self.others() if within(one.before, k) and not within(one.after, k)]

    def text_of(self, memory_id: str) -> str:
        """The beginning of a result's text."""
        memories = self.after.evidence.memories
        memory = memories.get(memory_id) or self.before.evidence.memories[memory_id]
        return short(memory.content)

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain values."""
        k = target_rank(self.after.config)
        return {
            "memory_id": self.memory_id,
            "sentence": self.sentence,
            "certainty": self.certainty,
            "rank": self.rank[1],
            "before": self.rank[0],
            "came": [one.memory_id for one in self.came(k)],
            "left": [one.memory_id for one in self.left(k)],
            "others": [{"memory_id": one.memory_id, "rank": one.after, "before": one.before} for one in self.others()],
            "lists": [
                {"list": pair.name, "rank": pair.after and pair.after.rank, "before": pair.before and pair.before.rank}
                for pair in self.lists()
                if pair.before or pair.after
            ],
        }

    @property
    def certainty(self) -> str:
        """Which ranks are estimated, in sentences."""
        return certainty(self.approximated)

    @property
    def sentence(self) -> str:
        """What the change does to the first results, in a sentence."""
        k = target_rank(self.after.config)
        before, after = (f"{ordinal(rank)}" if rank is not None else "not in the results" for rank in self.rank)
        came, left = self.came(k), self.left(k)
        if self.edited is None:
            return f"Without {self.memory_id} ({before}), {_named(came)} {_verb(came, 'come')} into the first {k}."
        if self.stored is not None:
            return f"{self.memory_id} is {after}; before {before}."
        lost = loss(self.after, self.memory_id)
        where = "no list would find it" if lost is None else f"lost at {lost.stage}: {lost.reason}"
        if self.rank[1] is None:
            return f"This memory would not be found: {where}."
        return f"This memory would be {after}; {_named(left)} {_verb(left, 'leave')} the first {k}."


def _named(moved: Sequence[MovedMemory]) -> str:
    return ", ".join(one.memory_id for one in moved) or "nothing"


def _verb(moved: Sequence[MovedMemory], verb: str) -> str:
    return verb if len(moved) > 1 else f"{verb}s"


def certainty(approximated: Sequence[str]) -> str:
    """The differences from a real change in sentences, or that there are none."""
    if not approximated:
        return "Exact: every rank is the one that a real change would give."
    return " ".join(("Estimated:", *approximated, "All other ranks are exact."))


def within(rank: int | None, k: int) -> bool:
    """Whether a rank among the results, None for none, is one of the first k."""
    return rank is not None and rank <= k


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
    edit = Edit(_stored(edited.id, resources), edited, resources)
    return applied(edit, evidence, config, request, switched_off=switched_off, progress=progress)


def absent(
    memory_id: str,
    evidence: Evidence,
    config: PipelineConfig,
    request: Request,
    resources: Resources,
    *,
    switched_off: Collection[int] = (),
    progress: Progress = silent,
) -> WhatIf:
    """The effect on `evidence` if the memory were not in the store. Raises InputError, naming the nearest ids, if it is not."""
    edit = absence(memory_id, resources)
    return applied(edit, evidence, config, request, switched_off=switched_off, progress=progress)


def present(
    new: Memory,
    evidence: Evidence,
    config: PipelineConfig,
    request: Request,
    resources: Resources,
    *,
    switched_off: Collection[int] = (),
    progress: Progress = silent,
) -> WhatIf:
    """The effect on `evidence` if a memory, made by `new_memory`, were in the store: would it have been found?

    Raises InputError for an id that the store has, ModelError if the text cannot be embedded. Nothing is written but model scores.
    """
    edit = presence(new, resources)
    return applied(edit, evidence, config, request, switched_off=switched_off, progress=progress)


def absence(memory_id: str, resources: Resources) -> Edit:
    """The edit that takes a memory out. Raises InputError as `absent` does."""
    return Edit(_stored(memory_id, resources), None, resources)


def presence(new: Memory, resources: Resources) -> Edit:
    """The edit that adds a memory. Raises InputError as `present` does."""
    if resources.store.memories.get(new.id) is not None:
        raise InputError(f"{new.id}: the store has such a memory; edit it instead")
    return Edit(None, new, resources)


def new_memory(text: str, resources: Resources, **given: Any) -> Memory:
    """A memory of that text for `present`, under an id that the store does not have; `given` are further fields.

    Raises InputError for an empty text and for one that is too long.
    """
    if not text.strip():
        raise InputError("text: it is empty; write what the memory would say")
    if len(text) > MAX_NEW_CHARS:
        raise InputError(
            f"text: it has {len(text):,} characters, and at most {MAX_NEW_CHARS:,} can be tried; shorten it"
        )
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InputError("text: it holds bytes that are not UTF-8 text; type it again")
    known, number = resources.store.memories.known, 1
    while known([NEW_ID if number == 1 else f"{NEW_ID}-{number}"]):
        number += 1
    return Memory(NEW_ID if number == 1 else f"{NEW_ID}-{number}", text, **given)


def _stored(memory_id: str, resources: Resources) -> Memory:
    stored = resources.store.memories.get(memory_id)
    if stored is None:
        require_stored(memory_id, resources.store)
        raise InputError(f"{memory_id}: no such memory; it may have been deleted")
    return stored


def applied(
    edit: Edit,
    evidence: Evidence,
    config: PipelineConfig,
    request: Request,
    *,
    switched_off: Collection[int] = (),
    progress: Progress = silent,
) -> WhatIf:
    """The effect of an edit on the evidence of a query. Raises InputError for evidence without a list to rank the memory in."""
    scratch = scored_evidence(edit, evidence, config, request, switched_off=switched_off, progress=progress)
    before, after = (replay(one, config, switched_off=switched_off) for one in (evidence, scratch))
    return WhatIf(edit.stored, edit.edited, before, after, tuple(approximated(edit, evidence)))


def scored_evidence(
    edit: Edit,
    evidence: Evidence,
    config: PipelineConfig,
    request: Request,
    *,
    switched_off: Collection[int] = (),
    progress: Progress = silent,
) -> Evidence:
    """`edited_evidence` with the reranker's and judge's scores that it needs. Raises as `applied` does."""
    if not any(ranked.variant is not None for ranked in evidence.lists):
        raise InputError(
            f"the evidence of “{short(evidence.query)}” has no list of a search to rank the memory in; gather it again"
        )
    scratch = edited_evidence(edit, evidence, config, request)
    scratch = score_missing(scratch, config, edit.resources, progress, switched_off=switched_off)
    judged = any(edit.memory_id in scores for scores in evidence.judge_scores.values())
    if judged or (edit.stored is None and any(evidence.judge_scores.values())):
        scratch = judge_missing(scratch, config, edit.resources, progress, switched_off=switched_off)
    return scratch


def approximated(edit: Edit, evidence: Evidence) -> list[str]:
    """What differs from a real change, in sentences: which ranks are estimated; nothing if all are exact."""
    said: list[str] = []
    if edit.edited is not None and not edit.rewritten:
        return said
    what = "edit" if edit.edited and edit.stored else "import" if edit.edited else "deletion"
    if answered_elsewhere(evidence):
        said.append(
            "A running system answered the lists: only it knows what else it would return, and its scores may be on another scale."
        )
    if any(ranked.source == "ts_rank" for ranked in evidence.lists):
        said.append(
            f"Of equal ts_rank scores the one that was written last comes last; after a real {what} PostgreSQL may order them otherwise."
        )
    unchanged = "stay unchanged" if edit.edited else "lose it, and nothing moves up into them"
    kept = [ranked.name for ranked in evidence.lists if ranked.source not in (*RANKED_AGAIN, *ADDED_LISTS)]
    if kept:
        said.append(f"Lists that are not searched again ({', '.join(kept)}) {unchanged}.")
    added = [ranked.name for ranked in evidence.lists if ranked.source in ADDED_LISTS]
    if added:
        said.append(
            f"The lists of added sources ({', '.join(added)}) {unchanged}; only those sources know what they would return."
        )
    if len(evidence.variants) > 1:
        said.append(
            f"The query variants are those that were searched; expansion might choose other words after a real {what}."
        )
    if len(edit.resources.indexes.vectors) > EXACT_ROWS:
        placed = "the edited memory is placed by its exact cosine" if edit.edited else "its hits are those it finds"
        said.append(f"The vector index searches approximately in a store of this size; {placed}.")
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
