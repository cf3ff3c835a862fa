"""The evidence as it would be with one memory edited, absent or new; the store stays as it is.

It is recomputed for that one memory; everything else stays unchanged:

    vector    exact cosine of the embedding of the changed text with each query variant
    lexical   BM25 in the index as it would be: with the edit's word frequencies and lengths
    ts_rank   ts_rank of the changed chunks, after candidates with the same score
    relations, recency, access   recomputed from those lists, as gathering does

A list is searched one deeper, the memory is moved to the rank of its new score, and the list is cut to its depth: the memory may
enter a list or drop out, and the next one moves up. The query variants are those that were searched. The list of an added retriever
stays unchanged: only the retriever can rank the edit. An absent memory leaves such a list too, and nobody moves up into it; so it is with
lists that a running system answered. A new memory is put into the lists of the evidence, which need no search for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from cems_workbench.config import PipelineConfig, list_depths
from cems_workbench.config.model import candidate_set_size
from cems_workbench.config.sections import ADDED_LISTS
from cems_workbench.models.protocol import Float32
from cems_workbench.models.tokens import TokenCounts
from cems_workbench.pipeline.evidence import QUESTIONS, Evidence, Hit, ModelScore, RankedList
from cems_workbench.pipeline.gather import MAX_DEPTH, Request, inner_depth, metadata_lists, search_filter
from cems_workbench.pipeline.missing_evidence import gathered_parameters
from cems_workbench.pipeline.relations import neighbours, possible_seeds
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.retrievers import passes, ranked_list
from cems_workbench.pipeline.scoring import questions_of
from cems_workbench.pipeline.supersession import SUPERSEDED, Supersession, find_successors
from cems_workbench.records import Chunk, Memory, Relation
from cems_workbench.store import Filter
from cems_workbench.store.search.entries import ChunkHits, Document, truncate_to_memories
from cems_workbench.store.search.lexical_index import LexicalIndex
from cems_workbench.store.search.vector_index import mean_direction
from cems_workbench.store.sources import TextPart
from cems_workbench.store.text_rule import searched_text

UNDATED = datetime.min.replace(tzinfo=UTC)
RANKED_AGAIN = ("lexical", "vector", "ts_rank", "relations", "recency", "access")
"""The sources whose lists are made again after an edit; every other list is kept as it was gathered."""


@dataclass(frozen=True)
class Edit:
    """A memory as stored and as edited: None as stored, it is new; None as edited, it is absent. Its texts are embedded
    once. `again`: it is as stored, and its vectors are those that the embedder gives its texts, whatever its source
    has."""

    stored: Memory | None
    edited: Memory | None
    resources: Resources
    again: bool = False
    _lexical: dict[LexicalIndex, LexicalIndex] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise ValueError without a memory, or for two different ones."""
        if len({memory.id for memory in (self.stored, self.edited) if memory is not None}) != 1:
            raise ValueError("an edit is of one memory")

    @property
    def memory_id(self) -> str:
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

    @property
    def embedded_again(self) -> bool:
        """Whether its vectors are made again."""
        return self.rewritten or self.again

    @cached_property
    def would_be(self) -> tuple[tuple[Chunk, ...], dict[int | None, str]]:
        """The chunks of the memory as edited, and its searched texts."""
        if self.again:
            store, memory_id = self.resources.store, self.memory_id
            return store.chunks.read([memory_id]).get(memory_id, ()), store.indexes.texts([memory_id])[memory_id]
        return self.resources.store.chunks.preview(self.either, self.resources.embedder)

    @cached_property
    def vectors(self) -> dict[int | None, Float32]:
        """The embeddings of the chunks as edited, or under None that of the whole text."""
        kept = {} if self.embedded_again else self.resources.indexes.vectors.chunk_embeddings([self.memory_id])
        if self.memory_id in kept:
            return kept[self.memory_id]
        chunks, texts = self.would_be
        contents: dict[int | None, str] = {chunk.seq: chunk.text for chunk in chunks}
        parts = [
            TextPart((self.memory_id, seq), self.either.title, contents.get(seq, self.either.content), text)
            for seq, text in texts.items()
        ]
        embedded = self.resources.store.sources.embedded_texts(parts)
        return dict(zip(texts, self.resources.embedder.encode(embedded), strict=True))

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


def edited_evidence(edit: Edit, evidence: Evidence, config: PipelineConfig, request: Request) -> Evidence:
    """The evidence as it would be with the edit. Raises ModelError if the text cannot be embedded. Scores of a reranker
    or a judge for a changed content are left out, so that they are computed again, and so are those of a reranker for
    what follows another question. Of the request only project and restriction to it are read."""
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
    known = [_restricted(ranked, memories) for ranked in lists]
    allowed = {key: memory for key, memory in memories.items() if passes(memory, scratch.where)}
    known += [_restricted(ranked, allowed) for ranked in (*related, *added)]
    relations = [relation for relation in relations if relation.target_id in memories]
    inside = {hit.memory_id for ranked in known for hit in ranked.hits}
    inside |= {relation.target_id for relation in relations}
    memories = {key: memory for key, memory in memories.items() if key in inside}
    notes: Mapping[str, Any] = evidence.notes
    if SUPERSEDED in notes:
        noted = _superseded(memories, evidence, scratch.where, edit)
        memories |= resources.store.memories.read(noted.added - memories.keys() - {memory_id})
        memories |= own if memory_id in noted.added else {}
        notes = noted.noted_in(notes)
    known += metadata_lists(memories, known, config)
    embeddings = resources.indexes.vectors.embeddings(sorted(memories))
    chunks = resources.store.chunks.read(memories)
    if edit.edited is not None and (memory_id in embeddings or (memory_id in memories and edit.embedded_again)):
        embeddings[memory_id] = mean_direction(list(edit.vectors.values()))
    if memory_id in memories and edit.rewritten:
        chunks.pop(memory_id, None)
        chunks |= {memory_id: edit.would_be[0]} if edit.would_be[0] else {}
    contents = [memory and memory.content for memory in (edit.edited, edit.stored)]
    again = set() if contents[0] == contents[1] else {memory_id}
    asked = again
    if config.rerank.prepend_question:  # the memory may be what another follows, or follow another
        # What follows an absent memory in its session sees none there.
        questions = questions_of(memories.values(), resources, edit.edited or replace(edit.either, session=None))
        notes = {**notes, QUESTIONS: questions}
        asked = again | {key for key in memories if questions.get(key) != evidence.questions.get(key)}
    return replace(
        evidence,
        memories=memories,
        lists=tuple(known),
        embeddings=embeddings,
        relations=tuple(relations),
        chunks=chunks,
        tokens=TokenCounts(memories, chunks) if evidence.tokens else {},
        notes=notes,
        model_scores=_without(evidence.model_scores, asked),
        judge_scores=_without(evidence.judge_scores, again),
    )


def _restricted(ranked: RankedList, memories: Collection[str]) -> RankedList:
    return replace(ranked, hits=tuple(hit for hit in ranked.hits if hit.memory_id in memories))


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
        return self.edit.resources

    @cached_property
    def where(self) -> Filter:
        where, edited = search_filter(self.request, self.config, self.resources), self.edit.edited
        if where.ids is None or edited is None:
            return where
        ids = where.ids - {edited.id}
        return replace(where, ids=ids | {edited.id} if edited.author == where.author else ids)

    @cached_property
    def inside(self) -> bool:
        """Whether the edited memory is searched: it is there, and the filter lets it pass."""
        return self.edit.edited is not None and passes(self.edit.edited, self.where)

    @cached_property
    def was_inside(self) -> bool:
        return self.edit.stored is not None and passes(self.edit.stored, self.where)

    def _cosines(self, vector: Float32) -> dict[int | None, float]:
        return {chunk: float(own @ vector) for chunk, own in self.edit.vectors.items()}

    def searched(self) -> list[RankedList]:
        """The per-variant lists, with the memory at the rank of the edit."""
        found: dict[str, RankedList] = {}
        lexical: dict[int | None, ChunkHits] = {}
        for ranked in sorted(self.evidence.lists, key=lambda ranked: ranked.source != "lexical"):
            text = "" if ranked.variant is None else self.evidence.text_for(ranked.source, ranked.variant)
            elsewhere = answered_elsewhere(self.evidence, ranked.name)
            # A new memory, and one that the filter hides before and after, moves nobody up: no search is needed.
            unsearched = elsewhere or self.edit.stored is None or not (self.inside or self.was_inside)
            kept = [(hit.memory_id, hit.score, hit.chunk) for hit in ranked.hits] if unsearched else None
            if ranked.source == "lexical":
                # Frequencies and lengths, those of the whole store, change with the edit: this list is always made again.
                index = self.edit.lexical(self.resources.lexical(self.config.lists.lexical))
                hits = lexical[ranked.variant] = index.search_chunks(text, self._depth("lexical"), self.where)
            elif ranked.source == "vector":
                hits = self._vector(text, lexical.get(ranked.variant, []), kept, elsewhere)
            elif ranked.source == "ts_rank":
                hits = self._ts_rank(text, kept)
            else:
                if ranked.variant is not None:  # not searched again: `what_if.approximated` says so
                    others = {hit.memory_id for hit in ranked.hits} - {self.edit.memory_id}
                    found[ranked.name] = ranked if self.inside else _restricted(ranked, others)
                continue
            found[ranked.name] = replace(
                ranked, hits=tuple(Hit(key, float(score), chunk) for key, score, chunk in hits)
            )
        return [found[ranked.name] for ranked in self.evidence.lists if ranked.name in found]

    def _depth(self, source: str) -> int:
        """The depth that the evidence was gathered with, which may exceed that of the config."""
        return self.gathered.get(f"lists.{source}.depth", list_depths(self.config)[source]) or MAX_DEPTH

    @cached_property
    def gathered(self) -> Mapping[str, Any]:
        return gathered_parameters(self.evidence.notes)

    def _ts_rank(self, text: str, kept: ChunkHits | None) -> ChunkHits:
        """Chunks by ts_rank, as many as gathering takes."""
        from pg_text_search.ts_rank import TsQueryError, lexemes, matches, or_query, ts_rank

        depth = max(self.gathered.get("lists.ts_rank.chunk_depth", self.config.lists.ts_rank.chunk_depth), self._inner)
        index = self.resources.full_text()
        try:
            asked = or_query(text)
            chunks = self.resources.store.chunks.read([self.edit.memory_id]).get(self.edit.memory_id, ())
            more = depth + max(1, len(chunks))  # as many may leave
            hits = index.search(asked, index.chunk_count, self.where, "window", more) if kept is None else kept
        except TsQueryError:
            return []
        if not self.edit.rewritten and self.inside == self.was_inside:
            return hits[:depth]
        hits = [hit for hit in hits if hit[0] != self.edit.memory_id]
        for chunk, piece in self.edit.would_be[1].items() if self.inside else ():
            if matches(document := lexemes(piece), asked):
                hits.append((self.edit.memory_id, ts_rank(document, asked), chunk))
        return sorted(hits, key=lambda hit: -hit[1])[:depth]  # of equal ranks the row that was written last comes last

    @cached_property
    def _inner(self) -> int:
        return inner_depth(self.config, self.evidence.query, self.evidence.language)

    def _vector(self, text: str, lexical: ChunkHits, kept: ChunkHits | None, elsewhere: bool) -> ChunkHits:
        depth = max(self._depth("vector"), self._inner)
        if kept is not None and not self.inside:
            return self._placed(kept, {}, depth)
        vector = self.resources.embedder.encode_query(text)
        if self.config.lists.candidate_set.mode != "all" and not elsewhere:
            # The newest memories and the lexical hits, by cosine.
            alone = self.config.lists.candidate_set.mode == "lexical_or_newest" and bool(lexical)
            pool = dict.fromkeys([*([] if alone else self._newest()), *(memory_id for memory_id, _, _ in lexical)])
            hits = self.resources.cosines(vector, [key for key in pool if key != self.edit.memory_id])
            return self._placed(hits, self._cosines(vector) if self.edit.memory_id in pool else {}, depth)
        hits = self.resources.indexes.vectors.search_chunks(vector, depth + 1, self.where) if kept is None else kept
        if not self.inside:
            return self._placed(hits, {}, depth)
        own = {chunk: score for memory_id, score, chunk in hits if memory_id == self.edit.memory_id}
        own = {} if self.edit.embedded_again else own
        return self._placed(hits, own or self._cosines(vector), depth)

    def _newest(self) -> list[str]:
        """The most recently accessed or created, with the memory at the rank of its edited dates."""
        size, memories = candidate_set_size(self.config), self.resources.store.memories
        by_access = self.config.lists.candidate_set.mode == "recent_access"
        read = memories.newest_by_access if by_access else memories.newest_by_creation
        newest = [key for key in read(size + 1, self.where) if key != self.edit.memory_id]
        if not self.inside:
            return newest[:size]
        found = [*memories.read(newest).values(), self.edit.either]
        moments = {one.id: (one.last_accessed if by_access else None) or one.created_at or UNDATED for one in found}
        return sorted(sorted(moments), key=lambda key: moments[key], reverse=True)[:size]

    def _placed(self, hits: ChunkHits, own: Mapping[int | None, float], depth: int) -> ChunkHits:
        rest = [hit for hit in hits if hit[0] != self.edit.memory_id]
        rest += [(self.edit.memory_id, score, chunk) for chunk, score in own.items()]
        return truncate_to_memories(sorted(rest, key=lambda hit: (-hit[1], hit[0], hit[2] or 0)), depth)


def answered_elsewhere(evidence: Evidence, name: str) -> bool:
    """Whether a running system answered this list: the store's own indexes cannot fill it."""
    engine = evidence.notes.get("engine") or {"lists": ()}
    return name in engine["lists"]


def _without(
    scores: Mapping[str, Mapping[str, ModelScore]], memory_ids: Collection[str]
) -> Mapping[str, Mapping[str, ModelScore]]:
    return {model: {key: score for key, score in of.items() if key not in memory_ids} for model, of in scores.items()}
