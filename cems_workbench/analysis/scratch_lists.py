"""The evidence of a query as it would be were one memory different; everything else, and the store, stays as it is.

    vector    exact cosine of the embedding of the changed text with each query variant
    lexical   BM25 of the changed text by the index's own statistics (analysis/bm25.py)
    relations, recency, access   made anew from those lists, as gathering makes them

A list is searched one deeper, the memory taken out of it and put in where its new score places it, and cut to its depth: it may
enter a list or fall out, and who was next takes its place. The query variants are those that were searched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from cems_workbench.analysis import bm25
from cems_workbench.config import PipelineConfig, list_depths
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.evidence import Evidence, Hit, ModelScore, RankedList
from cems_workbench.pipeline.gather import EVERYTHING, Request, metadata_lists, passes, relation_list
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Memory, indexed_text
from cems_workbench.store import Filter
from cems_workbench.store.filter import ANY

Found = Sequence[tuple[str, float]]
UNDATED = datetime.min.replace(tzinfo=UTC)


def scratch_evidence(
    edited: Memory, evidence: Evidence, config: PipelineConfig, request: Request, resources: Resources
) -> Evidence:
    """The evidence with `edited` in the place of the stored memory of its id. Raises ModelError when it cannot be embedded.

    Scores of a reranker or a judge for a changed content are left out, so that they are asked for again.
    """
    stored = resources.store.memory(edited.id) or edited
    scratch = _Scratch(stored, edited, evidence, config, request, resources)
    lists = scratch.searched()
    related = relation_list(lists, config, resources, ANY)
    ids = {hit.memory_id for ranked in (*lists, related) for hit in ranked.hits}
    memories = resources.store.memories(ids) | ({edited.id: edited} if edited.id in ids else {})
    known = [scratch.known(ranked, memories) for ranked in lists]
    allowed = {key: memory for key, memory in memories.items() if passes(memory, scratch.where)}
    known.append(scratch.known(related, allowed))
    inside = {hit.memory_id for ranked in known for hit in ranked.hits}
    memories = {key: memory for key, memory in memories.items() if key in inside}
    known += metadata_lists(memories, known, config)
    embeddings = resources.indexes.vectors.embeddings(sorted(memories))
    if edited.id in embeddings or (edited.id in memories and scratch.rewritten):
        embeddings[edited.id] = scratch.vector
    anew = edited.content != stored.content
    return replace(
        evidence, memories=memories, lists=tuple(known), embeddings=embeddings,
        model_scores=_without(evidence.model_scores, edited.id) if anew else evidence.model_scores,
        judge_scores=_without(evidence.judge_scores, edited.id) if anew else evidence.judge_scores,
    )  # fmt: skip


@dataclass(frozen=True)
class _Scratch:
    """One edit on one evidence: its place in every list that was searched."""

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
        """Does the edit change what is embedded and searched?"""
        return indexed_text(self.edited) != indexed_text(self.stored)

    @cached_property
    def vector(self) -> Float32:
        """The embedding of the text as edited."""
        kept = {} if self.rewritten else self.resources.indexes.vectors.embeddings([self.edited.id])
        if self.edited.id in kept:
            return kept[self.edited.id]
        vector: Float32 = self.resources.embedder.encode([indexed_text(self.edited)])[0]
        return vector

    @cached_property
    def mean(self) -> float | None:
        """Mean length of the indexed memories, for BM25."""
        memories = [self.stored, *self.evidence.memories.values()]
        return bm25.mean_length(self.resources.indexes.lexical, memories)

    def searched(self) -> list[RankedList]:
        """The vector and lexical lists of the evidence, with the memory where the edit puts it."""
        found: dict[str, RankedList] = {}
        lexical: dict[int | None, Found] = {}
        for ranked in sorted(self.evidence.lists, key=lambda ranked: ranked.source != "lexical"):
            text = "" if ranked.variant is None else self.evidence.variants[ranked.variant].text
            if ranked.source == "lexical":
                hits = lexical[ranked.variant] = self._lexical(text)
            elif ranked.source == "vector":
                hits = self._vector(text, lexical.get(ranked.variant, ()))
            else:
                continue
            found[ranked.name] = replace(ranked, hits=tuple(Hit(key, float(score)) for key, score in hits))
        return [found[ranked.name] for ranked in self.evidence.lists if ranked.name in found]

    def known(self, ranked: RankedList, memories: Mapping[str, Memory]) -> RankedList:
        """The list without what is not among these memories."""
        return replace(ranked, hits=tuple(hit for hit in ranked.hits if hit.memory_id in memories))

    def _depth(self, source: str) -> int:
        """The depth that the evidence was gathered with: a list may be kept deeper than the config now asks for."""
        gathered: Any = self.evidence.notes.get("gathered", {})
        depth: int | None = gathered.get(f"lists.{source}.depth", list_depths(self.config)[source])
        return depth or EVERYTHING

    def _lexical(self, text: str) -> Found:
        depth = self._depth("lexical")
        index = self.resources.indexes.lexical
        hits = index.search(text, depth + 1, self.where)
        if not passes(self.edited, self.where) or self.mean is None:
            own = None
        elif not self.rewritten and passes(self.stored, self.where):
            own = dict(hits).get(self.edited.id)
        else:
            own = bm25.score(index, text, indexed_text(self.edited), self.mean) or None
        return self._placed(hits, own, depth)

    def _vector(self, text: str, lexical: Found) -> Found:
        depth = self._depth("vector")
        vector = self.resources.embedder.encode_query(text)
        if self.config.lists.pool.mode == "recent_access":
            return self._pooled(vector, lexical, depth)
        hits = self.resources.indexes.vectors.search(vector, depth + 1, self.where)
        own = None if self.rewritten else dict(hits).get(self.edited.id)
        if own is None and passes(self.edited, self.where):
            own = float(self.vector @ vector)
        return self._placed(hits, own if passes(self.edited, self.where) else None, depth)

    def _pooled(self, vector: Float32, lexical: Found, depth: int) -> Found:
        """The most recently accessed memories and the lexical hits, by cosine."""
        pool = dict.fromkeys([*self._newest(), *(memory_id for memory_id, _ in lexical)])
        hits = self.resources.cosines(vector, [memory_id for memory_id in pool if memory_id != self.edited.id])
        return self._placed(hits, float(self.vector @ vector) if self.edited.id in pool else None, depth)

    def _newest(self) -> list[str]:
        """The pool of the most recently accessed, with the memory where its edited dates put it."""
        size, store = self.config.lists.pool.size, self.resources.store
        newest = [key for key in store.newest_by_access(size + 1, self.where) if key != self.edited.id]
        if not passes(self.edited, self.where):
            return newest[:size]
        moments = {key: _accessed(memory) for key, memory in store.memories(newest).items()}
        moments[self.edited.id] = _accessed(self.edited)
        return sorted(sorted(moments), key=lambda key: moments[key], reverse=True)[:size]

    def _placed(self, hits: Found, own: float | None, depth: int) -> Found:
        rest = [hit for hit in hits if hit[0] != self.edited.id]
        if own is not None:
            rest.append((self.edited.id, own))
        return sorted(rest, key=lambda hit: (-hit[1], hit[0]))[:depth]


def _accessed(memory: Memory) -> datetime:
    return memory.last_accessed or memory.created_at or UNDATED


def _without(scores: Mapping[str, Mapping[str, ModelScore]], memory_id: str) -> dict[str, dict[str, ModelScore]]:
    return {model: {key: score for key, score in of.items() if key != memory_id} for model, of in scores.items()}
